//! Work on a thread of its own, followed from the thread that called.
//!
//! Python handles signals, draws and calls back on the calling thread, and the interpreter's lock is free while that
//! thread waits. So a Ctrl-C is noticed while a step is on, callbacks have their usual place in a traceback, and threads
//! of a program run side by side.
//!
//! ```text
//! calling thread   waits, calls the follower, asks for signals  --stop-->  the run's observer, between two steps
//! run's thread     fedra::run  --messages-->
//! ```
//!
//! Behind each round the run may wait until its callbacks have returned: an exception there ends it with that round
//! complete.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, scope};
use std::time::Duration;

use fedra::client::Observer;
use fedra::data::{Preparing, Stage};
use fedra::listener::{Event, Finishes, Listener, Rounds};
use fedra::process::locked;
use fedra::study::compare::{CompareListener, RunEvent};
use fedra::text::headline::round_line;
use fedra_engine::{Arrival, ClientInfo, ParamValues, RoundProgress, RoundReport};
use fedra_plan::{Layout, Round};
use pyo3::prelude::*;

use crate::errors::raised;
use crate::parameters::Parameters;
use crate::values::python_of;

/// How often signals are asked for and progress is shown.
const WAIT: Duration = Duration::from_millis(50);
/// Stack of the run's thread: as much as a main thread has.
const STACK: usize = 8 << 20;

/// Does some work that a listener follows, and hands what it reports to a follower: an object with the methods of
/// `fedra.progress.Follower`.
pub fn followed<T: Send>(
    py: Python<'_>,
    follower: &Bound<'_, PyAny>,
    work: impl FnOnce(&dyn Listener) -> fedra::Result<T> + Send,
) -> PyResult<T> {
    in_background(py, follower, |forward| work(forward))
}

/// The same for the runs of a comparison.
pub fn followed_runs<T: Send>(
    py: Python<'_>,
    follower: &Bound<'_, PyAny>,
    work: impl FnOnce(&dyn CompareListener) -> fedra::Result<T> + Send,
) -> PyResult<T> {
    in_background(py, follower, |forward| work(forward))
}

fn in_background<T: Send>(
    py: Python<'_>,
    follower: &Bound<'_, PyAny>,
    work: impl FnOnce(&Forward) -> fedra::Result<T> + Send,
) -> PyResult<T> {
    let waits = follower.getattr("waits")?.extract()?;
    let shared = Arc::new(Shared::default());
    let (messages, received) = channel();
    let outcome = scope(|scope| {
        let forward = Forward::new(messages, Arc::clone(&shared), waits);
        let thread = Builder::new().name("fedra".to_owned()).stack_size(STACK);
        let worker = thread.spawn_scoped(scope, move || work(&forward))?;
        let received = Mutex::new(received);
        let served = serve(py, follower, &received, &shared);
        drop(received);
        let outcome = py.detach(|| worker.join());
        served.map(|()| outcome)
    });
    match outcome? {
        Ok(done) => done.map_err(|error| raised(py, &error)),
        Err(panic) => resume_unwind(panic),
    }
}

/// What both threads see.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    latest: Mutex<Option<Latest>>,
}

/// How far the work is; only the latest is of interest.
#[derive(Clone, Copy, PartialEq)]
enum Latest {
    Preparing(Preparing),
    Within(RoundProgress),
}

/// What the run reports, each once.
enum Message {
    Note(String),
    Warning(String),
    Prepared,
    Begin {
        label: String,
        title: Option<String>,
        done: u32,
        rounds: u32,
        cohort: u64,
        finishes: Finishes,
    },
    Round(Box<RoundReport>, u32),
    /// A round is complete; the run waits until this is dropped, and hands out its model meanwhile.
    Complete(Sender<Sender<Parameters>>),
    End,
    /// What happened to one of several runs.
    Run(&'static str, String, String),
}

/// Passes on what a run reports.
struct Forward {
    messages: Sender<Message>,
    shared: Arc<Shared>,
    /// Whether the run waits behind each round.
    waits: bool,
    layout: RefCell<Option<Arc<Layout>>>,
    /// Rounds of the run that is on.
    rounds: Cell<u32>,
}

impl Forward {
    const fn new(messages: Sender<Message>, shared: Arc<Shared>, waits: bool) -> Self {
        Self { messages, shared, waits, layout: RefCell::new(None), rounds: Cell::new(0) }
    }

    /// Whoever called is gone only when the whole program is.
    fn send(&self, message: Message) {
        let _gone = self.messages.send(message);
    }

    fn complete(&self, model: &ParamValues) {
        let (ask, asked) = channel::<Sender<Parameters>>();
        self.send(Message::Complete(ask));
        for reply in asked {
            if let Some(layout) = &*self.layout.borrow() {
                let _gone = reply.send(Parameters::new(model.clone(), Arc::clone(layout)));
            }
        }
    }
}

impl Listener for Forward {
    fn hear(&self, event: Event<'_>) {
        match event {
            Event::Note(line) => self.send(Message::Note(line.to_owned())),
            Event::Warning(line) => self.send(Message::Warning(line.to_owned())),
            Event::Preparing(step) => *locked(&self.shared.latest) = Some(Latest::Preparing(step)),
            Event::Prepared => self.send(Message::Prepared),
            Event::Round(report) => {
                *locked(&self.shared.latest) = None;
                self.send(Message::Round(Box::new(report.clone()), self.rounds.get()));
            }
            Event::Model(_, model) if self.waits => self.complete(model),
            Event::Model(..) => {}
            Event::End => self.send(Message::End),
        }
    }

