//! What advice is asked for, and which rounds a pilot tries for it.

use std::path::PathBuf;

use crate::config::{ConfigError, Experiment};

/// What advice is asked for.
#[derive(Clone, Debug)]
pub struct AdviceRequest {
    /// How many rounds to look ahead; all of the experiment's unless given.
    pub rounds: Option<u32>,
    /// The warm-ups to try, in rounds; 0, 1/8, 1/4 and 1/2 of the rounds where there are none.
    pub warmups: Vec<u32>,
    /// How much score one would give up to send less.
    pub tolerance: f64,
    /// A folder for a file with what clients keep between rounds; it stays in memory unless given.
    pub scratch: Option<PathBuf>,
}

impl Default for AdviceRequest {
    fn default() -> Self {
        Self { rounds: None, warmups: Vec::new(), tolerance: 0.01, scratch: None }
    }
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct PilotPlan {
    /// Rounds of the trunk; every branch ends there too.
    pub horizon: u32,
    /// The rounds from which a branch continues with query and key frozen, rising.
    pub warmups: Vec<u32>,
    /// How much score one would give up to send less.
    pub tolerance: f64,
}

impl PilotPlan {
    /// What is asked for, or why it cannot be tried on this trunk.
    pub fn new(trunk: &Experiment, asked: &AdviceRequest) -> Result<Self, ConfigError> {
        let expected = "at least 2: a trunk and a branch of it";
        ConfigError::new("federation.rounds", trunk.rounds, expected).when(trunk.rounds < 2)?;
        let horizon = asked.rounds.unwrap_or(trunk.rounds);
        let expected = format_args!("from 2 to the {} rounds of the experiment", trunk.rounds);
        ConfigError::new("rounds", horizon, expected)
            .when(!(2..=trunk.rounds).contains(&horizon))?;
        ConfigError::new("tolerance", asked.tolerance, "a number, 0 or more")
            .when(!(asked.tolerance.is_finite() && asked.tolerance >= 0.0))?;
        let mut warmups = asked.warmups.clone();
        if warmups.is_empty() {
            let share = |parts: u32| (f64::from(horizon) * f64::from(parts) / 8.0).round() as u32;
            warmups = [0, 1, 2, 4].map(share).to_vec();
        }
        warmups.sort_unstable();
        warmups.dedup();
        if let Some(late) = warmups.iter().find(|warmup| **warmup >= horizon) {
            let expected = format!("below {horizon}: a branch needs a round to show anything");
            return Err(ConfigError::new("warmups", late, expected));
        }
        Ok(Self { horizon, warmups, tolerance: asked.tolerance })
    }

    /// Rounds of training, if no branch is given up.
    pub fn cost(&self) -> u64 {
        let branches = self.warmups.iter().map(|warmup| u64::from(self.horizon - warmup));
        u64::from(self.horizon) + branches.sum::<u64>()
    }

    /// Where branches that are clearly behind, and not merely late, are given up.
    pub(super) fn middle(&self) -> u32 {
        self.horizon / 2
    }

    /// Over so many last rounds a comparison is averaged, because single rounds swing; and who is
    /// less than this behind is merely late.
    pub(super) fn window(&self) -> u32 {
        (self.horizon / 8).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn plan(rounds: u32, horizon: Option<u32>) -> Result<PilotPlan, ConfigError> {
        let overrides = Overrides::new(vec![format!("federation.rounds={rounds}")], None);
        let text = include_str!("../../../tests/tiny.toml");
        let trunk = Experiment::from_text(text, "tiny.toml", "tiny", &overrides).unwrap();
        PilotPlan::new(&trunk, &AdviceRequest { rounds: horizon, ..AdviceRequest::default() })
    }

    #[test]
    fn the_cost_of_the_longest_experiment_can_be_counted() {
        let plan = plan(u32::MAX, None).unwrap();
        assert_eq!(plan.warmups, [0, 1 << 29, 1 << 30, 1 << 31]);
        let branches = 4 * u64::from(u32::MAX) - (7 << 29);
        assert_eq!(plan.cost(), u64::from(u32::MAX) + branches);
    }

    #[test]
    fn one_round_is_refused_by_the_key_that_says_so() {
        for horizon in [None, Some(1)] {
            let refused = plan(1, horizon).unwrap_err().to_string();
            assert!(refused.starts_with("federation.rounds: found 1, expected at least 2"));
        }
        let refused = plan(4, Some(1)).unwrap_err().to_string();
        assert!(refused.starts_with("rounds: found 1, expected from 2 to the 4"), "{refused}");
    }
}
