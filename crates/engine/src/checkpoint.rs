//! Everything a run needs to go on, in one file that is there whole or not at all.
//!
//! The file is written beside its place and moved into it, so a run that dies at any moment leaves
//! the last complete round behind. It is written and read section by section: wherever a fleet keeps
//! a thousand clients' states, one of them at a time is in memory on its way to the disk or back.
//! Parameters are stored as payloads: what reads them is the decoder that hostile bytes go through,
//! hence a torn or edited checkpoint is refused, not loaded.
//!
//! ```text
//! "FDCK" version   { u64 length, bytes } for each section   CRC-32
//! sections: notes as JSON; the model; first, second and variate of the server;
//!           then personal, correction and residual of each client in the notes;
//!           then the attention that some of them remember
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;
use fedra_plan::{Digest, Round};
use fedra_privacy::Head;
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, ParamValues, decode, encode};
use serde::{Deserialize, Serialize};

use crate::client_state::{AttentionMemory, ClientState};
use crate::difference::{self, Difference};
use crate::durable::Replacing;
use crate::error::EngineError;
use crate::fleet::Fleet;
use crate::history::ServerHistory;
use crate::log_mark::LogMark;
use crate::privacy::Account;
use crate::sections::Sections;
use crate::selection::Memory;
use crate::server::ServerState;
use crate::state::State;
use crate::state_store::StateHandle;
use crate::versions::ClientVersions;

const FILE: &str = "checkpoint.fedra";
const UNFINISHED: &str = "checkpoint.fedra.part";
const MAGIC: &[u8] = b"FDCK\x02";
/// The first section that is a client's: before it come the notes, the model and the server's three.
const FIRST_CLIENT: usize = 5;

#[derive(Serialize, Deserialize)]
struct Notes {
    layout: Digest,
    seed: u64,
    round: Round,
    /// As text: what was written is compared, so no float has to survive a parser.
    recipe: String,
    versions: ClientVersions,
    history: ServerHistory,
    selection: Memory,
    /// The log of reports that belongs to this round.
    log: LogMark,
    /// Where the ledger of a private run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ledger: Option<Head>,
    clients: Vec<ClientId>,
    /// Those who remember attention.
    watching: Vec<ClientId>,
}

/// Writes the state of a state and its clients.
pub(crate) fn save(state: &State, fleet: &dyn Fleet, directory: &Path) -> Result<(), EngineError> {
    let kept = fleet.states();
    let watching: Vec<&StateHandle> =
        kept.iter().filter(|kept| kept.remembers_attention()).collect();
    let notes = Notes {
        layout: state.layout.digest(),
        seed: state.seed.0,
        round: state.round,
        recipe: recipe_text(state, directory)?,
        versions: state.versions.clone(),
        history: state.history.clone(),
        selection: state.memory.clone(),
        log: state.log,
        ledger: state.account.as_ref().map(Account::head),
        clients: kept.iter().map(StateHandle::client).collect(),
        watching: watching.iter().map(|kept| kept.client()).collect(),
    };
    let notes =
        serde_json::to_vec(&notes).map_err(|error| unusable(directory, error.to_string()))?;
    let header = Header::download(Kind::Values, Encoding::F32, state.round);
    let pack = |tensors: &ParamValues| encode(&state.layout, &header, tensors, None);

    let mut file = Unfinished::create(directory)?;
    file.put(&notes)?;
    let ServerState { first, second, variate } = &state.server;
    for tensors in [&state.model, first, second, variate] {
        file.put(&pack(tensors)?)?;
    }
    for kept in &kept {
        let state = kept.state()?;
        for tensors in [&state.personal, &state.correction, &state.residual] {
            file.put(&pack(tensors)?)?;
        }
    }
    for kept in watching {
        let AttentionMemory { first, last } = &kept.state()?.attention;
        file.put(&numbers(first))?;
        file.put(&numbers(last))?;
    }
    file.finish()
}

/// A checkpoint that is one of this recipe, layout and seed.
pub(crate) struct Loaded {
    /// The server's state as it was.
    pub(crate) state: State,
    sections: Sections,
    clients: Vec<ClientId>,
    watching: Vec<ClientId>,
}

/// Reads back all but the clients' states; `None` when the directory has no checkpoint.
pub(crate) fn load(state: &State, directory: &Path) -> Result<Option<Loaded>, EngineError> {
    let path = directory.join(FILE);
    let Some(sections) = Sections::open(&path, MAGIC)? else {
        return Ok(None);
    };
    let notes: Notes = serde_json::from_slice(&sections.read(0)?)
        .map_err(|error| sections.refuse(error.to_string()))?;
    let expected = state.layout.digest();
    if notes.layout != expected {
        return Err(EngineError::OtherModel { found: notes.layout, expected });
    }
    if notes.seed != state.seed.0 {
        let (found, expected) = (notes.seed, state.seed.0);
        let reason = format!("`seed` is {found} there and {expected} in the experiment");
        return Err(sections.refuse(reason));
    }
    let recipe = recipe_text(state, &path)?;
    if notes.recipe != recipe {
        return Err(sections.refuse(other_recipe(&notes.recipe, &recipe)));
    }
    let Notes { round, clients, watching, .. } = notes;
    let expected = FIRST_CLIENT + 3 * clients.len() + 2 * watching.len();
    if sections.len() != expected {
        let found = sections.len();
        return Err(sections.refuse(format!("it has {found} sections: expected {expected}")));
    }
    if watching.iter().any(|client| !clients.contains(client)) {
        return Err(sections.refuse("it has attention of an unknown client"));
    }
    let mut loaded = Loaded { state: state.clone(), sections, clients, watching };
    loaded.state.round = round;
    let model = loaded.tensors(1)?;
    if model.len() != state.layout.len() {
        return Err(loaded.sections.refuse("its model is not whole"));
    }
    let (first, second, variate) = (loaded.tensors(2)?, loaded.tensors(3)?, loaded.tensors(4)?);
    let found = &mut loaded.state;
    (found.model, found.server) = (model, ServerState { first, second, variate });
    (found.versions, found.history, found.memory) =
        (notes.versions, notes.history, notes.selection);
    found.log = notes.log;
    if let (Some(account), Some(head)) = (&mut found.account, notes.ledger) {
        account.resume(head)?;
    }
    Ok(Some(loaded))
}

