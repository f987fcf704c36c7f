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
//!           then the five of each client in the notes
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

use crate::durable::Replacing;
use crate::error::EngineError;
use crate::privacy::account::Account;
use crate::protocol::fleet::Fleet;
use crate::recipe::difference::{self, Difference};
use crate::selection::Memory;
use crate::state::State;
use crate::state::history::ServerHistory;
use crate::state::log_mark::LogMark;
use crate::state::versions::ClientVersions;
use crate::storage::client_state::ClientState;
use crate::storage::sections::{FILE, Sections};
use fedra_wire::ServerState;

const UNFINISHED: &str = "checkpoint.fedra.part";
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
}

/// Writes the state of a state and its clients.
pub(crate) fn save(state: &State, fleet: &dyn Fleet, directory: &Path) -> Result<(), EngineError> {
    let kept = fleet.states();
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
        clients: kept.iter().map(|kept| kept.client).collect(),
    };
    let notes =
        serde_json::to_vec(&notes).map_err(|error| EngineError::checkpoint(directory, error))?;
    let header = Header::download(Kind::Values, Encoding::F32, state.round);
    let pack = |tensors: &ParamValues| encode(&state.layout, &header, tensors, None);

    let mut file = Unfinished::create(directory)?;
    file.put(&notes)?;
    let ServerState { first, second, variate } = &state.server;
    for tensors in [&state.model, first, second, variate] {
        file.put(&pack(tensors)?)?;
    }
    for kept in &kept {
        for section in kept.state()?.sections(&state.layout) {
            file.put(&section?)?;
        }
    }
    file.finish()
}

/// A checkpoint that is one of this recipe, layout and seed.
pub(crate) struct Loaded {
    /// The server's state as it was.
    pub(crate) state: State,
    sections: Sections,
    clients: Vec<ClientId>,
}

/// Reads back all but the clients' states; `None` when the directory has no checkpoint.
pub(crate) fn load(state: &State, directory: &Path) -> Result<Option<Loaded>, EngineError> {
    let Some(sections) = Sections::open(directory)? else { return Ok(None) };
    let notes: Notes = sections.notes()?;
    let expected = state.layout.digest();
    if notes.layout != expected {
        return Err(EngineError::OtherModel { found: notes.layout, expected });
    }
    if notes.seed != state.seed.0 {
        let (found, expected) = (notes.seed, state.seed.0);
        let reason = format!("`seed` is {found} there and {expected} in the experiment");
        return Err(sections.refuse(reason));
    }
    let recipe = recipe_text(state, directory)?;
    if notes.recipe != recipe {
        return Err(sections.refuse(other_recipe(&notes.recipe, &recipe)));
    }
    let Notes { round, clients, .. } = notes;
    let expected = FIRST_CLIENT + ClientState::SECTIONS * clients.len();
    if sections.spans.len() != expected {
        let found = sections.spans.len();
        return Err(sections.refuse(format!("it has {found} sections, expected {expected}")));
    }
    let mut loaded = Loaded { state: state.clone(), sections, clients };
    loaded.state.round = round;
    let model = loaded.tensors(1)?;
    if model.scope() != state.model.scope() {
        let reason = if model.len() < state.model.len() {
            "its model is incomplete"
        } else {
            "its model has parameters that are stored quantised now"
        };
        return Err(loaded.sections.refuse(reason));
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

impl Loaded {
    /// What the clients kept, read one after another.
    pub(crate) fn states(
        &self,
    ) -> impl Iterator<Item = Result<Arc<ClientState>, EngineError>> + use<'_> {
        (0..self.clients.len()).map(|place| self.state(place).map(Arc::new))
    }

    fn state(&self, place: usize) -> Result<ClientState, EngineError> {
        let mut sections: [Vec<u8>; ClientState::SECTIONS] = Default::default();
        for (number, section) in sections.iter_mut().enumerate() {
            let before = FIRST_CLIENT + ClientState::SECTIONS * place;
            *section = self.sections.read(before + number)?;
        }
        ClientState::from_sections(self.clients[place], &self.state.layout, &sections)
            .map_err(|reason| self.sections.refuse(reason))
    }

    fn tensors(&self, section: usize) -> Result<ParamValues, EngineError> {
        let header = Header::download(Kind::Values, Encoding::F32, self.state.round);
        let expected = Expectation::of(&self.state.layout, &header);
        let (_, tensors) = decode(&self.sections.read(section)?, &expected)
            .map_err(|error| self.sections.refuse(error))?;
        Ok(tensors)
    }
}

fn recipe_text(state: &State, path: &Path) -> Result<String, EngineError> {
    serde_json::to_string(&state.recipe).map_err(|error| EngineError::checkpoint(path, error))
}

/// Which setting differs between the recipe of a checkpoint and that of the experiment.
fn other_recipe(held: &str, expected: &str) -> String {
    let [held, expected] =
        [held, expected].map(|text| serde_json::from_str(text).unwrap_or_default());
    match difference::between(&held, &expected) {
        Some(Difference { key, left, right }) => {
            let why = match key.as_str() {
                "federation.rounds" => {
                    "; work.schedule spreads the rate over all rounds, so their number cannot change"
                }
                _ => "",
            };
            format!("`{key}` is {left} there and {right} in the experiment{why}")
        }
        // The same values in another order of words: another version wrote it.
        None => "another version of fedra wrote its recipe".to_owned(),
    }
}

/// A checkpoint on its way to the disk, beside its place.
struct Unfinished {
    path: PathBuf,
    file: Replacing,
    checksum: Hasher,
}

impl Unfinished {
    fn create(directory: &Path) -> Result<Self, EngineError> {
        // A folder that is gone took earlier rounds with it, and is not made again for this one.
        let path = directory.join(FILE);
        let file =
            Replacing::begin(&path).map_err(|error| EngineError::disk("writing", &path, error))?;
        let mut unfinished = Self { path, file, checksum: Hasher::new() };
        unfinished.write(Sections::MAGIC)?;
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
