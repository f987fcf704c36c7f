//! A run on a terminal: notes and warnings on stderr, a bar or a line a round, and Ctrl-C.

use std::cell::RefCell;
use std::sync::Arc;

use fedra::listener::{Listener, Rounds};
use fedra_client::Observer;
use fedra_engine::{ParamValues, RoundReport};

use crate::console;
use crate::interrupt;
use crate::progress::{Progress, Voice};

/// Shows a run to whoever started it.
pub struct Terminal {
    /// What rounds are called instead of by their method.
    name: Option<String>,
    voice: Voice,
    progress: RefCell<Option<Progress>>,
}

impl Terminal {
    /// Nothing shown yet.
    pub fn new(voice: Voice) -> Self {
        Self { name: None, voice, progress: RefCell::new(None) }
    }

    /// The same for one of several runs of a command.
    pub fn named(name: &str, voice: Voice) -> Self {
        Self { name: Some(name.to_owned()), ..Self::new(voice) }
    }
}

impl Listener for Terminal {
    fn note(&self, line: &str) {
        if self.voice == Voice::Lively {
            console::say(line);
        }
    }

    fn warn(&self, line: &str) {
        console::say(line);
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        let label = self.name.as_deref().unwrap_or(rounds.label);
        let progress = Progress::new(&Rounds { label, ..*rounds }, self.voice);
        let observer = progress.observer();
        self.progress.replace(Some(progress));
        observer
    }

    fn round(&self, report: &RoundReport) {
        if let Some(progress) = self.progress.borrow_mut().as_mut() {
            progress.round(report);
        }
    }

    fn model(&self, _completed: u32, _model: &ParamValues) {}

    fn end(&self) {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
    }

    fn stops(&self) -> bool {
        interrupt::interrupted()
    }
}
