//! Where a simulation keeps what its clients keep between rounds: in memory, or in a scratch file.
//!
//! A state is put in whole and taken out whole, so the two forms give the same bits and only the
//! clients that are at work hold theirs in memory. What comes out is a handle, [`StateHandle`]: whoever has
//! one still gets that state after the client has moved on, hence a moment of a federation is a list
//! of handles and copies nothing.
//!
//! ```text
//! put(state) --> StateHandle { client, Held(state) | Filed { record, contents } } --> state()
//! ```
//!
//! The file holds numbers and nothing else; which parameters they belong to stays in memory. So it
//! cannot be read by anyone but its writer, and the checkpoint remains the only truth about a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fedra_plan::{ByteCount, ParamId, Scope};
use fedra_wire::{ClientId, ParamValues, from_bytes, to_bytes};

use crate::error::EngineError;
use crate::storage::client_state::{AttentionMemory, ClientState};
use crate::storage::optimiser_state::OptimiserState;
use crate::storage::scratch::{PAGE, Record, Scratch};

/// The states of all clients of a simulation: in memory, unless there is a scratch file.
#[derive(Debug, Default)]
pub struct StateStore {
    scratch: Option<Arc<Scratch>>,
    kept: Mutex<BTreeMap<ClientId, StateHandle>>,
    /// What clients kept before the answers that may still be revoked; `None` for nothing.
    before: Mutex<BTreeMap<ClientId, Option<StateHandle>>>,
}

impl StateStore {
    /// An empty one in a scratch file at this place, which is gone when the last state is.
    pub fn on_disk(path: &Path) -> Result<Self, EngineError> {
        let scratch = Scratch::create(path)
            .map_err(|error| EngineError::disk("creating the scratch file", path, error))?;
        Ok(Self { scratch: Some(Arc::new(scratch)), ..Self::default() })
    }

    /// What a state of this size takes on disk.
    pub const fn on_disk_bytes(state: ByteCount) -> ByteCount {
        ByteCount(state.0.next_multiple_of(PAGE as u64))
    }

    /// What a client keeps.
    pub fn state_of(&self, client: ClientId) -> Result<Arc<ClientState>, EngineError> {
        // The lock is not held while a file is read.
        let kept = self.all().get(&client).cloned();
        kept.map_or_else(|| Ok(Arc::new(ClientState::empty(client))), |kept| kept.state())
    }

    /// What a client keeps as far as it is the client's own parameters; the rest may be left out.
    pub fn own_of(&self, client: ClientId) -> Result<Arc<ClientState>, EngineError> {
        let kept = self.all().get(&client).filter(|kept| kept.has_parameters()).cloned();
        kept.map_or_else(|| Ok(Arc::new(ClientState::empty(client))), |kept| kept.state())
    }

    /// Replaces what a client keeps. On an error it is what it was.
    pub fn put(&self, state: Arc<ClientState>) -> Result<(), EngineError> {
        let client = state.client;
        if state.is_empty() {
            self.all().remove(&client);
            return Ok(());
        }
        let kept = match &self.scratch {
            None => StateHandle::new(state),
            Some(scratch) => StateHandle {
                client,
                place: Place::Filed(Arc::new(Filed::write(scratch, &state)?)),
            },
        };
        self.all().insert(client, kept);
        Ok(())
    }

    /// Replaces what a client keeps in a way that [`StateStore::revoke`] can take back.
    pub fn put_revocable(&self, state: Arc<ClientState>) -> Result<(), EngineError> {
        let before = self.all().get(&state.client).cloned();
        self.before().entry(state.client).or_insert(before);
        self.put(state)
    }

    /// Makes these clients keep what they did before the first answer that can be revoked.
    pub fn revoke(&self, clients: &[ClientId]) {
        let mut before = self.before();
        let mut kept = self.all();
        for client in clients {
            match before.remove(client) {
                Some(Some(handle)) => drop(kept.insert(*client, handle)),
                Some(None) => drop(kept.remove(client)),
                None => {}
            }
        }
    }

    /// From now on nothing that was put before can be revoked.
    pub fn settle(&self) {
        self.before().clear();
    }

