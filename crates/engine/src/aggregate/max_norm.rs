//! How large an update may be: `max_norm = 5.0`, or `max_norm = { times_median = 10.0 }`.
//!
//! A client that diverged, or that means harm, can send numbers that are finite and still move the mean anywhere.
//! A limit scales such an update down to it, as gradient clipping does, or refuses it. A norm is held against each
//! update as it arrives. A multiple is one of the median of the round's own norms, so no update is folded before the last
//! one came: early ones wait where they always do, few in memory and the others on disk. The median of an earlier round
//! would save that, and would leave the first round open, which is enough to wreck a model.
//!
//! Without a limit, what lies beyond [`FAR`] times the median is reported and nothing else. The median is the lower of two
//! middle ones: of two clients, the smaller update is the measure.

use std::collections::BTreeMap;
use std::fmt;

use fedra_wire::ClientId;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{EngineError, refuse};

pub(crate) const KEY: &str = "federation.max_norm";

/// An update beyond so many times its cohort's median norm is reported.
pub const FAR: f64 = 10.0;

/// The largest norm of an update, and what happens to a larger one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaxNorm {
    /// The largest norm.
    pub limit: NormLimit,
    /// What happens to a larger one.
    pub above: Above,
}

/// The largest norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormLimit {
    /// This.
    Norm(f64),
    /// So many times the median norm of the round's updates.
    TimesMedian(f64),
}

/// What happens to an update beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Above {
    /// It is scaled down to the limit.
    #[default]
    Scale,
    /// It is refused, as if the client had not come.
    Refuse,
}

/// What the norms of a round's updates say; only where one of them is worth a word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormReport {
    /// The median norm of the updates that came.
    pub median: f64,
    /// Updates beyond ten times that, in client order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub far: Vec<FarUpdate>,
    /// Clients whose updates were scaled down to `federation.max_norm`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<ClientId>,
}

/// An update far outside its cohort.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarUpdate {
    /// The client.
    pub client: ClientId,
    /// The norm of its update as it came.
    pub norm: f64,
}

impl NormReport {
    /// The far updates in words, given what a client is called.
    pub fn in_words(&self, name: impl Fn(ClientId) -> String) -> Vec<String> {
        let Self { median, far, scaled } = self;
        let word = |FarUpdate { client, norm }: &FarUpdate| {
            let done = if scaled.contains(client) { "; it was scaled down" } else { "" };
            let (name, times) = (name(*client), norm / median);
            format!(
                "{name}: the update has norm {norm:.3e}, {times:.3e} times the median of its cohort{done}"
            )
        };
        far.iter().map(word).collect()
    }
}

impl MaxNorm {
    /// Whether it is known only after the last arrival which updates are too large.
    pub(crate) fn waits_for_all(self) -> bool {
        matches!(self.limit, NormLimit::TimesMedian(_))
    }

    /// Whether an answer may be refused after it was taken.
    pub(crate) fn refuses_late(self) -> bool {
        self.waits_for_all() && self.above == Above::Refuse
    }

    /// The limit in a round whose updates have these norms, all of them where it is a multiple. Where the median
    /// update changes nothing there is none.
    pub(crate) fn of(self, norms: &BTreeMap<ClientId, f64>) -> Option<f64> {
        match self.limit {
            NormLimit::Norm(norm) => Some(norm),
            NormLimit::TimesMedian(times) => median(norms).map(|median| times * median),
        }
    }

    pub(crate) fn check(self) -> Result<(), EngineError> {
        let (number, least, expected) = match self.limit {
            NormLimit::Norm(norm) => (norm, f64::MIN_POSITIVE, "a finite number above 0"),
            NormLimit::TimesMedian(times) => {
                (times, 1.0, "{ times_median = ... } of at least 1: a finite multiple")
            }
        };
        if number.is_finite() && number >= least {
            return Ok(());
        }
        refuse(KEY, number, expected)
    }
}

/// The lower median of norms; none of fewer than two, or where it is zero.
pub(crate) fn median(norms: &BTreeMap<ClientId, f64>) -> Option<f64> {
    if norms.len() < 2 {
        return None;
    }
    let mut sorted: Vec<f64> = norms.values().copied().collect();
    sorted.sort_by(f64::total_cmp);
    Some(sorted[(sorted.len() - 1) / 2]).filter(|median| *median > 0.0)
}

/// The table of a file; one of the two numbers is given.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    norm: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times_median: Option<f64>,
    #[serde(default)]
    above: Above,
}

impl Serialize for MaxNorm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { limit, above } = *self;
        let (norm, times_median) = match limit {
            NormLimit::Norm(norm) if above == Above::Scale => return norm.serialize(serializer),
            NormLimit::Norm(norm) => (Some(norm), None),
            NormLimit::TimesMedian(times) => (None, Some(times)),
        };
        Written { norm, times_median, above }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MaxNorm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Limit;

        impl<'de> Visitor<'de> for Limit {
            type Value = MaxNorm;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(
                    "a norm, { norm = 5.0, above = \"refuse\" } or { times_median = 10.0 }",
                )
            }

            fn visit_f64<E: Error>(self, norm: f64) -> Result<MaxNorm, E> {
                Ok(MaxNorm { limit: NormLimit::Norm(norm), above: Above::Scale })
            }

            fn visit_i64<E: Error>(self, norm: i64) -> Result<MaxNorm, E> {
                self.visit_f64(norm as f64)
            }

            fn visit_u64<E: Error>(self, norm: u64) -> Result<MaxNorm, E> {
                self.visit_f64(norm as f64)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MaxNorm, A::Error> {
                let written = Written::deserialize(MapAccessDeserializer::new(map))?;
                let limit = match (written.norm, written.times_median) {
                    (Some(norm), None) => NormLimit::Norm(norm),
                    (None, Some(times)) => NormLimit::TimesMedian(times),
                    (Some(_), Some(_)) | (None, None) => {
                        return Err(Error::invalid_value(Unexpected::Map, &self));
                    }
                };
                Ok(MaxNorm { limit, above: written.above })
            }
        }

        deserializer.deserialize_any(Limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_back_as_it_is_written() {
        for (text, limit, above) in [
            ("5.0", NormLimit::Norm(5.0), Above::Scale),
            ("5", NormLimit::Norm(5.0), Above::Scale),
            (r#"{"norm":2.5,"above":"refuse"}"#, NormLimit::Norm(2.5), Above::Refuse),
            (r#"{"times_median":10}"#, NormLimit::TimesMedian(10.0), Above::Scale),
            (
                r#"{"times_median":3.5,"above":"refuse"}"#,
                NormLimit::TimesMedian(3.5),
                Above::Refuse,
            ),
        ] {
            let read: MaxNorm = serde_json::from_str(text).unwrap();
            assert_eq!(read, MaxNorm { limit, above }, "{text}");
            let again = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<MaxNorm>(&again).unwrap(), read, "{again}");
        }
        for text in ["\"5\"", r#"{"norm":1,"times_median":2}"#, "{}", r#"{"norm":1,"above":"x"}"#] {
            assert!(serde_json::from_str::<MaxNorm>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_median_is_the_lower_one_and_none_of_one_or_of_nothing() {
        let of = |norms: &[f64]| median(&(0..).map(ClientId).zip(norms.iter().copied()).collect());
        assert_eq!(of(&[1.0]), None);
        assert_eq!(of(&[1e14, 1.0]), Some(1.0));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[0.0, 0.0, 1.0]), None);
    }
}