    fn begin(&self, about: &Rounds<'_>) -> Arc<dyn Observer> {
        let Rounds { label, title, done, rounds, clients: _, cohort, finishes, layout } = *about;
        self.layout.replace(Some(Arc::new(layout.clone())));
        self.rounds.set(rounds);
        let (label, title) = (label.to_owned(), title.map(str::to_owned));
        self.send(Message::Begin { label, title, done, rounds, cohort, finishes });
        Arc::new(Watch(Arc::clone(&self.shared)))
    }

    fn stops(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

impl CompareListener for Forward {
    fn hear(&self, event: RunEvent<'_>) {
        let (what, name, told) = match event {
            RunEvent::Begin { what, complete, rounds, done } => {
                ("begin", what, format!("{complete} complete, {done} of {rounds} rounds"))
            }
            RunEvent::Round(name, told) => ("round", name, told.to_owned()),
            RunEvent::Within(name, told) => ("within", name, told.to_owned()),
            RunEvent::Complete(name, told) => ("complete", name, told.to_owned()),
            RunEvent::Failed(name, told) => ("failed", name, told.to_owned()),
            RunEvent::End => ("end", "", String::new()),
        };
        self.send(Message::Run(what, name.to_owned(), told));
    }

    fn preparation(&self) -> &dyn Listener {
        self
    }

    fn stops(&self) -> bool {
        Listener::stops(self)
    }
}

/// Follows the steps of a round, from any thread.
struct Watch(Arc<Shared>);

impl Observer for Watch {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, progress: &RoundProgress) {
        *locked(&self.0.latest) = Some(Latest::Within(*progress));
    }

    fn stops(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }
}

/// Hands messages to the follower until the run is over. The first exception asks the run to stop, and is what comes
/// of it.
fn serve(
    py: Python<'_>,
    follower: &Bound<'_, PyAny>,
    messages: &Mutex<Receiver<Message>>,
    shared: &Shared,
) -> PyResult<()> {
    let (mut thrown, mut shown) = (None, None);
    let mut report = None;
    loop {
        let heard = match py.detach(|| locked(messages).recv_timeout(WAIT)) {
            Err(RecvTimeoutError::Disconnected) => break,
            // A round without its callbacks would be told too late.
            Ok(_) | Err(RecvTimeoutError::Timeout) if thrown.is_some() => Ok(()),
            Ok(message) => told(follower, message, &mut report),
            Err(RecvTimeoutError::Timeout) => {
                let latest = *locked(&shared.latest);
                let is_new = latest != shown;
                shown = latest;
                latest.filter(|_| is_new).map_or(Ok(()), |latest| show(follower, latest))
            }
        };
        if let Err(error) = heard.and_then(|()| py.check_signals()) {
            shared.stop.store(true, Ordering::Relaxed);
            thrown.get_or_insert(error);
        }
    }
    thrown.map_or(Ok(()), Err)
}

fn told<'py>(
    follower: &Bound<'py, PyAny>,
    message: Message,
    report: &mut Option<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let py = follower.py();
    match message {
        Message::Note(line) => follower.call_method1("note", (line,)),
        Message::Warning(line) => follower.call_method1("warning", (line,)),
        Message::Prepared => follower.call_method0("prepared"),
        Message::Begin { label, title, done, rounds, cohort, finishes } => {
            let whole_rounds = finishes == Finishes::Round;
            follower.call_method1("begin", (label, title, done, rounds, cohort, whole_rounds))
        }
        Message::Round(round, rounds) => {
            let line = round_line(&round, rounds);
            let round = report.insert(python_of(py, &round)?);
            follower.call_method1("round", (&*round, line))
        }
        Message::Complete(ask) => {
            let handle = Bound::new(py, RoundModel(Mutex::new(Some(ask))))?;
            let round = report.take();
            let called = follower.call_method1("complete", (round, &handle));
            // The run goes on, and its model with it.
            drop(locked(&handle.get().0).take());
            called
        }
        Message::End => follower.call_method0("end"),
        Message::Run(what, name, told) => follower.call_method1("run", (what, name, told)),
    }
    .map(drop)
}

fn show(follower: &Bound<'_, PyAny>, latest: Latest) -> PyResult<()> {
    match latest {
        Latest::Preparing(Preparing { stage, done, total }) => {
            let stage = match stage {
                Stage::Reading => "reading rows",
                Stage::GrowingVocabulary => "growing a vocabulary",
                Stage::Tokenising => "tokenising",
            };
            follower.call_method1("preparing", (stage, done, total))
        }
        Latest::Within(progress) => {
            let RoundProgress { activity, clients_done, clients, steps_done, steps, seconds } =
                progress;
            let within = (activity.name(), clients_done, clients, steps_done, steps, seconds);
            follower.call_method1("within", within)
        }
    }
    .map(drop)
}

/// The model behind a round, while its callbacks are on.
#[pyclass(frozen)]
pub struct RoundModel(Mutex<Option<Sender<Sender<Parameters>>>>);

#[pymethods]
impl RoundModel {
    /// The parameters; nothing once the run has gone on.
    fn parameters(&self, py: Python<'_>) -> Option<Parameters> {
        let (reply, replies) = channel();
        locked(&self.0).as_ref()?.send(reply).ok()?;
        py.detach(move || replies.recv()).ok()
    }
}
