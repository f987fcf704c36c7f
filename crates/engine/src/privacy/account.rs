//! The ledger of a private run, kept on disk.
//!
//! Every release is announced to it before it happens; a round that would pass the budget does not begin.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use fedra_privacy::{Event, Guarantee, Head, Ledger, PrivacyError, Replayed, Spent, Unit};
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::EngineError;
use crate::privacy::private_steps::{LayerNoise, StepNoise};
use crate::storage::sections::Sections;

/// A ledger and the file that holds it: every release is on disk before it happens.
#[derive(Clone, Debug)]
pub struct Account {
    ledger: Ledger,
    /// Where its lines go before anything is released; a simulation may have none.
    file: Option<PathBuf>,
    /// Whether the file holds all of it so far.
    written: bool,
}

/// What is spent after a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyReport {
    /// Whose presence is hidden.
    pub unit: Unit,
    /// Epsilon of everything released so far, this round included; infinite (null in a file) where
    /// something was released without a bound.
    #[serde(deserialize_with = "bound")]
    pub epsilon: f64,
    /// The chance with which the guarantee may fail.
    pub delta: f64,
    /// Signal and noise of what was released in this round, layer by layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerNoise>,
    /// The clip norm of the next round, where it adapts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
}

impl Account {
    pub(crate) fn new(guarantee: Guarantee) -> Result<Self, EngineError> {
        Ok(Self { ledger: Ledger::new(guarantee)?, file: None, written: false })
    }

    /// Continues with the ledger in a file, or begins it. Both files are there from the start, so a ledger
    /// without its end may have been shortened: it is refused.
    pub fn open(guarantee: Guarantee, file: PathBuf) -> Result<Self, EngineError> {
        let mut account = Self::new(guarantee)?;
        if file.exists() && end_of(&file)?.is_none() {
            let end = file.with_extension(END);
            let reason = format!(
                "{} is missing: without it, removed entries cannot be detected",
                end.display()
            );
            return Err(failure(&file, reason));
        }
        account.write_to(file);
        account.resume_unfinished()?;
        if !account.written {
            // The guarantee is there before anything is released under it.
            account.announce(&[])?;
        }
        Ok(account)
    }

    /// Keeps it in a file. Its end is kept in another beside it, so that a ledger that was shortened is
    /// noticed, beyond the last checkpoint too.
    pub(crate) fn write_to(&mut self, file: PathBuf) {
        self.file = Some(file);
        self.written = false;
    }

    pub(crate) const fn head(&self) -> Head {
        self.ledger.head()
    }

    /// The guarantee, and what was released.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Continues with the ledger that a run without a checkpoint left, if it left one: what it announced
    /// may have been seen.
    pub(crate) fn resume_unfinished(&mut self) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let begun = file.exists() || end_of(file)?.is_some();
        if begun { self.resume(self.ledger.head()) } else { Ok(()) }
    }

    /// Continues with the ledger in its file, which has to lead past the checkpoint's head and past its own end.
    pub(crate) fn resume(&mut self, head: Head) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let heads: Vec<Head> = end_of(file)?.into_iter().chain([head]).collect();
        let guarantee = *self.ledger.guarantee();
        let read = Ledger::replay(open(file)?, Some(guarantee), &heads);
        let Replayed { ledger, is_torn } = read.map_err(|error| failure(file, error))?;
        // A torn last line is written over.
        (self.ledger, self.written) = (ledger, !is_torn);
        Ok(())
    }

    /// Reads the ledger in a file, to look at it; refuses one that was edited, and one that does not lead past
    /// the end that was written down beside it, or, without that, past the checkpoint beside it.
    pub fn read_ledger(file: &Path) -> Result<Ledger, EngineError> {
        // The end first: a run that is at work writes its ledger before its end.
        let end = match end_of(file)? {
            None => Sections::ledger_head(&file.with_file_name(""))?,
            end => end,
        };
        Ledger::read(open(file)?, end).map_err(|error| failure(file, error))
    }

    /// Announces releases; refuses them where the guarantee would be broken.
    pub fn announce(&mut self, events: &[Event]) -> Result<(), EngineError> {
        let lines = self.ledger.append(events)?;
        let Some(file) = &self.file else { return Ok(()) };
        // What is cut short by a full disk is written over by the next attempt.
        let whole = !std::mem::take(&mut self.written);
        let written = if whole {
            durable::write(file, self.ledger.to_lines()?.as_bytes())
        } else {
            durable::append(file, lines.as_bytes())
        };
        written.map_err(|error| EngineError::disk(WRITING, file, error))?;
        self.written = true;
        let end = file.with_extension(END);
        let text = serde_json::to_vec(&self.head());
        let text = text.map_err(|error| failure(&end, error))?;
        durable::write(&end, &text).map_err(|error| EngineError::disk(WRITING, &end, error))
    }

    pub(crate) fn report(&self, noise: StepNoise) -> Result<PrivacyReport, EngineError> {
        let Guarantee { unit, delta, .. } = *self.ledger.guarantee();
        let Spent { pld, .. } = self.ledger.spent()?;
        let StepNoise { layers, clip } = noise;
        Ok(PrivacyReport { unit, epsilon: pld, delta: delta.get(), layers, clip })
    }
}

/// What is being done to a ledger that cannot be written.
const WRITING: &str = "privacy: writing";
/// The ending of the file that tells where a ledger ends.
const END: &str = "end";

/// Where a ledger ended when it was last written; `None` where nobody noted it.
fn end_of(ledger: &Path) -> Result<Option<Head>, EngineError> {
    let end = ledger.with_extension(END);
    match std::fs::read(&end) {
        Ok(bytes) => {
            let read = serde_json::from_slice::<Head>(&bytes);
            read.map(Some).map_err(|error| failure(&end, error))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure(&end, error)),
    }
}

/// A number, or null, which is how JSON writes one without a bound.
fn bound<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

fn open(file: &Path) -> Result<BufReader<File>, EngineError> {
    let opened = File::open(file).map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            let reason = "found no ledger of this private run, expected the one that it wrote: what was \
                          released is not known without it";
            return failure(file, reason);
        }
        failure(file, error)
    });
    opened.map(BufReader::new)
}

fn failure(file: &Path, reason: impl Display) -> EngineError {
    EngineError::Privacy { reason: format!("{}: {reason}", file.display()) }
}

impl From<PrivacyError> for EngineError {
    fn from(error: PrivacyError) -> Self {
        let reason = error.to_string();
        if matches!(error, PrivacyError::OverBudget { .. }) {
            Self::OverBudget { reason }
        } else {
            Self::Privacy { reason }
        }
    }
}
