//! The learning rate over all rounds, as a factor of `work.optimiser.rate`.
//!
//! A step's place is how much of the run lies before it: `p = (round + step / steps) / rounds`, with
//! rounds and steps counted from 0 and `steps` those that this client takes in the round. So it follows
//! from the client's own rows and from the round, near or far, and never from who else came. Where all
//! rounds have the same number of steps, `p` is the share of all steps that are done, and factors are
//! those of `transformers`' schedules with warm-up.
//!
//! ```text
//! warm-up    p / w                                 while p < w, the share of the warm-up
//! constant   1
//! linear     (1 - p) / (1 - w)
//! cosine     (1 + cos(pi (p - w) / (1 - w))) / 2
//! ```

use fedra_plan::Round;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{EngineError, refuse};
use crate::number;

/// The rate over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// What becomes of the rate behind the warm-up.
    pub decay: RateDecay,
    /// How long it rises from 0.
    pub warmup: RateWarmup,
    /// All rounds; of a rate that never changes, none.
    pub rounds: u32,
}

/// The rate behind the warm-up: `work.schedule`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateDecay {
    /// It stays.
    #[default]
    Constant,
    /// In a straight line to 0.
    Linear,
    /// Along half a cosine to 0.
    Cosine,
}

/// How long the rate rises: `work.warmup`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of rounds, or a share between 0 and 1 with a decimal point"
)]
pub enum RateWarmup {
    /// So many rounds; 0 is no warm-up.
    Rounds(u32),
    /// This share of all steps, from 0 to below 1.
    Share(#[serde(deserialize_with = "share")] f64),
}

impl Default for RateWarmup {
    fn default() -> Self {
        Self::Rounds(0)
    }
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number::within(deserializer, |share| (0.0..1.0).contains(&share))
}

/// A step among all steps of a client.
#[derive(Clone, Copy, Debug)]
pub struct StepPlace {
    /// The round.
    pub round: Round,
    /// Its steps before this one in the round.
    pub step: u32,
    /// All its steps in the round.
    pub steps: u64,
}

impl Schedule {
    /// The schedule of a run with so many rounds.
    pub fn over(decay: RateDecay, warmup: RateWarmup, rounds: u32) -> Self {
        let whole = Self { decay, warmup, rounds };
        if whole.is_constant() { Self::default() } else { whole }
    }

    /// Whether every step has the same rate.
    pub fn is_constant(&self) -> bool {
        let rises = match self.warmup {
            RateWarmup::Rounds(rounds) => rounds > 0,
            RateWarmup::Share(share) => share > 0.0,
        };
        self.decay == RateDecay::Constant && !rises
    }

    /// The same, as serde asks.
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses a warm-up that does not end, and rounds that nobody counted.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.is_constant() {
            return Ok(());
        }
        if self.rounds == 0 {
            return refuse("work.schedule", "a rate over 0 rounds", "at least 1 round");
        }
        match self.warmup {
            RateWarmup::Rounds(found) if found > self.rounds => {
                let found = format!("{found} of {} rounds", self.rounds);
                refuse("work.warmup", found, "no more rounds than the run has")
            }
            RateWarmup::Share(found) if !(0.0..1.0).contains(&found) => {
                refuse("work.warmup", found, "a share from 0 to below 1")
            }
            RateWarmup::Rounds(_) | RateWarmup::Share(_) => Ok(()),
        }
    }

