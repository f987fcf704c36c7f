//! What a site keeps on its own disk: the states behind its last answers.
//!
//! Which of them counts is decided by the server, and it may change its mind until the round after:
//! an answer may be refused or revoked, and a server that was killed goes back to its last checkpoint.
//! So the state of an answer is on disk before the answer is sent, beside the one that it came from,
//! and each has a [`StateVersion`]. Whatever is killed, the site then has the state that the server names.
//!
//! ```text
//! DIR/site.json             which client of which experiment, and of which run
//! DIR/state-4-trained.fedra the state after its answer in round 4: JSON, payloads, CRC-32
//! DIR/data.secret           what the digest of its examples is mixed with, drawn once
//! DIR/fedra.lock            while a process is at work there
//! ```

use std::borrow::Cow;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use fedra_client::DataSecret;
use fedra_engine::ClientState;
use fedra_plan::{Layout, Round};
use fedra_wire::{ClientId, WireError};
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::NetError;
use crate::protocol::{ConfigFingerprint, RoundStage, StateVersion, disagreement};
use crate::secret;

const MAGIC: &[u8] = b"FDSS\x02";
const ABOUT: &str = "site.json";
const SECRET: &str = "data.secret";
const LOCK: &str = "fedra.lock";

/// A folder that belongs to one client of one experiment.
#[derive(Debug)]
pub struct SiteState {
    folder: PathBuf,
    pub(crate) about: About,
    /// The answers whose states are here.
    pub labels: Vec<StateVersion>,
    /// Held until the process ends.
    _lock: File,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    client: String,
    agreement: ConfigFingerprint,
    pub(crate) run: Option<u64>,
}

/// What stands before the payloads of a state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Notes {
    client: ClientId,
    forgets: u64,
    lengths: [u64; ClientState::SECTIONS],
}

/// A state, and how many of the server's orders to forget are carried out in it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredState<'a> {
    /// The state.
    pub state: Cow<'a, ClientState>,
    /// The number of the last such order.
    pub forgets: u64,
}

impl SiteState {
    /// Opens the folder, makes it where it is not there, and refuses that of anybody else.
    pub fn open(
        folder: &Path,
        client: &str,
        agreement: &ConfigFingerprint,
    ) -> Result<Self, NetError> {
        fs::create_dir_all(folder).map_err(NetError::file("making the folder", folder))?;
        let lock = lock(folder)?;
        let path = folder.join(ABOUT);
        let new = About { client: client.to_owned(), agreement: agreement.clone(), run: None };
        let about = match fs::read(&path) {
            Ok(text) => serde_json::from_slice::<About>(&text)
                .map_err(|error| refused(folder, &format!("{ABOUT}: {error}")))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => new,
            Err(error) => return Err(NetError::file("reading", folder)(error)),
        };
        if about.client != client {
            let found = format!("the state is of {}, expected that of {client}", about.client);
            return Err(refused(folder, &found));
        }
        let (held, wanted) = ((&about.agreement, "there"), (agreement, "in the experiment"));
        if let Some(difference) = disagreement(held, wanted) {
            return Err(refused(
                folder,
                &format!("the state is of another experiment: {difference}"),
            ));
        }
        let labels = labels_in(folder).map_err(NetError::file("reading", folder))?;
        let state = Self { folder: folder.to_owned(), about, labels, _lock: lock };
        state.save_about()?;
        Ok(state)
    }

    /// The secret of this folder, drawn when it is first asked for.
    pub fn data_secret(&self) -> Result<DataSecret, NetError> {
        let path = self.folder.join(SECRET);
        secret::kept_bytes(&path).map_err(NetError::file("reading", &path))
    }

    /// Begins with a run; what another one left is of no more use.
    pub fn begin(&mut self, run: u64) -> Result<(), NetError> {
        if self.about.run == Some(run) {
            return Ok(());
        }
        for label in std::mem::take(&mut self.labels) {
            self.remove(label);
        }
        self.about.run = Some(run);
        self.save_about()
    }

