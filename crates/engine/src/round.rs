//! One round, top to bottom; each step is a file of its own beside this one.
//!
//! ```text
//! turn       what enters its second stage is forgotten by optimisers           round/stage.rs
//! attempts   draw a cohort, bring it up to date (round/sync.rs), probe, plan,
//!            train and gather: until enough come                               round/attempt.rs
//! apply      the mean change becomes the next model                            round/apply.rs
//! evaluate   the model is scored where that is due                             round/evaluate.rs
//! ```

mod aggregator;
mod apply;
mod attempt;
mod attention;
mod choose;
mod downloads;
mod evaluate;
mod own_choices;
mod protect;
mod stage;
mod survey;
mod sync;

use std::time::Instant;

use self::attempt::Attempt;
use crate::error::EngineError;
use crate::protocol::fleet::Fleet;
use crate::report::RoundReport;
use crate::report::phases::Stopwatch;
use crate::state::State;

impl State {
    /// One round; `None` when it was told to stop between two attempts at it.
    pub(crate) fn advance(
        &mut self,
        fleet: &mut dyn Fleet,
        is_last: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<RoundReport>, EngineError> {
        let begun = Instant::now();
        let round = self.round;
        self.turn(fleet)?;
        self.announce_round()?;
        let Some((mut attempt, failed_attempts)) = self.attempts(fleet, stop)? else {
            return Ok(None);
        };
        let mut watch = Stopwatch::start();
        self.note_arrivals(&attempt.gathered.arrived);
        attempt.gathered.mean = self.own_change(std::mem::take(&mut attempt.gathered.mean))?;
        self.apply(&attempt.gathered, fleet.clients())?;
        self.note_drift(attempt.gathered.drift.as_ref());
        self.note_noise(&attempt.gathered.noise);
        self.round = round.next();
        attempt.phases.apply += watch.lap();
        let (scores, evaluation) = self.evaluate(fleet, is_last)?;
        attempt.phases.evaluate = watch.lap();

        let (mut bytes, mut effort) = (attempt.bytes, attempt.effort);
        for failed in &failed_attempts {
            bytes += failed.bytes;
            effort += failed.effort;
        }
        bytes.evaluation += evaluation;
        let (failed, refused) = attempt.absences();
        self.note_losses(fleet.clients(), (&attempt.gathered.arrived, &failed), &scores);
        let (cohort, blocks) = (attempt.ids(), attempt.blocks());
        let Attempt { selection, attention, gathered, phases, .. } = attempt;
        let privacy = self.account.as_ref().map(|account| account.report(gathered.noise));
        Ok(Some(RoundReport {
            round,
            cohort,
            failed,
            refused,
            failed_attempts,
            blocks,
            changed: gathered.mean.elements() as u64,
            arrived: gathered.arrived,
            loss: gathered.loss,
            bytes,
            effort,
            seconds: begun.elapsed().as_secs_f64(),
            slowest: gathered.slowest,
            phases: Some(phases),
            most_updates_held: gathered.most_held,
            drift: attention::joined(gathered.drift, attention),
            adapters: gathered.adapters,
            norms: gathered.norms,
            memory: self.side_memory(gathered.memory),
            privacy: privacy.transpose()?,
            stage: self.stage_report(),
            scores,
            selection,
        }))
    }
}
