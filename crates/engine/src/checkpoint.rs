//! Everything a run needs to go on, in one file that is there whole or not at all.
//!
//! The file is written beside its place and moved into it, so a run that dies at any moment leaves
//! the last complete round behind. It is written section by section: a thousand clients' states are
//! in memory once, in the fleet, and not a second time on their way to the disk. Tensors are stored
//! as payloads: what reads them is the decoder that hostile bytes go through, hence a torn or edited
//! checkpoint is refused, not loaded.
//!
//! ```text
//! "FDCK" version   { u64 length, bytes } for each section   CRC-32
//! sections: notes as JSON; the model; first, second and variate of the server;
//!           then personal, correction and residual of each client in the notes;
//!           then the attention that some of them remember
//! ```

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;
use fedra_plan::{Digest, Round};
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, Tensors, decode, encode};
use serde::{Deserialize, Serialize};

use crate::diary::Diary;
use crate::error::EngineError;
use crate::federation::Federation;
use crate::fleet::{ClientState, Fleet, Seen};
use crate::selection::Memory;
use crate::server::ServerState;
use crate::versions::Versions;

const FILE: &str = "checkpoint.fedra";
const UNFINISHED: &str = "checkpoint.fedra.part";
const MAGIC: &[u8] = b"FDCK\x01";

#[derive(Serialize, Deserialize)]
struct Notes {
    layout: Digest,
    seed: u64,
    round: Round,
    /// As text: what was written is compared, so no float has to survive a parser.
    recipe: String,
    versions: Versions,
    /// A checkpoint of before there was one has nothing to say.
    #[serde(default)]
    diary: Diary,
    #[serde(default)]
    selection: Memory,
    clients: Vec<ClientId>,
    /// Those who remember attention.
    #[serde(default)]
    watching: Vec<ClientId>,
}

/// Writes the state of a federation and its clients.
pub(crate) fn save(
    federation: &Federation,
    fleet: &dyn Fleet,
    directory: &Path,
) -> Result<(), EngineError> {
    let (mut clients, mut watching) = (Vec::new(), Vec::new());
    fleet.each_state(&mut |state| {
        clients.push(state.client);
        watching.extend((!state.attention.is_empty()).then_some(state.client));
        Ok(())
    })?;
    let notes = Notes {
        layout: federation.layout.digest(),
        seed: federation.seed.0,
        round: federation.round,
        recipe: recipe_text(federation, directory)?,
        versions: federation.versions.clone(),
        diary: federation.diary.clone(),
        selection: federation.memory.clone(),
        clients,
        watching,
    };
    let notes =
        serde_json::to_vec(&notes).map_err(|error| unusable(directory, error.to_string()))?;
    let header = Header::download(Kind::Values, Encoding::F32, federation.round);
    let pack = |tensors: &Tensors| encode(&federation.layout, &header, tensors, None);

    let mut file = Unfinished::create(directory)?;
    file.put(&notes)?;
    let ServerState { first, second, variate } = &federation.server;
    for tensors in [&federation.model, first, second, variate] {
        file.put(&pack(tensors)?)?;
    }
    fleet.each_state(&mut |state| {
        for tensors in [&state.personal, &state.correction, &state.residual] {
            file.put(&pack(tensors)?)?;
        }
        Ok(())
    })?;
    fleet.each_state(&mut |state| {
        if !state.attention.is_empty() {
            let Seen { first, last } = &state.attention;
            file.put(&numbers(first))?;
            file.put(&numbers(last))?;
        }
        Ok(())
    })?;
    file.finish(directory)
}