    /// Writes the state behind an answer that was given on top of another one, before it is sent. That
    /// other one stays, and so does the newest of an earlier round; what never counted goes.
    pub fn put(
        &mut self,
        (base, label): (Option<StateVersion>, StateVersion),
        kept: &StoredState<'_>,
        layout: &Layout,
    ) -> Result<(), NetError> {
        let bytes = write(kept, layout).map_err(|reason| refused(&self.folder, &reason))?;
        let path = self.path(label);
        durable::write(&path, &bytes).map_err(NetError::file("writing", &path))?;
        let counted = |old: &StateVersion| Some(*old) <= base && *old != label;
        let earlier = |old: &&StateVersion| counted(old) && old.round < label.round;
        let earlier = self.labels.iter().filter(earlier).max().copied();
        let stays = |old: &StateVersion| {
            Some(*old) == earlier || (counted(old) && old.round == label.round)
        };
        let gone: Vec<StateVersion> =
            self.labels.iter().filter(|old| !stays(old)).copied().collect();
        self.labels.retain(stays);
        self.labels.push(label);
        gone.into_iter().filter(|old| *old != label).for_each(|old| self.remove(old));
        Ok(())
    }

    /// The state behind an answer; `None` when it is not here any more.
    pub fn get(
        &self,
        label: StateVersion,
        layout: &Layout,
    ) -> Result<Option<StoredState<'static>>, NetError> {
        let path = self.path(label);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(NetError::file("reading", &path)(error)),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        read(&bytes, layout).map(Some).map_err(|reason| {
            refused(&self.folder, &format!("{name} is damaged or of another version: {reason}"))
        })
    }

    fn path(&self, label: StateVersion) -> PathBuf {
        self.folder.join(name_of(label))
    }

    fn remove(&self, label: StateVersion) {
        // What stays only takes room: nobody names it any more.
        let _absent = fs::remove_file(self.path(label));
    }

    fn save_about(&self) -> Result<(), NetError> {
        let path = self.folder.join(ABOUT);
        let text = serde_json::to_vec_pretty(&self.about).unwrap_or_default();
        durable::write(&path, &text).map_err(NetError::file("writing", &path))
    }
}

fn name_of(StateVersion { round, step }: StateVersion) -> String {
    let step = match step {
        RoundStage::Looked => "looked",
        RoundStage::Trained => "trained",
    };
    format!("state-{}-{step}.fedra", round.0)
}

fn labels_in(folder: &Path) -> io::Result<Vec<StateVersion>> {
    let mut labels = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let inner = name.strip_prefix("state-").and_then(|name| name.strip_suffix(".fedra"));
        let Some((round, step)) = inner.and_then(|inner| inner.split_once('-')) else { continue };
        let step = match step {
            "looked" => RoundStage::Looked,
            "trained" => RoundStage::Trained,
            _other => continue,
        };
        labels.extend(round.parse().ok().map(|round| StateVersion { round: Round(round), step }));
    }
    labels.sort_unstable();
    Ok(labels)
}

/// One process at a time: the lock is the system's and ends with the process.
fn lock(folder: &Path) -> Result<File, NetError> {
    let path = folder.join(LOCK);
    let failed = NetError::file("locking", &path);
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).open(&path).map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(refused(folder, "another process is using this folder"))
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn refused(folder: &Path, reason: &str) -> NetError {
    NetError::Folder { folder: folder.display().to_string(), reason: reason.to_owned() }
}

fn write(kept: &StoredState<'_>, layout: &Layout) -> Result<Vec<u8>, String> {
    let payloads: Result<Vec<Vec<u8>>, WireError> = kept.state.sections(layout).collect();
    let payloads = payloads.map_err(|error| error.to_string())?;
    let mut lengths = [0; ClientState::SECTIONS];
    for (length, payload) in lengths.iter_mut().zip(&payloads) {
        *length = payload.len() as u64;
    }
    let notes = Notes { client: kept.state.client, forgets: kept.forgets, lengths };
    let notes = serde_json::to_vec(&notes).map_err(|error| error.to_string())?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((notes.len() as u32).to_le_bytes());
    bytes.extend(notes);
    // Exactly, and one after the other: a variate is as large as the model.
    bytes.reserve_exact(lengths.iter().sum::<u64>() as usize + size_of::<u32>());
    for payload in payloads {
        bytes.extend(payload);
    }
    let sum = crc32fast::hash(&bytes);
    bytes.extend(sum.to_le_bytes());
    Ok(bytes)
}

fn read(bytes: &[u8], layout: &Layout) -> Result<StoredState<'static>, String> {
    let cut = || "it is truncated".to_owned();
    let (content, sum) = bytes.split_last_chunk::<4>().ok_or_else(cut)?;
    if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return Err("its checksum does not match its content".to_owned());
    }
    let rest = content.strip_prefix(MAGIC).ok_or_else(|| "it is not a client state".to_owned())?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (notes, mut rest) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
    let notes: Notes = serde_json::from_slice(notes).map_err(|error| error.to_string())?;
    let mut sections = [&[][..]; ClientState::SECTIONS];
    for (section, length) in sections.iter_mut().zip(notes.lengths) {
        let length = usize::try_from(length).map_err(|_| cut())?;
        (*section, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
    }
    let state = ClientState::from_sections(notes.client, layout, &sections)?;
    Ok(StoredState { state: Cow::Owned(state), forgets: notes.forgets })
}