    /// What the rate of a step is multiplied by.
    pub fn factor(&self, place: StepPlace) -> f32 {
        if self.is_constant() {
            return 1.0;
        }
        let rounds = f64::from(self.rounds.max(1));
        let within = f64::from(place.step) / place.steps.max(1) as f64;
        let done = ((f64::from(place.round.0) + within) / rounds).min(1.0);
        let warmup = match self.warmup {
            RateWarmup::Rounds(warmup) => f64::from(warmup) / rounds,
            RateWarmup::Share(share) => share,
        };
        if done < warmup {
            return (done / warmup) as f32;
        }
        let left = if warmup < 1.0 { (1.0 - done) / (1.0 - warmup) } else { 0.0 };
        let factor = match self.decay {
            RateDecay::Constant => 1.0,
            RateDecay::Linear => left,
            RateDecay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * (1.0 - left)).cos()),
        };
        factor as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(schedule: Schedule, (rounds, steps): (u32, u32)) -> Vec<f32> {
        let place = |round, step| StepPlace { round: Round(round), step, steps: steps.into() };
        let of_round = |round| (0..steps).map(move |step| place(round, step));
        (0..rounds).flat_map(of_round).map(|place| schedule.factor(place)).collect()
    }

    fn check(decay: RateDecay, warmup: RateWarmup, expected: &[f64]) {
        let found = factors(Schedule::over(decay, warmup, 3), (3, 4));
        let near = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() < 1e-7;
        assert!(found.iter().zip(expected).all(near), "{decay:?} {warmup:?}: {found:?}");
        assert_eq!(found.len(), expected.len());
    }

    /// `get_constant_schedule_with_warmup`, `get_linear_schedule_with_warmup` and
    /// `get_cosine_schedule_with_warmup` of transformers 5, 12 steps of which 3 or none are warm-up:
    /// `tools/trainer_fixtures.py` prints them.
    #[test]
    fn one_client_with_equal_rounds_has_the_factors_of_transformers() {
        let share = RateWarmup::Share(0.25);
        let rising = [0.0, 1.0 / 3.0, 2.0 / 3.0];
        let with = |rest: &[f64]| [&rising[..], rest].concat();
        check(RateDecay::Constant, share, &with(&[1.0; 9]));
        let ninths: Vec<f64> = (0..9).map(|step| f64::from(9 - step) / 9.0).collect();
        check(RateDecay::Linear, share, &with(&ninths));
        let cosine = [
            1.0,
            0.969_846_310_392_954_3,
            0.883_022_221_559_489,
            0.75,
            0.586_824_088_833_465_2,
            0.413_175_911_166_534_9,
            0.25,
            0.116_977_778_440_511,
            0.030_153_689_607_045_8,
        ];
        check(RateDecay::Cosine, share, &with(&cosine));
        let twelfths: Vec<f64> = (0..12).map(|step| f64::from(12 - step) / 12.0).collect();
        check(RateDecay::Linear, RateWarmup::Rounds(0), &twelfths);
    }

    #[test]
    fn a_warm_up_of_rounds_is_their_share_of_all() {
        let of = |warmup| factors(Schedule::over(RateDecay::Cosine, warmup, 4), (4, 5));
        assert_eq!(of(RateWarmup::Rounds(1)), of(RateWarmup::Share(0.25)));
        assert_eq!(of(RateWarmup::Rounds(4))[19], 19.0 / 20.0);
        let first =
            |rounds| factors(Schedule::over(RateDecay::Linear, of_rounds(1), rounds), (1, 2));
        assert_eq!(first(7), [0.0, 0.5]);
    }

    fn of_rounds(rounds: u32) -> RateWarmup {
        RateWarmup::Rounds(rounds)
    }

    #[test]
    fn a_rate_that_never_changes_does_not_depend_on_the_rounds() {
        let constant = Schedule::over(RateDecay::Constant, RateWarmup::Share(0.0), 9);
        assert_eq!(constant, Schedule::default());
        assert_eq!(factors(constant, (2, 2)), [1.0; 4]);
        // What is asked for behind the last round has the end of it.
        let linear = Schedule::over(RateDecay::Linear, of_rounds(0), 2);
        assert_eq!(factors(linear, (3, 1)), [1.0, 0.5, 0.0]);
    }

    #[test]
    fn a_warm_up_that_does_not_end_is_refused() {
        let check = |warmup, rounds, expected: &str| {
            let schedule = Schedule { decay: RateDecay::Linear, warmup, rounds };
            assert_eq!(schedule.check().expect_err(expected).to_string(), expected);
        };
        check(
            of_rounds(4),
            3,
            "`work.warmup` is 4 of 3 rounds, expected no more rounds than the run has",
        );
        let whole = RateWarmup::Share(1.0);
        check(whole, 3, "`work.warmup` is 1, expected a share from 0 to below 1");
        check(
            of_rounds(0),
            0,
            "`work.schedule` is a rate over 0 rounds, expected at least 1 round",
        );
        let read = |text: &str| serde_json::from_str::<RateWarmup>(text).ok();
        assert_eq!(read("0.1"), Some(RateWarmup::Share(0.1)));
        assert_eq!(read("2"), Some(of_rounds(2)));
        for bad in ["1.0", "-1", "-0.5", "\"long\""] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
