//! What the server remembers beside its optimiser: the second stage and earlier scores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::number::Exact;
use crate::recipe::stage::StageState;
use crate::report::SetScores;

/// All of it; a checkpoint holds it whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerHistory {
    pub(crate) stage: StageState,
    /// Whether any client's update has ever been in the model.
    pub(crate) arrived: bool,
    swings: BTreeMap<String, ScoreVariance>,
    /// Whose last loss was no finite number, in words, and the round of it, counted from 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    diverged: BTreeMap<String, u32>,
    /// The clip norm of the next round, where it adapts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clip: Option<Exact>,
}

/// The changes of a score from one scoring to the next, summed up as Welford does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ScoreVariance {
    last: Option<Exact>,
    changes: u32,
    mean: Exact,
    squares: Exact,
}

impl ServerHistory {
    /// Takes note of whether losses of this round, counted from 1, are numbers.
    pub(crate) fn note_losses(
        &mut self,
        round: u32,
        losses: impl IntoIterator<Item = (String, bool)>,
    ) {
        for (of, is_finite) in losses {
            if is_finite {
                self.diverged.remove(&of);
            } else {
                self.diverged.insert(of, round);
            }
        }
    }

    /// Refuses to call good what ended with a loss that is no number.
    pub(crate) fn check_losses(&self) -> Result<(), EngineError> {
        match self.diverged.iter().min_by_key(|(_, round)| **round) {
            None => Ok(()),
            Some((of, round)) => Err(EngineError::LossDiverged { of: of.clone(), round: *round }),
        }
    }

    /// Takes note of scores, and writes the variance of their changes so far into them.
    pub(crate) fn note_scores(&mut self, sets: &mut [SetScores]) {
        for set in sets {
            for (name, value) in &set.mean {
                let key = format!("{:?} {name}", set.on);
                let variance = self.swings.entry(key).or_default().note(*value);
                if let Some(variance) = variance {
                    set.swing.insert(name.clone(), variance);
                }
            }
        }
    }
}

impl ScoreVariance {
    /// The variance of the changes, once there are two.
    fn note(&mut self, value: f64) -> Option<f64> {
        if let Some(Exact(last)) = self.last.replace(Exact(value)) {
            self.changes += 1;
            let change = value - last;
            let away = change - self.mean.0;
            self.mean.0 += away / f64::from(self.changes);
            self.squares.0 += away * (change - self.mean.0);
        }
        (self.changes >= 2).then(|| self.squares.0 / f64::from(self.changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rise_has_no_variance_and_a_zigzag_has() {
        let last = |values: &[f64]| {
            let mut swing = ScoreVariance::default();
            values.iter().map(|value| swing.note(*value)).last().flatten()
        };
        assert_eq!(last(&[1.0, 2.0]), None);
        assert_eq!(last(&[1.0, 2.0, 3.0, 4.0]), Some(0.0));
        // Changes 2, -2, 2, -2: mean 0, variance 4.
        assert_eq!(last(&[0.0, 2.0, 0.0, 2.0, 0.0]), Some(4.0));
    }
}