/// Reads it back into a federation of the same recipe, layout and seed; the clients' states are
/// the caller's to hand on. `None` when the directory has no checkpoint.
pub(crate) fn load(
    federation: &mut Federation,
    directory: &Path,
) -> Result<Option<Vec<ClientState>>, EngineError> {
    let path = directory.join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(disk("reading", &path, source)),
    };
    let refuse = |reason: &str| unusable(&path, reason);
    let (content, checksum) =
        bytes.split_last_chunk::<4>().ok_or_else(|| refuse("it is too short"))?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return Err(refuse("its checksum does not match its content"));
    }
    let mut rest =
        content.strip_prefix(MAGIC).ok_or_else(|| refuse("it is of another kind or version"))?;
    let mut section = || take(&mut rest).ok_or_else(|| refuse("a section is cut short"));

    let notes: Notes =
        serde_json::from_slice(section()?).map_err(|error| unusable(&path, error.to_string()))?;
    let expected = federation.layout.digest();
    if notes.layout != expected {
        return Err(EngineError::OtherModel { found: notes.layout, expected });
    }
    if notes.seed != federation.seed.0 {
        let (found, expected) = (notes.seed, federation.seed.0);
        return Err(unusable(&path, format!("its seed is {found}: expected {expected}")));
    }
    if notes.recipe != recipe_text(federation, &path)? {
        return Err(refuse("its recipe is another: expected that of this experiment"));
    }

    let expectation = Expectation {
        layout: &federation.layout,
        kind: Kind::Values,
        encoding: Encoding::F32,
        round: notes.round,
        client: ClientId::SERVER,
        scope: None,
    };
    let mut unpack = || -> Result<Tensors, EngineError> {
        let (_, tensors) =
            decode(section()?, &expectation).map_err(|error| unusable(&path, error.to_string()))?;
        Ok(tensors)
    };
    let model = unpack()?;
    if model.len() != federation.layout.len() {
        return Err(refuse("its model is not whole"));
    }
    let server = ServerState { first: unpack()?, second: unpack()?, variate: unpack()? };
    let mut states = Vec::with_capacity(notes.clients.len());
    for client in notes.clients {
        let (personal, correction, residual) = (unpack()?, unpack()?, unpack()?);
        let attention = Seen::default();
        states.push(ClientState { client, personal, correction, residual, attention });
    }
    for client in notes.watching {
        let mut pattern = || take(&mut rest).and_then(read_numbers);
        let (Some(first), Some(last)) = (pattern(), pattern()) else {
            return Err(refuse("a client's attention is cut short"));
        };
        let state = states.iter_mut().find(|state| state.client == client);
        let state = state.ok_or_else(|| refuse("it has attention of an unknown client"))?;
        state.attention = Seen { first, last };
    }
    if !rest.is_empty() {
        return Err(refuse("bytes follow its last section"));
    }
    (federation.model, federation.server) = (model, server);
    (federation.versions, federation.round) = (notes.versions, notes.round);
    federation.diary = notes.diary;
    federation.memory = notes.selection;
    Ok(Some(states))
}

fn recipe_text(federation: &Federation, path: &Path) -> Result<String, EngineError> {
    serde_json::to_string(&federation.recipe).map_err(|error| unusable(path, error.to_string()))
}

fn numbers(pattern: &[f32]) -> Vec<u8> {
    pattern.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn read_numbers(section: &[u8]) -> Option<Arc<[f32]>> {
    let (numbers, rest) = section.as_chunks::<4>();
    rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn take<'bytes>(rest: &mut &'bytes [u8]) -> Option<&'bytes [u8]> {
    let (length, after) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (section, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(section)
}

/// A checkpoint on its way to the disk, beside its place.
struct Unfinished {
    path: PathBuf,
    file: BufWriter<File>,
    checksum: Hasher,
}

impl Unfinished {
    fn create(directory: &Path) -> Result<Self, EngineError> {
        fs::create_dir_all(directory).map_err(|error| disk("creating", directory, error))?;
        let path = directory.join(UNFINISHED);
        let file = File::create(&path).map_err(|error| disk("writing", &path, error))?;
        let (file, checksum) = (BufWriter::new(file), Hasher::new());
        let mut unfinished = Self { path, file, checksum };
        unfinished.write(MAGIC)?;
        Ok(unfinished)
    }

    fn put(&mut self, section: &[u8]) -> Result<(), EngineError> {
        self.write(&(section.len() as u64).to_le_bytes())?;
        self.write(section)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        self.checksum.update(bytes);
        self.file.write_all(bytes).map_err(|error| disk("writing", &self.path, error))
    }

    /// Takes the place of the old one; a crash leaves one of the two.
    fn finish(self, directory: &Path) -> Result<(), EngineError> {
        let Self { path, mut file, checksum } = self;
        let finish = || {
            file.write_all(&checksum.finalize().to_le_bytes())?;
            file.flush()?;
            file.get_ref().sync_all()?;
            fs::rename(&path, directory.join(FILE))?;
            // The move itself has to reach the disk too.
            File::open(directory)?.sync_all()
        };
        finish().map_err(|error| disk("writing", &directory.join(FILE), error))
    }
}

fn disk(doing: &'static str, path: &Path, source: std::io::Error) -> EngineError {
    EngineError::Disk { doing, path: path.display().to_string(), source }
}

fn unusable(path: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Checkpoint { path: path.display().to_string(), reason: reason.into() }
}
