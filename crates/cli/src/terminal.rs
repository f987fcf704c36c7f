//! A run on a terminal: notes and warnings on stderr, a bar or a line a round, and Ctrl-C.
//!
//! While rows are prepared there is nothing to finish, so Ctrl-C keeps its usual meaning until rounds begin.

use std::cell::RefCell;
use std::sync::Arc;

use fedra::listener::{Event, Listener, Rounds};
use fedra_client::Observer;

use crate::console;
use crate::flags::Verbosity;
use crate::interrupt;
use crate::preparation::Preparation;
use crate::progress::Progress;

/// Shows a run to whoever started it.
pub struct Terminal {
    /// What rounds are called instead of by their method.
    name: Option<String>,
    voice: Verbosity,
    preparation: RefCell<Option<Preparation>>,
    progress: RefCell<Option<Progress>>,
}

impl Terminal {
    /// Nothing shown yet.
    pub fn new(voice: Verbosity) -> Self {
        let (preparation, progress) = (RefCell::new(None), RefCell::new(None));
        Self { name: None, voice, preparation, progress }
    }

    /// The same for one of several runs of a command.
    pub fn named(name: &str, voice: Verbosity) -> Self {
        Self { name: Some(name.to_owned()), ..Self::new(voice) }
    }
}

impl Listener for Terminal {
    fn hear(&self, event: Event<'_>) {
        match event {
            Event::Note(line) => self.voice.say(line),
            Event::Warning(line) => console::say(line),
            Event::Preparing(step) if self.voice == Verbosity::Lively => {
                let mut preparation = self.preparation.borrow_mut();
                preparation.get_or_insert_with(|| Preparation::new(step)).step(step);
            }
            Event::Prepared => {
                if let Some(preparation) = self.preparation.take() {
                    preparation.line.remove();
                }
            }
            Event::Round(report) => {
                if let Some(progress) = self.progress.borrow_mut().as_mut() {
                    progress.round(report);
                }
            }
            Event::End => {
                if let Some(progress) = self.progress.take() {
                    progress.finish();
                }
            }
            Event::Preparing(_) | Event::Model(..) => {}
        }
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        let label = self.name.as_deref().unwrap_or(rounds.label);
        let progress = Progress::new(&Rounds { label, ..*rounds }, self.voice);
        let observer = progress.observer();
        self.progress.replace(Some(progress));
        observer
    }

    fn stops(&self) -> bool {
        match *self.progress.borrow() {
            Some(_) => interrupt::interrupted(),
            None => interrupt::told(),
        }
    }
}
