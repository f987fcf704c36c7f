//! The second stage in the course of a run: what it takes out of a round, and what a round tells it.

use std::collections::BTreeMap;

use fedra_plan::{Round, Rule, Scope};

use crate::aggregate::drift::DriftReport;
use crate::error::EngineError;
use crate::protocol::fleet::Fleet;
use crate::recipe::stage::{Begins, Stage, StageReport, Treatment};
use crate::state::State;
use crate::work::Damped;

/// The second stage in the course of a federation.
impl State {
    /// The rule in force: the recipe's, less what is frozen by now.
    pub(crate) fn rule(&self) -> Rule {
        self.recipe.rule_in(self.round, &self.history.stage)
    }

    /// What learns at a lower rate in this round.
    pub(crate) fn damped(&self) -> Result<Option<Damped>, EngineError> {
        let Some(Stage { treatment: Treatment::Damped(factor), .. }) = self.recipe.stage else {
            return Ok(None);
        };
        let part = self.treated(self.round)?;
        Ok((!part.is_empty()).then_some(Damped { part, factor }))
    }

    /// Clears what was remembered about whatever enters its second stage in this round.
    pub(crate) fn turn(&mut self, fleet: &mut dyn Fleet) -> Result<(), EngineError> {
        let Some(stage) = &self.recipe.stage else {
            return Ok(());
        };
        let now = self.treated(self.round)?;
        let before = match self.round.0.checked_sub(1) {
            Some(last) => self.treated(Round(last))?,
            None => Scope::empty(),
        };
        let entering = now - before;
        let forgotten = match stage.treatment {
            Treatment::Frozen => entering,
            Treatment::Reset if !entering.is_empty() => Scope::everything(&self.layout),
            Treatment::Damped(_) | Treatment::Reset => Scope::empty(),
        };
        if forgotten.is_empty() {
            return Ok(());
        }
        self.server.forget(&forgotten);
        fleet.forget(&forgotten)
    }

    /// Learns from what a round showed.
    pub(crate) fn note_drift(&mut self, drift: Option<&DriftReport>) {
        let (Some(stage), Some(drift)) = (&self.recipe.stage, drift) else {
            return;
        };
        self.history.stage.note_drift(stage.begins, self.round, drift);
        let since = &mut self.history.stage.since;
        let blocks = usize::from(self.layout.blocks());
        if since.since.is_none() && blocks > 0 && since.blocks.len() == blocks {
            since.since = since.blocks.values().max().copied();
        }
    }

    /// How far the second stage has come, for the report of a round.
    pub(crate) fn stage_report(&self) -> Option<StageReport> {
        let stage = self.recipe.stage.as_ref()?;
        Some(match stage.begins {
            Begins::At(at) => StageReport { since: Some(at), blocks: BTreeMap::new() },
            Begins::Share(_) | Begins::Evidence(_) | Begins::ByBlock(_) => {
                self.history.stage.since.clone()
            }
        })
    }

    fn treated(&self, round: Round) -> Result<Scope, EngineError> {
        let Some(stage) = &self.recipe.stage else {
            return Ok(Scope::empty());
        };
        Ok(stage.treated(&self.history.stage, round).select(&self.layout)?)
    }
}
