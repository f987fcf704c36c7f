//! Those who follow a run from outside: what is said on the way goes to them, and they may ask it
//! to stop.
//!
//! The library prints nothing. Whoever starts a run hands over a [`Listener`]: a terminal draws a bar,
//! a service writes a log, a test keeps the reports, and [`Silent`] does nothing at all.

use std::sync::Arc;

use fedra_client::Observer;
use fedra_data::{Preparing, Work};
use fedra_engine::{
    Arrival, ClientInfo, EngineError, ParamValues, RoundProgress, RoundReport, Sink,
};
use fedra_plan::Round;

use crate::config::Experiment;
use crate::error::Result;

/// Follows a run. It is asked and told on the thread that runs the rounds.
pub trait Listener {
    /// Something that a person should know before the rounds begin, in one line or a few.
    fn note(&self, line: &str);

    /// Something that went another way than was asked for.
    fn warn(&self, line: &str);

    /// How far the preparation of rows is: it is told often, and before anything else.
    fn preparing(&self, step: &Preparing);

    /// The preparation of rows is over, whether or not it came to its end.
    fn prepared(&self);

    /// Rounds are about to begin; the observer that is returned is told about clients at work, on
    /// whatever threads they work.
    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer>;

    /// A round is complete.
    fn round(&self, report: &RoundReport);

    /// The shared model after so many rounds: what the server holds and sends out next.
    fn model(&self, completed: u32, model: &ParamValues);

    /// The rounds that began last are over.
    fn end(&self);

    /// Whether to stop; it is asked between two rounds, and while rows are prepared, when nothing is left
    /// yet. Within a round its observer is asked, between two steps: what is left are complete rounds
    /// either way.
    fn stops(&self) -> bool;
}

/// Prepares rows as an experiment asks, while somebody listens.
pub(crate) fn followed<T>(
    experiment: &Experiment,
    listener: &dyn Listener,
    prepare: impl FnOnce(&Work<'_>) -> Result<T>,
) -> Result<T> {
    let follow = |step: Preparing| {
        listener.preparing(&step);
        !listener.stops()
    };
    let outcome = prepare(&Work::on(experiment.draft.threads, &follow));
    listener.prepared();
    outcome
}

/// Rounds that are about to begin.
#[derive(Clone, Copy, Debug)]
pub struct Rounds<'a> {
    /// What they are called, in a word or two: the method, or a branch of a pilot.
    pub label: &'a str,
    /// What they are for, in a sentence, where one command has several such.
    pub title: Option<&'a str>,
    /// Rounds that are complete already.
    pub done: u32,
    /// Rounds in all.
    pub rounds: u32,
    /// Clients of the federation, by number.
    pub clients: &'a [ClientInfo],
    /// Clients that take part in a round, about: a cohort may be drawn.
    pub cohort: u64,
    /// What is finished before the run stops.
    pub finishes: Finishes,
}

/// What is finished before a run stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finishes {
    /// The step that is on: the round can be done again, to the same bits.
    Step,
    /// The round that is on: done again it would release something anew, and be counted twice.
    Round,
}

/// Hears nothing and never stops a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Listener for Silent {
    fn note(&self, _line: &str) {}

    fn warn(&self, _line: &str) {}

    fn preparing(&self, _step: &Preparing) {}

    fn prepared(&self) {}

    fn begin(&self, _rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        Arc::new(fedra_client::Silent)
    }

    fn round(&self, _report: &RoundReport) {}

    fn model(&self, _completed: u32, _model: &ParamValues) {}

    fn end(&self) {}

    fn stops(&self) -> bool {
        false
    }
}

/// A listener as one of the engine's sinks.
pub(crate) struct Heard<'a>(pub &'a dyn Listener);

impl Sink for Heard<'_> {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.0.round(report);
        Ok(())
    }
}

/// Passes on all but the wish to stop within a round.
pub(crate) struct ToTheEnd(pub Arc<dyn Observer>);

impl Observer for ToTheEnd {
    fn started(&self, client: &ClientInfo, round: Round) {
        self.0.started(client, round);
    }

    fn finished(&self, client: &ClientInfo, round: Round, arrival: &Arrival) {
        self.0.finished(client, round, arrival);
    }

    fn progressed(&self, progress: &RoundProgress) {
        self.0.progressed(progress);
    }

    fn stops(&self) -> bool {
        false
    }
}