#[cfg(test)]
mod tests {
    use fedra_plan::{Layer, ParamId, Part, Role, Shape};

    use super::*;

    fn layout() -> (Layout, ParamId) {
        let id = ParamId::new(Layer::Block(0), Role::Query, Part::Weight);
        (Layout::new([(id, Shape::vector(3))]).unwrap(), id)
    }

    fn kept(number: f32) -> StoredState<'static> {
        let (_, id) = layout();
        let mut state = ClientState::empty(ClientId(2));
        state.correction.insert(id, vec![number, 0.0, -1.5]);
        state.attention.first = [number].into();
        StoredState { state: Cow::Owned(state), forgets: 3 }
    }

    fn label(round: u32, step: RoundStage) -> StateVersion {
        StateVersion { round: Round(round), step }
    }

    #[test]
    fn states_come_back_and_only_those_that_may_be_named_stay() {
        let (place, (layout, _)) = (tempfile::tempdir().unwrap(), layout());
        let agreement = ConfigFingerprint::from([("seed".to_owned(), "3".to_owned())]);
        let open = || SiteState::open(place.path(), "a", &agreement);
        let mut state = open().unwrap();
        state.begin(9).unwrap();
        let mut base = None;
        for round in 0..3 {
            for step in [RoundStage::Looked, RoundStage::Trained] {
                let label = label(round, step);
                state.put((base, label), &kept(round as f32), &layout).unwrap();
                base = Some(label);
            }
        }
        let expected = [
            label(1, RoundStage::Trained),
            label(2, RoundStage::Looked),
            label(2, RoundStage::Trained),
        ];
        assert_eq!(state.labels, expected);
        // The same round once more: what was answered then is replaced.
        state.put((Some(expected[0]), expected[1]), &kept(7.0), &layout).unwrap();
        assert_eq!(state.labels, &expected[..2]);
        // An answer that never counted makes room for the next one, and the one before it stays.
        state.put((Some(expected[0]), label(3, RoundStage::Trained)), &kept(8.0), &layout).unwrap();
        assert_eq!(state.labels, [expected[0], label(3, RoundStage::Trained)]);
        state.put((Some(expected[0]), expected[1]), &kept(7.0), &layout).unwrap();
        assert_eq!(state.get(label(0, RoundStage::Trained), &layout).unwrap(), None);
        assert!(open().unwrap_err().to_string().contains("another process is using"));
        drop(state);
        let mut state = open().unwrap();
        assert_eq!((state.about.run, &state.labels[..]), (Some(9), &expected[..2]));
        assert_eq!(state.get(expected[1], &layout).unwrap(), Some(kept(7.0)));
        state.begin(10).unwrap();
        assert_eq!(state.labels, []);
        assert_eq!(state.get(expected[0], &layout).unwrap(), None);
    }

    #[test]
    fn anybody_elses_folder_and_damaged_files_are_refused() {
        let (place, (layout, _)) = (tempfile::tempdir().unwrap(), layout());
        let of_seed = |seed: &str| ConfigFingerprint::from([("seed".to_owned(), seed.to_owned())]);
        let mut state = SiteState::open(place.path(), "a", &of_seed("3")).unwrap();
        let path = place.path().join("state-1-trained.fedra");
        state.put((None, label(1, RoundStage::Trained)), &kept(1.0), &layout).unwrap();
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            fs::write(&path, &whole[..place]).unwrap();
            assert!(state.get(label(1, RoundStage::Trained), &layout).is_err(), "cut at {place}");
            let mut bad = whole.clone();
            bad[place] ^= 4;
            fs::write(&path, &bad).unwrap();
            assert!(
                state.get(label(1, RoundStage::Trained), &layout).is_err(),
                "flipped at {place}"
            );
        }
        drop(state);
        let refused = |client, seed| {
            SiteState::open(place.path(), client, &of_seed(seed)).unwrap_err().to_string()
        };
        assert!(refused("b", "3").contains("the state is of a, expected that of b"));
        let told = refused("a", "4");
        assert!(told.contains("`seed` is 3 there and 4 in the experiment"), "{told}");
    }
}
