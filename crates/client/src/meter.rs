//! Counts the steps of the work that is on, and asks between two of them whether to stop.
//!
//! All clients of a fleet count on one meter, from whatever threads they work on, so what is told is how far
//! they are together. Counting changes no number: a meter is only ever added to, and what it says goes to
//! an [`Observer`] and nowhere else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fedra_engine::{Activity, Arrival, ClientInfo, RoundProgress};
use fedra_plan::Round;

use crate::error::{ClientError, Result};

/// Is told what happens, on whatever thread it happens, so that somebody can draw it; and is asked whether
/// to go on.
pub trait Observer: Send + Sync {
    /// A client has begun to train.
    fn started(&self, client: &ClientInfo, round: Round);

    /// A client has ended, with an update or without; its arrival still waits for its turn.
    fn finished(&self, client: &ClientInfo, round: Round, arrival: &Arrival);

    /// A step was taken, some examples were looked at, or a client is done. This is told often: whoever
    /// writes it down does so now and then.
    fn progressed(&self, progress: &RoundProgress);

    /// Whether to stop: asked between two steps. What is on is then given up, and as if it had not begun.
    /// Who has said so once says so again.
    fn stops(&self) -> bool;
}

/// Draws nothing, and never stops anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, _progress: &RoundProgress) {}

    fn stops(&self) -> bool {
        false
    }
}

/// Counts one piece of work: the training, the probing or the scoring of a round.
pub struct Meter<'a> {
    observer: &'a dyn Observer,
    /// What is counted; nothing where work is part of other work.
    counter: Option<Counter>,
}

struct Counter {
    activity: Activity,
    clients: u64,
    steps: u64,
    begun: Instant,
    clients_done: AtomicU64,
    steps_done: AtomicU64,
}

impl<'a> Meter<'a> {
    /// Begins work of so many clients and so many steps, or examples, of all of them together.
    pub fn new(
        observer: &'a dyn Observer,
        activity: Activity,
        (clients, steps): (u64, u64),
    ) -> Self {
        let (clients_done, steps_done) = (AtomicU64::new(0), AtomicU64::new(0));
        let begun = Instant::now();
        let counter = Counter { activity, clients, steps, begun, clients_done, steps_done };
        let meter = Self { observer, counter: Some(counter) };
        meter.tell();
        meter
    }

    /// Counts nothing and never stops.
    pub fn unwatched() -> Meter<'static> {
        Meter { observer: &Silent, counter: None }
    }

    /// Counts nothing and stops when this one does: for work within the work that is counted.
    pub(crate) fn uncounted(&self) -> Meter<'a> {
        Meter { observer: self.observer, counter: None }
    }

    /// Whether to go on; an error where somebody asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.observer.stops() { Err(ClientError::Stopped) } else { Ok(()) }
    }

    /// So many more steps or examples are done.
    pub(crate) fn advance(&self, steps: u64) {
        if let Some(counter) = &self.counter {
            counter.steps_done.fetch_add(steps, Ordering::Relaxed);
            self.tell();
        }
    }

    /// One more client is done.
    pub(crate) fn client_done(&self) {
        if let Some(counter) = &self.counter {
            counter.clients_done.fetch_add(1, Ordering::Relaxed);
            self.tell();
        }
    }

    fn tell(&self) {
        let Some(counter) = &self.counter else { return };
        self.observer.progressed(&RoundProgress {
            activity: counter.activity,
            clients_done: counter.clients_done.load(Ordering::Relaxed),
            clients: counter.clients,
            steps_done: counter.steps_done.load(Ordering::Relaxed),
            steps: counter.steps,
            seconds: counter.begun.elapsed().as_secs_f64(),
        });
    }
}