    /// Forgets the corrections and residuals of these parameters, at all clients.
    pub fn forget(&self, part: &Scope) -> Result<(), EngineError> {
        self.settle();
        for kept in self.states() {
            let mut state = Arc::unwrap_or_clone(kept.state()?);
            if state.forget(part) {
                self.put(Arc::new(state))?;
            }
        }
        Ok(())
    }

    /// Replaces everything, one state after another. After an error some are old and some are new.
    pub fn replace(
        &self,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        self.settle();
        let mut seen = BTreeSet::new();
        for state in states {
            let state = state?;
            seen.insert(state.client);
            self.put(state)?;
        }
        self.all().retain(|client, _| seen.contains(client));
        Ok(())
    }

    /// All there is, in client order.
    pub fn states(&self) -> Vec<StateHandle> {
        self.all().values().cloned().collect()
    }

    fn before(&self) -> MutexGuard<'_, BTreeMap<ClientId, Option<StateHandle>>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<ClientId, StateHandle>> {
        // An entry is replaced as a whole, so a panic elsewhere cannot leave half of one.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's state at one moment, wherever it lies.
#[derive(Clone, Debug)]
pub struct StateHandle {
    /// Whose it is.
    pub client: ClientId,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Held(Arc<ClientState>),
    Filed(Arc<Filed>),
}

impl StateHandle {
    /// One in memory.
    pub fn new(state: Arc<ClientState>) -> Self {
        Self { client: state.client, place: Place::Held(state) }
    }

    /// The state itself.
    pub fn state(&self) -> Result<Arc<ClientState>, EngineError> {
        match &self.place {
            Place::Held(state) => Ok(state.clone()),
            Place::Filed(filed) => filed.read(self.client).map(Arc::new),
        }
    }

    /// Whether it holds parameters of the client's own. Reads nothing.
    fn has_parameters(&self) -> bool {
        match &self.place {
            Place::Held(state) => !state.personal.is_empty(),
            Place::Filed(filed) => !filed.tensors[0].is_empty(),
        }
    }
}

/// A state in a scratch file: numbers there, and what they belong to here.
#[derive(Debug)]
struct Filed {
    record: Record,
    /// The parameters of personal, correction, residual and both moments, and how many numbers each has.
    tensors: [Vec<(ParamId, usize)>; 5],
    /// Steps of the optimiser.
    steps: BTreeMap<ParamId, u32>,
    /// How many numbers each pattern of attention has.
    patterns: [usize; 2],
}

impl Filed {
    fn write(scratch: &Arc<Scratch>, state: &ClientState) -> Result<Self, EngineError> {
        let ClientState { client: _, personal, correction, residual, moments, attention } = state;
        let tensors = [personal, correction, residual, &moments.first, &moments.second];
        let patterns = [&*attention.first, &*attention.last];
        let values = tensors.into_iter().flat_map(ParamValues::iter).map(|(_, numbers)| numbers);
        let mut written = Vec::new();
        values.chain(patterns).for_each(|numbers| written.extend_from_slice(&to_bytes(numbers)));
        let record = Record::write(scratch, &written).map_err(|error| {
            let bytes = ByteCount(written.len() as u64);
            let doing = format!("writing client state ({bytes}) to");
            EngineError::disk(doing, &scratch.path, error)
        })?;
        let list = |tensors: &ParamValues| tensors.iter().map(|(id, n)| (id, n.len())).collect();
        let (tensors, steps) = (tensors.map(list), moments.steps.clone());
        Ok(Self { record, tensors, steps, patterns: patterns.map(<[f32]>::len) })
    }

    fn read(&self, client: ClientId) -> Result<ClientState, EngineError> {
        let bytes = self.record.bytes().map_err(|error| {
            let doing = "reading client state from";
            EngineError::disk(doing, &self.record.scratch.path, error)
        })?;
        let mut rest = &bytes[..];
        let mut numbers = |count: usize| {
            let (these, others) = rest.split_at(count * size_of::<f32>());
            rest = others;
            from_bytes(these).expect("whole numbers, as they were written")
        };
        let mut tensors = |list: &Vec<(ParamId, usize)>| -> ParamValues {
            list.iter().map(|(id, count)| (*id, numbers(*count))).collect()
        };
        let [personal, correction, residual, mean, square] =
            self.tensors.each_ref().map(&mut tensors);
        let moments = OptimiserState { steps: self.steps.clone(), first: mean, second: square };
        let [first, last] = self.patterns.map(|count| numbers(count).into());
        let attention = AttentionMemory { first, last };
        Ok(ClientState { client, personal, correction, residual, moments, attention })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{Layer, Part, Role};

    const ID: ParamId = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);

