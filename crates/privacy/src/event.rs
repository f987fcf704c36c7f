//! Events: what was released, as plain data.
//!
//! Mechanisms emit events, the ledger keeps them, accountants read them. No event computes anything,
//! so what a run did can be accounted again later, by another accountant or another program.

use std::num::NonZeroU64;

use fedra_plan::{Digest, Round};
use serde::{Deserialize, Serialize};

use crate::error::PrivacyError;
use crate::numbers::{NoiseMultiplier, SamplingRate};

/// One entry's worth of privacy: what happened, where and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The round it belongs to.
    pub round: Round,
    /// The part of the program that released it, such as `dp-sgd` or `selection`.
    pub mechanism: String,
    /// The client whose rows it read; none if it read everyone's.
    ///
    /// Clients hold disjoint rows, so a release about one client costs the others nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What it was computed from, as a digest, where the same input gives the same bits again, noise
    /// included: it is then one release, however often it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Digest>,
    /// What was released.
    pub release: Release,
}

/// What left the party that is trusted with the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Release {
    /// Sums over random batches, with Gaussian noise: DP-SGD and DP-FedAvg.
    SampledGaussian {
        /// How each batch was drawn.
        sampling: Sampling,
        /// Deviation of the noise over the clip norm.
        noise: NoiseMultiplier,
        /// How many batches.
        steps: NonZeroU64,
    },
    /// Values with Gaussian noise, without sampling.
    Gaussian {
        /// The most that one unit can move the value, in L2, under the guarantee's relation.
        sensitivity: f64,
        /// Deviation of the noise in each coordinate.
        deviation: f64,
        /// How many values.
        count: NonZeroU64,
    },
    /// Something without a bound. It makes epsilon infinite, and statements name it.
    NonPrivate {
        /// What was released.
        what: String,
        /// Why it is not covered.
        why: String,
    },
}

/// How a batch is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Sampling {
    /// Each unit joins each batch by a coin of its own.
    Poisson {
        /// Its chance of heads.
        rate: SamplingRate,
    },
    /// The same, but a batch beyond `cap` is cut down to a random `cap` of its members.
    CappedPoisson {
        /// The chance of joining, before the cut.
        rate: SamplingRate,
        /// The most units in a batch.
        cap: NonZeroU64,
        /// How many units there are.
        population: NonZeroU64,
    },
}

impl Sampling {
    /// The chance of joining a batch, before any cut.
    pub const fn rate(self) -> SamplingRate {
        match self {
            Self::Poisson { rate } | Self::CappedPoisson { rate, .. } => rate,
        }
    }
}

impl Release {
    /// Refuses numbers that the types cannot: a sensitivity or deviation that is no positive number.
    pub fn check(&self) -> Result<(), PrivacyError> {
        let Self::Gaussian { sensitivity, deviation, .. } = self else { return Ok(()) };
        for (name, value) in [("sensitivity", *sensitivity), ("deviation", *deviation)] {
            if !(value > 0.0 && value.is_finite()) {
                let (found, expected) = (value.to_string(), "a finite number above 0");
                return Err(PrivacyError::Number { name, found, expected });
            }
        }
        NoiseMultiplier::new(deviation / sensitivity).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back_from_its_line() {
        let event = Event {
            round: Round(3),
            mechanism: "dp-sgd".into(),
            client: Some("ward-2".into()),
            input: None,
            release: Release::SampledGaussian {
                sampling: Sampling::Poisson { rate: SamplingRate::new(0.01).unwrap() },
                noise: NoiseMultiplier::new(1.1).unwrap(),
                steps: NonZeroU64::new(20).unwrap(),
            },
        };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(
            line,
            r#"{"round":3,"mechanism":"dp-sgd","client":"ward-2","release":{"kind":"sampled_gaussian","sampling":{"kind":"poisson","rate":0.01},"noise":1.1,"steps":20}}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn events_with_impossible_numbers_or_unknown_keys_are_refused() {
        let line = r#"{"kind":"sampled_gaussian","sampling":{"kind":"poisson","rate":0.5},"noise":1,"steps":5}"#;
        assert!(serde_json::from_str::<Release>(line).is_ok());
        for (from, to) in [("0.5", "1.5"), ("\"noise\":1", "\"noise\":0"), (":5}", ":0}")] {
            let bad = line.replace(from, to);
            assert!(serde_json::from_str::<Release>(&bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Release>(&line.replace(":5}", ":5,\"x\":1}")).is_err());
        let bad = Release::Gaussian {
            sensitivity: f64::NAN,
            deviation: 1.0,
            count: NonZeroU64::new(1).unwrap(),
        };
        assert!(bad.check().is_err());
    }
}
