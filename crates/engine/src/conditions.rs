//! Bad luck on purpose: clients that fail, clients that are slow, rounds that do not wait.
//!
//! Fates are drawn from the seed before anything trains, not from the clock, so a run under bad
//! conditions repeats to the byte. Who fails or comes late gets its download (those bytes are
//! spent) but no order, and its state stays as it was: it is as if it had not been sampled.

use fedra_plan::Round;
use fedra_seed::Seed;
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// What goes wrong, and how long a round waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// The probability that a client fails in a round.
    pub fail: f64,
    /// Who is slow, and by how much.
    pub slow: Slow,
    /// Closes a round with the first so many answers; absent, it waits for all.
    pub close_with: Option<u32>,
}

/// Slowness, drawn anew in each round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slow {
    /// The probability that a client is slow in a round.
    pub share: f64,
    /// How many times longer a slow client takes.
    pub factor: f64,
}

impl Default for Slow {
    fn default() -> Self {
        Self { share: 0.0, factor: 4.0 }
    }
}

/// What will become of a client in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It answers in time.
    Works,
    /// It does not answer.
    Fails,
    /// The round closes before it answers.
    Late,
}

impl Conditions {
    /// Refuses probabilities that are none, and rounds that close with nobody.
    pub fn check(self) -> Result<(), EngineError> {
        let refuse = |key, found: f64, expected| {
            Err(EngineError::Setting { key, found: found.to_string(), expected })
        };
        if !(0.0..=1.0).contains(&self.fail) {
            return refuse("conditions.fail", self.fail, "a probability");
        }
        if !(0.0..=1.0).contains(&self.slow.share) {
            return refuse("conditions.slow.share", self.slow.share, "a probability");
        }
        if !(self.slow.factor.is_finite() && self.slow.factor >= 1.0) {
            return refuse("conditions.slow.factor", self.slow.factor, "finite and at least 1");
        }
        if self.close_with == Some(0) {
            return refuse("conditions.close_with", 0.0, "at least 1");
        }
        Ok(())
    }

    /// The fate of each client, given the steps it has to make, in the order of the cohort.
    pub(crate) fn fates(
        self,
        experiment: Seed,
        round: Round,
        cohort: &[(ClientId, u64)],
    ) -> Vec<(ClientId, Fate)> {
        let seed = experiment.of("conditions").with(u64::from(round.0));
        let mut fates = Vec::with_capacity(cohort.len());
        let mut finishes = Vec::new();
        for &(client, steps) in cohort {
            let mut generator = seed.with(u64::from(client.0)).generator();
            let fails = generator.uniform() < self.fail;
            let slowed = generator.uniform() < self.slow.share;
            // Machines differ by up to a quarter even when none is slow.
            let pace =
                (0.75 + 0.5 * generator.uniform()) * if slowed { self.slow.factor } else { 1.0 };
            fates.push((client, if fails { Fate::Fails } else { Fate::Works }));
            if !fails {
                finishes.push((steps as f64 * pace, client));
            }
        }
        finishes.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        let in_time = self.close_with.map_or(finishes.len(), |count| count as usize);
        for (_, late) in finishes.into_iter().skip(in_time) {
            for (_, fate) in fates.iter_mut().filter(|(client, _)| *client == late) {
                *fate = Fate::Late;
            }
        }
        fates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cohort() -> Vec<(ClientId, u64)> {
        (0..8).map(|number| (ClientId(number), 10)).collect()
    }

    fn count(conditions: Conditions, fate: Fate) -> usize {
        let rounds = (0..500).flat_map(|round| conditions.fates(Seed(1), Round(round), &cohort()));
        rounds.filter(|(_, found)| *found == fate).count()
    }

    #[test]
    fn clients_fail_as_often_as_told() {
        assert_eq!(count(Conditions::default(), Fate::Works), 4000);
        let failed = count(Conditions { fail: 0.25, ..Conditions::default() }, Fate::Fails);
        assert!((900..1100).contains(&failed), "{failed}");
    }

    #[test]
    fn a_round_closes_with_k_of_n() {
        let conditions = Conditions { close_with: Some(3), ..Conditions::default() };
        assert_eq!(count(conditions, Fate::Works), 1500);
        assert_eq!(count(conditions, Fate::Late), 2500);
    }

    #[test]
    fn the_slow_are_the_late() {
        let slow = Slow { share: 0.5, factor: 10.0 };
        let conditions = Conditions { slow, close_with: Some(1), ..Conditions::default() };
        let alone = Conditions { close_with: None, ..conditions };
        assert_eq!(count(alone, Fate::Late), 0);
        // With eight clients of which half are slow, the first one is hardly ever a slow one; the
        // cohort's heaviest client never is the first.
        let mut heavy = cohort();
        heavy[0].1 = 1000;
        for round in 0..200 {
            let fates = conditions.fates(Seed(1), Round(round), &heavy);
            assert_eq!(fates[0], (ClientId(0), Fate::Late));
        }
    }
}
