//! What the server has to remember about its sites beside the checkpoint: one small file in the run's
//! folder.
//!
//! A site keeps its own state, and which of its answers counted is the server's to say. A checkpoint
//! says how many rounds are complete; this file says whose answers are in them. It is written before
//! the checkpoint, so it may know of answers to a round that was never completed: those are dropped
//! when the run resumes ([`Journal::back_to`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fedra_plan::{Round, Scope};
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::NetError;
use crate::protocol::{Counts, DataDigest, Forget, Hello, StateVersion};

/// The file.
pub const FILE: &str = "sites.json";

/// Everything there is to remember.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// The run.
    pub run: u64,
    /// By name: what each site has, and which of its answers count.
    pub sites: BTreeMap<String, Entry>,
    /// What was to be forgotten, in order.
    pub forgets: Vec<Forget>,
    #[serde(skip)]
    path: PathBuf,
    /// Whether rounds have begun, in this process or in one before.
    #[serde(skip)]
    pub begun: bool,
}

/// One site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it has.
    pub counts: Counts,
    /// Which examples these are; absent in a file of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataDigest>,
    /// Its last answer of an earlier round, and those of the last round, in order.
    pub labels: Vec<StateVersion>,
    /// Its processes, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<u64>,
}

/// How the examples of a site that joins are beside those that it took part with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// It did not take part yet, or nobody noted with what.
    None,
    /// The same.
    Same,
    /// Others.
    Other,
    /// It has a new secret because it has a new state folder, so nobody can say.
    OtherSecret,
}

impl Journal {
    /// The one in a folder, or a new one for a run with this number.
    pub fn open(folder: &Path, run: u64) -> Result<Self, NetError> {
        let path = folder.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { run, path, ..Self::default() });
            }
            Err(error) => return Err(NetError::file("reading", &path)(error)),
        };
        let read = serde_json::from_slice::<Self>(&text);
        let unread = |error| NetError::meaning("sites.json of the run's folder", error);
        let journal = read.map_err(unread)?;
        // It is written when rounds begin, not before.
        Ok(Self { path, begun: true, ..journal })
    }

    /// Writes it, whole or not at all.
    pub fn save(&self) -> Result<(), NetError> {
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let written = text.and_then(|text| durable::write(&self.path, &text));
        written.map_err(NetError::file("writing", &self.path))
    }

    /// Drops what was answered after so many complete rounds.
    pub fn back_to(&mut self, completed: Round) {
        for entry in self.sites.values_mut() {
            entry.labels.retain(|label| label.round < completed);
        }
    }

    /// Whether a site has the examples with which it took part before.
    pub fn comparison(&self, hello: &Hello) -> Comparison {
        let entry = self.sites.get(&hello.client).filter(|entry| !entry.labels.is_empty());
        match entry.and_then(|entry| entry.data) {
            None => Comparison::None,
            Some(data) if data == hello.data => Comparison::Same,
            Some(data) if data.secret == hello.data.secret => Comparison::Other,
            Some(_) => Comparison::OtherSecret,
        }
    }

    /// Whether a site comes with another state folder than that with which rounds have begun.
    pub fn has_new_folder(&self, hello: &Hello) -> bool {
        let data = self.sites.get(&hello.client).and_then(|entry| entry.data);
        self.begun && data.is_some_and(|data| data.secret != hello.data.secret)
    }

    /// Notes an answer that counts.
    pub fn note_answer(&mut self, name: &str, label: StateVersion) {
        let labels = &mut self.sites.entry(name.to_owned()).or_default().labels;
        let earlier = labels.iter().rfind(|old| old.round < label.round).copied();
        labels.retain(|old| old.round == label.round);
        labels.splice(..0, earlier);
        labels.push(label);
    }

    /// Takes back a site's answers in a round; what counts now.
    pub fn revoke(&mut self, name: &str, round: Round) -> Option<StateVersion> {
        let entry = self.sites.get_mut(name)?;
        entry.labels.retain(|label| label.round < round);
        entry.labels.last().copied()
    }

    /// The last answer of a site that counts.
    pub fn label(&self, name: &str) -> Option<StateVersion> {
        self.sites.get(name)?.labels.last().copied()
    }

    /// Notes a part that is to be forgotten.
    pub fn note_forget(&mut self, part: &Scope) -> Forget {
        let number = self.forgets.last().map_or(1, |last| last.number + 1);
        let forget = Forget { number, part: part.clone() };
        self.forgets.push(forget.clone());
        forget
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::RoundStage;

    #[test]
    fn a_round_that_was_not_completed_is_dropped_and_the_one_before_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let label = |round, step| StateVersion { round: Round(round), step };
        let mut journal = Journal::open(folder.path(), 7).unwrap();
        let digest = |text: &str| fedra_plan::Digest::of(text.as_bytes());
        let data = DataDigest { secret: digest("secret"), examples: digest("rows") };
        journal.sites.entry("a".to_owned()).or_default().data = Some(data);
        for (round, step) in [
            (0, RoundStage::Trained),
            (1, RoundStage::Looked),
            (1, RoundStage::Trained),
            (2, RoundStage::Looked),
        ] {
            journal.note_answer("a", label(round, step));
        }
        assert_eq!(
            journal.sites["a"].labels,
            [label(1, RoundStage::Trained), label(2, RoundStage::Looked)],
            "one earlier answer is enough"
        );
        journal.note_answer("a", label(2, RoundStage::Trained));
        journal.save().unwrap();
        let mut read = Journal::open(folder.path(), 8).unwrap();
        assert!(read.begun && !journal.begun, "what is written has begun");
        journal.begun = true;
        assert_eq!(read, journal, "the run's number is the file's");
        assert_eq!(read.label("a"), Some(label(2, RoundStage::Trained)));
        read.back_to(Round(2));
        assert_eq!(read.label("a"), Some(label(1, RoundStage::Trained)));
        assert_eq!(journal.revoke("a", Round(2)), Some(label(1, RoundStage::Trained)));
        assert_eq!(journal.label("b"), None);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Journal::open(folder.path(), 1).is_err());
    }
}
