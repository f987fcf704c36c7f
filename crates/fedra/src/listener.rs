//! Those who follow a run from outside: what is said on the way goes to them, and they may ask it
//! to stop.
//!
//! The library prints nothing. The caller of a run passes a [`Listener`]: a terminal draws a bar,
//! a service writes a log, a test keeps the reports, and [`Silent`] does nothing at all.

use std::sync::Arc;

use fedra_client::Observer;
use fedra_data::{Preparing, Work};
use fedra_engine::{
    Arrival, ClientInfo, EngineError, ParamValues, RoundProgress, RoundReport, Sink,
};
use fedra_plan::{Layout, Round};

use crate::config::Experiment;
use crate::error::Result;

/// Follows a run. It is called on the thread that runs the rounds. Whoever passes on to another listener forwards all
/// three: what is left out is ignored.
pub trait Listener {
    /// Something happened.
    fn hear(&self, _event: Event<'_>) {}

    /// Rounds are about to begin; the observer that is returned is told about clients at work, on
    /// whatever threads they work.
    fn begin(&self, _rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        Arc::new(fedra_client::Silent)
    }

    /// Whether to stop; it is asked between two rounds, and while rows are prepared, when nothing is left
    /// yet. Within a round its observer is asked, between two steps: what is left are complete rounds
    /// either way.
    fn stops(&self) -> bool {
        false
    }
}

/// What a run reports.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Something that a person should know before the rounds begin, in one line or a few.
    Note(&'a str),
    /// Something that went another way than was asked for.
    Warning(&'a str),
    /// How far the preparation of rows is: often, and before anything else.
    Preparing(Preparing),
    /// The preparation of rows has ended, complete or not.
    Prepared,
    /// A round is complete.
    Round(&'a RoundReport),
    /// The shared model after this number of rounds: what the server has and sends next.
    Model(u32, &'a ParamValues),
    /// The rounds that began last have ended.
    End,
}

impl dyn Listener + '_ {
    pub(crate) fn note(&self, line: &str) {
        self.hear(Event::Note(line));
    }

    pub(crate) fn warn(&self, line: &str) {
        self.hear(Event::Warning(line));
    }
}

/// Prepares rows as an experiment asks, with a listener.
pub(crate) fn followed<T>(
    experiment: &Experiment,
    listener: &dyn Listener,
    prepare: impl FnOnce(&Work<'_>) -> Result<T>,
) -> Result<T> {
    let follow = |step: Preparing| {
        listener.hear(Event::Preparing(step));
        !listener.stops()
    };
    let outcome = prepare(&Work::on(experiment.raw.threads, &follow));
    listener.hear(Event::Prepared);
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
    /// Number of rounds.
    pub rounds: u32,
    /// Clients of the federation, by number.
    pub clients: &'a [ClientInfo],
    /// Clients that take part in a round, about: a cohort may be drawn.
    pub cohort: u64,
    /// What is finished before the run stops.
    pub finishes: Finishes,
    /// The parameters of the model, with their shapes.
    pub layout: &'a Layout,
}

/// What is finished before a run stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finishes {
    /// The step that is on: the round can be done again, to the same bits.
    Step,
    /// The current round: repeating it would be a new release and would be counted twice.
    Round,
}

/// Ignores all events and never stops a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Listener for Silent {}

/// A listener as one of the engine's sinks.
pub(crate) struct Heard<'a>(pub &'a dyn Listener);

impl Sink for Heard<'_> {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.0.hear(Event::Round(report));
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
