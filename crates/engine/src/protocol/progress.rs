//! How far the work inside a round has come.
//!
//! Plain data that whoever works hands to whoever watches, as often as a step is taken. No result
//! depends on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Steps after which the time of the others can be told.
const FEWEST_STEPS: u64 = 3;
/// Seconds after which it can.
const FEWEST_SECONDS: f64 = 2.0;

/// How far the work that a round is at has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundProgress {
    /// What is being done.
    pub activity: Activity,
    /// Clients that are done with it.
    pub clients_done: u64,
    /// Clients that were asked.
    pub clients: u64,
    /// Steps that have been taken; outside training, examples that have been looked at.
    pub steps_done: u64,
    /// Steps or examples in all, about; zero where nobody here can count them.
    pub steps: u64,
    /// Seconds since this began.
    pub seconds: f64,
}

/// What a round is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Clients measure blocks or attention.
    Probing,
    /// Clients train.
    Training,
    /// The model is scored.
    Evaluating,
}

impl Activity {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probing => "probing",
            Self::Training => "training",
            Self::Evaluating => "evaluating",
        }
    }
}

impl RoundProgress {
    /// The time that the rest of this work will take, if all steps take as long as those so far; nothing
    /// before some have been taken, and where they cannot be counted.
    pub fn left(&self) -> Option<Duration> {
        let Self { steps_done, steps, seconds, .. } = *self;
        if steps == 0 || steps_done < FEWEST_STEPS.min(steps) || seconds < FEWEST_SECONDS {
            return None;
        }
        let rest = steps.saturating_sub(steps_done) as f64;
        Duration::try_from_secs_f64(seconds / steps_done as f64 * rest).ok()
    }

    /// How far the steps are, in words: `step 120/400`, `evaluating 30/90 examples`.
    pub fn counted(&self) -> Option<String> {
        let Self { activity, steps_done, steps, .. } = *self;
        if steps == 0 {
            return None;
        }
        let done = steps_done.min(steps);
        match activity {
            Activity::Training => Some(format!("step {done}/{steps}")),
            Activity::Probing | Activity::Evaluating => {
                Some(format!("{} {done}/{steps} examples", activity.name()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(steps_done: u64, seconds: f64) -> RoundProgress {
        let activity = Activity::Training;
        RoundProgress { activity, clients_done: 0, clients: 2, steps_done, steps: 40, seconds }
    }

    #[test]
    fn the_time_left_is_told_once_some_steps_were_taken() {
        assert_eq!(progress(0, 10.0).left(), None);
        assert_eq!(progress(2, 10.0).left(), None);
        assert_eq!(progress(10, 1.0).left(), None);
        assert_eq!(progress(10, 5.0).left(), Some(Duration::from_secs(15)));
        assert_eq!(progress(41, 5.0).left(), Some(Duration::ZERO));
        let uncounted = RoundProgress { steps: 0, ..progress(0, 9.0) };
        assert_eq!((uncounted.left(), uncounted.counted()), (None, None));
        assert_eq!(progress(41, 5.0).counted().as_deref(), Some("step 40/40"));
    }
}