/// Where the ledger ended when the checkpoint in a directory was written; `None` when there is no checkpoint, or
/// no ledger.
pub(crate) fn ledger_head(directory: &Path) -> Result<Option<Head>, EngineError> {
    /// The part of the notes that is asked for.
    #[derive(Deserialize)]
    struct Ended {
        #[serde(default)]
        ledger: Option<Head>,
    }
    let Some(sections) = Sections::open(&directory.join(FILE), MAGIC)? else { return Ok(None) };
    let notes = serde_json::from_slice::<Ended>(&sections.read(0)?);
    Ok(notes.map_err(|error| sections.refuse(error.to_string()))?.ledger)
}

impl Loaded {
    /// What the clients kept, read one after another.
    pub(crate) fn states(
        &self,
    ) -> impl Iterator<Item = Result<Arc<ClientState>, EngineError>> + use<'_> {
        (0..self.clients.len()).map(|place| self.state(place).map(Arc::new))
    }

    fn state(&self, place: usize) -> Result<ClientState, EngineError> {
        let (client, first) = (self.clients[place], FIRST_CLIENT + 3 * place);
        let patterns = FIRST_CLIENT + 3 * self.clients.len();
        let attention = match self.watching.iter().position(|watching| *watching == client) {
            None => AttentionMemory::default(),
            Some(watching) => AttentionMemory {
                first: self.pattern(patterns + 2 * watching)?,
                last: self.pattern(patterns + 2 * watching + 1)?,
            },
        };
        let (personal, correction, residual) =
            (self.tensors(first)?, self.tensors(first + 1)?, self.tensors(first + 2)?);
        Ok(ClientState { client, personal, correction, residual, attention })
    }

    fn tensors(&self, section: usize) -> Result<ParamValues, EngineError> {
        let expectation = Expectation {
            layout: &self.state.layout,
            kind: Kind::Values,
            encoding: Encoding::F32,
            round: self.state.round,
            client: ClientId::SERVER,
            scope: None,
        };
        let (_, tensors) = decode(&self.sections.read(section)?, &expectation)
            .map_err(|error| self.sections.refuse(error.to_string()))?;
        Ok(tensors)
    }

    fn pattern(&self, section: usize) -> Result<Arc<[f32]>, EngineError> {
        let numbers = read_numbers(&self.sections.read(section)?);
        numbers.ok_or_else(|| self.sections.refuse("a client's attention is cut short"))
    }
}

fn recipe_text(state: &State, path: &Path) -> Result<String, EngineError> {
    serde_json::to_string(&state.recipe).map_err(|error| unusable(path, error.to_string()))
}

/// Which setting differs between the recipe of a checkpoint and that of the experiment.
fn other_recipe(held: &str, expected: &str) -> String {
    let [held, expected] =
        [held, expected].map(|text| serde_json::from_str(text).unwrap_or_default());
    match difference::between(&held, &expected) {
        Some(Difference { key, left, right }) => {
            format!("`{key}` is {left} there and {right} in the experiment")
        }
        // The same values in another order of words: another version wrote it.
        None => "its recipe is written by another version of fedra".to_owned(),
    }
}

fn numbers(pattern: &[f32]) -> Vec<u8> {
    pattern.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn read_numbers(section: &[u8]) -> Option<Arc<[f32]>> {
    let (numbers, rest) = section.as_chunks::<4>();
    rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

/// A checkpoint on its way to the disk, beside its place.
struct Unfinished {
    path: PathBuf,
    file: Replacing,
    checksum: Hasher,
}

impl Unfinished {
    fn create(directory: &Path) -> Result<Self, EngineError> {
        fs::create_dir_all(directory)
            .map_err(|error| EngineError::disk("creating", directory, error))?;
        let path = directory.join(FILE);
        let file =
            Replacing::begin(&path).map_err(|error| EngineError::disk("writing", &path, error))?;
        let mut unfinished = Self { path, file, checksum: Hasher::new() };
        unfinished.write(MAGIC)?;
        Ok(unfinished)
    }

    fn put(&mut self, section: &[u8]) -> Result<(), EngineError> {
        self.write(&(section.len() as u64).to_le_bytes())?;
        self.write(section)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        self.checksum.update(bytes);
        self.file.write_all(bytes).map_err(|error| EngineError::disk("writing", &self.path, error))
    }

    /// Takes the place of the old one; a crash leaves one of the two.
    fn finish(mut self) -> Result<(), EngineError> {
        let sum = self.checksum.finalize().to_le_bytes();
        let finished = self.file.write_all(&sum).and_then(|()| self.file.finish());
        finished.map_err(|error| EngineError::disk("writing", &self.path, error))
    }
}

/// Removes what a process that was killed left of a checkpoint: it may be as large as a whole one.
pub(crate) fn discard_unfinished(directory: &Path) {
    // What cannot be removed is written over.
    let _absent = fs::remove_file(directory.join(UNFINISHED));
}

fn unusable(path: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Checkpoint { path: path.display().to_string(), reason: reason.into() }
}
