//! Answers that arrived before their turn: a few in memory, the others in a scratch file.
//!
//! Updates are folded in client order, because float addition is not associative. If the first client
//! is slow, everybody else's update has to wait for it; the server's memory does not grow with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedra_wire::{ClientId, Opened};

use crate::error::EngineError;
use crate::storage::scratch::{Record, Scratch};

/// Most answers that wait in memory where there is a place on disk for the others.
pub(crate) const IN_MEMORY: usize = 4;

/// An answer that passed every check: its change, and what came beside it.
pub(crate) struct Answer {
    pub(crate) change: Opened,
    pub(crate) correction: Option<Opened>,
}

pub(crate) enum Early {
    Held(Answer),
    Filed { change: Record, correction: Option<Record> },
}

/// Answers by client.
pub(crate) struct Waiting {
    path: Option<PathBuf>,
    scratch: Option<Arc<Scratch>>,
    answers: BTreeMap<ClientId, Early>,
}

impl Waiting {
    /// Nobody yet. Without a path all wait in memory.
    pub(crate) fn new(path: Option<&Path>) -> Self {
        let path = path.map(Path::to_owned);
        Self { path, scratch: None, answers: BTreeMap::new() }
    }

    /// Those that wait in memory.
    pub(crate) fn held(&self) -> usize {
        self.answers.values().filter(|early| matches!(early, Early::Held(_))).count()
    }

    /// Lets an answer wait.
    pub(crate) fn put(&mut self, client: ClientId, answer: Answer) -> Result<(), EngineError> {
        let place = match &self.path {
            Some(path) if self.held() >= IN_MEMORY => {
                let failed = |error| EngineError::disk("storing an early update", path, error);
                let scratch = match &self.scratch {
                    Some(scratch) => scratch.clone(),
                    None => Arc::new(Scratch::create(path).map_err(failed)?),
                };
                let write = |bytes: &[u8]| Record::write(&scratch, bytes).map_err(failed);
                let change = write(&answer.change.bytes)?;
                let correction = answer.correction.as_ref().map(|one| write(&one.bytes));
                let correction = correction.transpose()?;
                self.scratch = Some(scratch);
                Early::Filed { change, correction }
            }
            Some(_) | None => Early::Held(answer),
        };
        self.answers.insert(client, place);
        Ok(())
    }

    /// Lets go of an answer; says whether it was there.
    pub(crate) fn remove(&mut self, client: ClientId) -> bool {
        self.answers.remove(&client).is_some()
    }

    /// The first answer, unless one from an earlier client is still to come.
    pub(crate) fn next(&mut self, unsettled: Option<ClientId>) -> Option<(ClientId, Early)> {
        let entry = self.answers.first_entry()?;
        if unsettled.is_some_and(|unsettled| unsettled < *entry.key()) {
            return None;
        }
        Some(entry.remove_entry())
    }
}

#[cfg(test)]
mod tests {
    use fedra_plan::{Layer, Layout, ParamId, Part, Role, Round, Shape};
    use fedra_wire::{Encoding, Expectation, Header, Kind, ParamValues, encode};

    use super::*;

    fn answer(client: u32) -> (Answer, Vec<u8>) {
        let bias = ParamId::new(Layer::Head, Role::Classifier, Part::Bias);
        let layout = Layout::new([(bias, Shape::vector(20_000))]).unwrap();
        let (round, encoding, client) = (Round(0), Encoding::F32, ClientId(client));
        let kind = Kind::Change;
        let header = Header { kind, encoding, round, client, examples: 1, steps: 1, loss: None };
        let change = ParamValues::from_iter([(bias, vec![client.0 as f32; 20_000])]);
        let bytes = encode(&layout, &header, &change, None).unwrap();
        let expected = Expectation { layout: &layout, kind, encoding, round, client, scope: None };
        let open = || fedra_wire::open(bytes.clone(), &expected).unwrap();
        let correction = client.0.is_multiple_of(2).then(open);
        (Answer { change: open(), correction }, bytes)
    }

    #[test]
    fn few_wait_in_memory_and_all_come_out_in_order_as_they_went_in() {
        let folder = tempfile::tempdir().unwrap();
        for path in [None, Some(folder.path().join("early"))] {
            let mut waiting = Waiting::new(path.as_deref());
            for client in (1..20).rev() {
                waiting.put(ClientId(client), answer(client).0).unwrap();
            }
            assert_eq!(waiting.held(), if path.is_some() { IN_MEMORY } else { 19 });
            assert!(waiting.next(Some(ClientId(0))).is_none(), "client 0 comes first");
            for client in 1..20 {
                let (found, early) = waiting.next(Some(ClientId(100))).unwrap();
                let (change, correction) = match early {
                    Early::Held(Answer { change, correction }) => {
                        (change.bytes, correction.map(|one| one.bytes))
                    }
                    Early::Filed { change, correction } => {
                        let read = |record: Record| record.bytes().unwrap();
                        (read(change), correction.map(read))
                    }
                };
                let expected = answer(client).1;
                assert_eq!((found, &change), (ClientId(client), &expected));
                assert_eq!(correction, client.is_multiple_of(2).then_some(expected));
            }
            assert!(waiting.next(None).is_none());
            assert_eq!(waiting.held(), 0);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let mut waiting = Waiting::new(Some(Path::new("/dev/null/early")));
        for client in 0..IN_MEMORY as u32 {
            waiting.put(ClientId(client), answer(client).0).unwrap();
        }
        let refused = waiting.put(ClientId(9), answer(9).0).unwrap_err().to_string();
        assert!(refused.contains("/dev/null/early"), "{refused}");
    }
}
