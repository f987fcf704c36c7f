//! Scoring the model where that is due.

use crate::error::EngineError;
use crate::fleet::{Adaptation, EvaluationRequest, EvaluationSet, Fleet};
use crate::report::SetScores;
use crate::state::State;
use crate::work::LocalRule;

impl State {
    /// Scores the model if it is time to.
    pub(super) fn evaluate(
        &mut self,
        fleet: &mut dyn Fleet,
        is_last: bool,
    ) -> Result<Vec<SetScores>, EngineError> {
        let evaluation = self.recipe.evaluation.clone();
        if !is_last && !self.round.0.is_multiple_of(evaluation.every.max(1)) {
            return Ok(Vec::new());
        }
        let mut scores = Vec::new();
        for on in &evaluation.on {
            scores.extend(self.examine(fleet, *on)?);
        }
        self.history.note_scores(&mut scores);
        Ok(scores)
    }

    /// Scores the model as it is now; `None` when nobody has such examples.
    pub(crate) fn examine(
        &self,
        fleet: &mut dyn Fleet,
        on: EvaluationSet,
    ) -> Result<Option<SetScores>, EngineError> {
        let adapt = match &self.recipe.adapt {
            None => None,
            Some(adapt) => {
                let mut work = self.recipe.work.at(self.round);
                (work.epochs, work.local) = (adapt.epochs, LocalRule::Plain);
                Some(Adaptation { learns: adapt.learns.select(&self.layout)?, work })
            }
        };
        let each = fleet.evaluate(&EvaluationRequest {
            model: &self.model,
            on,
            adapt: adapt.as_ref(),
            round: self.round,
            seed: self.seed.of("adapt").with(u64::from(self.round.0)),
        })?;
        let examples: u64 = each.iter().map(|one| one.examples).sum();
        Ok((examples > 0).then(|| SetScores::new(on, each)))
    }
}