    fn state(client: u32, value: f32) -> Arc<ClientState> {
        let mut state = ClientState::empty(ClientId(client));
        state.correction.insert(ID, vec![value; 100_000]);
        state.residual.insert(ID, vec![-value, f32::NAN]);
        state.moments.steps.insert(ID, client);
        state.moments.first.insert(ID, vec![value; 3]);
        state.moments.second.insert(ID, vec![value * value; 3]);
        state.attention = AttentionMemory { first: vec![value; 3].into(), last: Arc::new([]) };
        Arc::new(state)
    }

    fn forms(folder: &Path) -> [StateStore; 2] {
        [StateStore::default(), StateStore::on_disk(&folder.join("scratch")).unwrap()]
    }

    #[test]
    fn both_forms_give_back_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        for state_store in forms(folder.path()) {
            for client in [7, 2, 9] {
                state_store.put(state(client, client as f32)).unwrap();
            }
            state_store.put(state(2, 0.5)).unwrap();
            state_store.put(Arc::new(ClientState::empty(ClientId(9)))).unwrap();
            let kept: Vec<u32> = state_store.states().iter().map(|kept| kept.client.0).collect();
            assert_eq!(kept, [2, 7]);
            let found = state_store.state_of(ClientId(2)).unwrap();
            // `Debug` shows every number and, unlike `==`, takes NaN for itself.
            assert_eq!(format!("{found:?}"), format!("{:?}", state(2, 0.5)));
            assert!(state_store.state_of(ClientId(9)).unwrap().is_empty());
            state_store.forget(&Scope::empty()).unwrap();
            assert!(!state_store.state_of(ClientId(2)).unwrap().correction.is_empty());
            state_store.forget(&[ID].into_iter().collect()).unwrap();
            let found = state_store.state_of(ClientId(2)).unwrap();
            assert!(found.correction.is_empty() && found.residual.is_empty());
            assert!(found.moments.is_empty() && found.moments.first.is_empty());
        }
    }

    #[test]
    fn who_wants_a_clients_parameters_reads_no_state_without_any() {
        let folder = tempfile::tempdir().unwrap();
        for state_store in forms(folder.path()) {
            state_store.put(state(1, 1.0)).unwrap();
            assert!(state_store.own_of(ClientId(1)).unwrap().is_empty());
            let mut own = (*state(1, 1.0)).clone();
            own.personal.insert(ID, vec![2.5]);
            state_store.put(Arc::new(own)).unwrap();
            assert_eq!(state_store.own_of(ClientId(1)).unwrap().personal.get(ID), Some(&[2.5][..]));
            assert!(state_store.own_of(ClientId(2)).unwrap().is_empty());
        }
    }

    #[test]
    fn a_handle_outlives_what_replaces_its_state() {
        let folder = tempfile::tempdir().unwrap();
        for state_store in forms(folder.path()) {
            state_store.put(state(1, 1.0)).unwrap();
            state_store.put(state(2, 2.0)).unwrap();
            let before = state_store.states();
            state_store.put(state(1, 3.0)).unwrap();
            state_store.replace(&mut [Ok(state(1, 4.0))].into_iter()).unwrap();
            assert_eq!(state_store.states().len(), 1);
            let value = |kept: &StateHandle| kept.state().unwrap().correction.get(ID).unwrap()[0];
            assert_eq!(before.iter().map(value).collect::<Vec<_>>(), [1.0, 2.0]);
            state_store.replace(&mut before.iter().map(StateHandle::state)).unwrap();
            assert_eq!(state_store.states().iter().map(value).collect::<Vec<_>>(), [1.0, 2.0]);
        }
    }

    #[test]
    fn a_scratch_file_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("no such folder").join("scratch");
        let error = StateStore::on_disk(&nowhere).unwrap_err().to_string();
        assert!(
            error.starts_with("creating the scratch file ") && error.contains("no such folder")
        );
    }
}
