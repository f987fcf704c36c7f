//! The settings of the bridge, and the checks that keep them meaningful.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dip;
use crate::network::Sizes;

/// Everything that decides the bridge's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeSetting {
    /// Where all draws start.
    pub seed: u64,
    /// Worlds that judge, 2 to 11; one more, which judges nothing, chooses the rates.
    #[serde(default = "five")]
    pub worlds: u32,
    /// Sizes of tokens, keys and outputs.
    pub sizes: Sizes,
    /// Which attention made the targets: softmax or linear (with the identity map).
    pub teacher: Teacher,
    /// Clients.
    pub clients: usize,
    /// Samples of each.
    pub samples: usize,
    /// Standard deviation of the noise on targets, whose clean mean square is 1.
    pub noise: f64,
    /// The weight of the ridge.
    pub ridge: f64,
    /// Hidden width of the MLP.
    pub hidden: usize,
    /// Rounds of every run.
    pub rounds: u32,
    /// Local gradient steps in a round.
    pub local_steps: u32,
    /// Clients in a round.
    pub cohort: usize,
    /// Values of `h_kernel = h_value`, rising from 0: the trade-off must show where clients differ, and not where
    /// they do not.
    pub heterogeneities: Vec<f64>,
    /// Warm-ups to sweep, rising from 0 to `rounds`.
    pub warmups: Vec<u32>,
    /// Sizes of a gradient step that every student chooses from, rising.
    pub rates: Vec<f64>,
    /// At which heterogeneity it chooses.
    #[serde(default)]
    pub tuned_at: TunedAt,
}

/// As many worlds as the sweep of `fedra lab frozen` has.
fn five() -> u32 {
    5
}

/// At which heterogeneity the world that judges nothing is drawn when rates are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunedAt {
    /// At each curve's own: never freezing, which freezing must beat, gets the step that suits it best.
    #[default]
    Own,
    /// At none, for every curve: one step for each student, chosen where nothing can drift.
    Zero,
}

/// Which attention made the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Teacher {
    /// Softmax attention.
    Softmax,
    /// Linear attention with the identity map.
    Linear,
}

impl BridgeSetting {
    /// Refuses values that mean nothing: the key, what was found and what was expected.
    pub fn check(&self) -> Result<(), BridgeError> {
        let check = |holds: bool, key, found: &dyn fmt::Display, expected| {
            let error = || BridgeError { key, found: found.to_string(), expected };
            holds.then_some(()).ok_or_else(error)
        };
        let counts = [
            ("sizes.width", self.sizes.width),
            ("sizes.key_width", self.sizes.key_width),
            ("sizes.tokens", self.sizes.tokens),
            ("sizes.outputs", self.sizes.outputs),
            ("clients", self.clients),
            ("samples", self.samples),
            ("hidden", self.hidden),
            ("rounds", self.rounds as usize),
            ("local_steps", self.local_steps as usize),
            ("cohort", self.cohort),
        ];
        for (key, count) in counts {
            check((1..=100_000).contains(&count), key, &count, "a whole number from 1 to 100000")?;
        }
        let worlds = dip::WORLDS.contains(&(self.worlds as usize));
        check(worlds, "worlds", &self.worlds, "a whole number from 2 to 11")?;
        check(self.cohort <= self.clients, "cohort", &self.cohort, "at most as many as clients")?;
        let ridge = self.ridge.is_finite() && self.ridge > 0.0;
        check(ridge, "ridge", &self.ridge, "a number above 0")?;
        let rising = |values: &[f64]| {
            values.iter().all(|value| value.is_finite()) && values.is_sorted_by(|a, b| a < b)
        };
        let (found, rates) = (format!("{:?}", self.rates), &self.rates);
        let holds = rising(rates) && rates.first().is_some_and(|rate| *rate > 0.0);
        check(holds, "rates", &found, "rising numbers above 0, at least one")?;
        let noise = self.noise.is_finite() && self.noise >= 0.0;
        check(noise, "noise", &self.noise, "a number, 0 or more")?;
        let (found, levels) = (format!("{:?}", self.heterogeneities), &self.heterogeneities);
        let holds = rising(levels) && levels.len() > 1 && levels[0] == 0.0;
        check(holds, "heterogeneities", &found, "0 and at least one number above it, rising")?;
        let (found, warmups) = (format!("{:?}", self.warmups), &self.warmups);
        let ends = (warmups.first(), warmups.last()) == (Some(&0), Some(&self.rounds));
        let holds = warmups.len() >= 3 && warmups.is_sorted_by(|a, b| a < b) && ends;
        check(holds, "warmups", &found, "at least three, rising from 0 to the number of rounds")
    }
}

/// A value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: found {found}, expected {expected}")]
pub struct BridgeError {
    key: &'static str,
    found: String,
    expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_mean_nothing_are_refused_by_their_key() {
        let check = |change: fn(&mut BridgeSetting), key: &str| {
            let mut setting = super::super::tests::small();
            change(&mut setting);
            let refusal = setting.check().unwrap_err().to_string();
            assert!(refusal.starts_with(key), "{refusal}");
        };
        check(|setting| setting.cohort = 4, "cohort: found 4");
        check(
            |setting| setting.worlds = 1,
            "worlds: found 1, expected a whole number from 2 to 11",
        );
        check(|setting| setting.worlds = 12, "worlds: found 12");
        check(|setting| setting.rates = vec![0.1, f64::NAN], "rates: found [0.1, NaN]");
        check(|setting| setting.rates.reverse(), "rates: found");
        check(|setting| setting.rates.clear(), "rates: found []");
        check(|setting| setting.warmups = vec![0, 2], "warmups: found [0, 2]");
        check(|setting| setting.warmups = vec![0, 2, 5], "warmups");
        check(|setting| setting.heterogeneities.reverse(), "heterogeneities: found [1.0, 0.0]");
        check(|setting| setting.heterogeneities.clear(), "heterogeneities: found []");
        check(
            |setting| setting.heterogeneities = vec![0.0],
            "heterogeneities: found [0.0], expected 0 and at least one number above it, rising",
        );
        check(
            |setting| setting.heterogeneities = vec![0.5, 1.0],
            "heterogeneities: found [0.5, 1.0]",
        );
        check(
            |setting| setting.heterogeneities = vec![0.0, f64::INFINITY],
            "heterogeneities: found [0.0, inf]",
        );
        check(|setting| setting.sizes.tokens = 0, "sizes.tokens: found 0");
        assert!(super::super::tests::small().check().is_ok());
    }
}
