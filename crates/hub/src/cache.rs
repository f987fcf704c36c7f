//! The cache that the libraries of the hub share: where a repository's files are in it, and how a file gets there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fedra_files::Replacing;

use crate::error::{CacheState, HubError};
use crate::hash::FileHash;
use crate::name::{ModelName, is_commit};
use crate::needed;
use crate::settings::Hub;

/// How often it is tried to lock a file that another process holds.
const GLANCE: Duration = Duration::from_millis(100);

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name, pinned to the commit.
    pub name: ModelName,
    /// The folder with its files.
    pub folder: PathBuf,
}

impl Hub {
    /// The model, if the cache has all that is needed of it. No connection is made, and nothing is written. A branch
    /// or tag is what it was when it was last fetched.
    pub fn cached(&self, name: &ModelName) -> Option<Snapshot> {
        let repository = Repository::new(self, name);
        let commit = match name.commit() {
            Some(commit) => commit.to_owned(),
            None => repository.commit_of(name.revision())?,
        };
        let absent = |file: &str| repository.is_absent(&commit, file);
        let folder = repository.snapshot(&commit);
        needed::is_complete(&folder, &absent).then(|| Snapshot { name: name.at(&commit), folder })
    }

    /// What the cache has of a model that [`Hub::cached`] does not find.
    pub fn state_of(&self, name: &ModelName) -> CacheState {
        let repository = Repository::new(self, name);
        let has_files =
            |folder: PathBuf| fs::read_dir(folder).is_ok_and(|mut it| it.next().is_some());
        let commit = name.commit().map(str::to_owned);
        let has_some = match commit.or_else(|| repository.commit_of(name.revision())) {
            Some(commit) => has_files(repository.snapshot(&commit)),
            None => has_files(repository.folder.join("blobs")),
        };
        if has_some { CacheState::Incomplete } else { CacheState::Absent }
    }

    /// Where the files of a pinned name are, whether they are there or not.
    pub fn folder_of(&self, name: &ModelName) -> Option<PathBuf> {
        name.commit().map(|commit| Repository::new(self, name).snapshot(commit))
    }
}

/// A repository's folder in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    folder: PathBuf,
    locks: PathBuf,
    links: bool,
}

/// Held by whoever fetches a file. `None` where the file system knows no locks.
pub(crate) type Lock = Option<File>;

impl Repository {
    pub(crate) fn new(hub: &Hub, name: &ModelName) -> Self {
        let folder = hub.cache.join(name.folder());
        Self { folder, locks: hub.cache.join(".locks").join(name.folder()), links: hub.links }
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    pub(crate) fn blob(&self, hash: &FileHash) -> PathBuf {
        self.folder.join("blobs").join(hash.digits())
    }

    /// Where content is until it is whole: one place for all processes, which a lock guards, so that any of them can
    /// go on with it; or a place of this process, where there is no lock.
    pub(crate) fn incomplete(&self, hash: &FileHash, lock: &Lock) -> PathBuf {
        let own =
            if lock.is_some() { String::new() } else { format!(".{:08x}", std::process::id()) };
        self.folder.join("blobs").join(format!("{}{own}.incomplete", hash.digits()))
    }

    /// Makes the folders that a download needs.
    pub(crate) fn prepare(&self, commit: &str) -> Result<(), HubError> {
        for folder in [&self.folder.join("blobs"), &self.snapshot(commit), &self.locks] {
            fs::create_dir_all(folder).map_err(HubError::disk("make the folder", folder))?;
        }
        Ok(())
    }

    /// Waits for the lock of a file. `goes_on` is asked meanwhile.
    pub(crate) fn lock(
        &self,
        hash: &FileHash,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Lock, HubError> {
        let path = self.locks.join(format!("{}.lock", hash.digits()));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(HubError::disk("open", &path))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if goes_on() => std::thread::sleep(GLANCE),
                Err(TryLockError::WouldBlock) => {
                    return Err(HubError::Stopped(
                        "a file that another process fetches".to_owned(),
                    ));
                }
                Err(TryLockError::Error(_)) => return Ok(None),
            }
        }
    }

    /// Puts a file into a snapshot whose content is here; `is_new` content may be moved where there are no links.
    pub(crate) fn link(
        &self,
        (commit, file): (&str, &str),
        hash: &FileHash,
        is_new: bool,
    ) -> Result<(), HubError> {
        let (folder, blob) = (self.snapshot(commit), self.blob(hash));
        let place = folder.join(file);
        if self.links {
            let part = folder.join(format!(".{file}.{:08x}.link", std::process::id()));
            let _absent = fs::remove_file(&part);
            let target = Path::new("../../blobs").join(hash.digits());
            if symlink(&target, &part).and_then(|()| fs::rename(&part, &place)).is_ok() {
                return Ok(());
            }
            let _absent = fs::remove_file(&part);
        }
        if is_new {
            return fs::rename(&blob, &place)
                .map_err(HubError::disk("move the content to", &place));
        }
        let copied = Replacing::begin_beside_others(&place).and_then(|mut copy| {
            io::copy(&mut File::open(&blob)?, &mut copy)?;
            copy.finish()
        });
        copied.map_err(HubError::disk("copy the content to", &place))
    }

    /// Remembers what a branch or tag stands for.
    pub(crate) fn refer(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if is_commit(revision) {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        let written = fs::create_dir_all(path.parent().unwrap_or(&self.folder))
            .and_then(|()| Replacing::begin_beside_others(&path))
            .and_then(|mut file| {
                file.write_all(commit.as_bytes())?;
                file.finish()
            });
        written.map_err(HubError::disk("write", &path))
    }

    /// Remembers that the repository does not have a file; only a help for the next time.
    pub(crate) fn note_absent(&self, commit: &str, file: &str) {
        let path = self.absence(commit, file);
        let _helps = fs::create_dir_all(path.parent().unwrap_or(&self.folder))
            .and_then(|()| OpenOptions::new().append(true).create(true).open(&path));
    }

    fn is_absent(&self, commit: &str, file: &str) -> bool {
        self.absence(commit, file).is_file()
    }

    fn absence(&self, commit: &str, file: &str) -> PathBuf {
        self.folder.join(".no_exist").join(commit).join(file)
    }

    /// The commit that a branch or tag stood for when it was last fetched.
    fn commit_of(&self, revision: &str) -> Option<String> {
        let text = fs::read_to_string(self.folder.join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
    }
}

#[cfg(unix)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, place)
}

#[cfg(windows)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, place)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_target: &Path, _place: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
