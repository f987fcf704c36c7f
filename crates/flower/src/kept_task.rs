//! The task of a run in a file of the run's folder, so that a coordinator that was stopped or killed takes it
//! up again.
//!
//! A task is of whoever shows its token. So the token is a secret: only its owner may read the file, nobody
//! prints it, and it goes when the task ends.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::FlowerError;

/// The file's name.
const FILE: &str = "superlink.task";

/// Where a task is kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptTask {
    file: PathBuf,
}

/// A task that was taken. Not to be shown: it has the token.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakenTask {
    /// The SuperLink's host and port.
    pub(crate) superlink: String,
    pub(crate) run: u64,
    pub(crate) token: String,
}

impl KeptTask {
    /// The place in a run's folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self { file: folder.join(FILE) }
    }

    /// The task that was taken at this SuperLink, if there is one.
    pub(crate) fn read(&self, superlink: &str) -> Option<TakenTask> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let taken: TakenTask = serde_json::from_str(&text).ok()?;
        (taken.superlink == superlink).then_some(taken)
    }

    /// Keeps a task, in place of another one.
    pub(crate) fn write(&self, taken: &TakenTask) -> Result<(), FlowerError> {
        self.remove();
        let draw = || serde_json::to_string(taken).map_err(std::io::Error::other);
        let kept = fedra_net::kept_secret(&self.file, draw).map(drop);
        kept.map_err(|error| FlowerError::file(self.file.display(), error))
    }

    /// The task has ended.
    pub(crate) fn remove(&self) {
        // There may be none, and one that stays is found to be over.
        let _gone = std::fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_kept_for_its_owner_and_its_superlink_alone() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptTask::of(folder.path());
        assert!(kept.read("link:1").is_none());
        for token in ["first", "second"] {
            let (superlink, token) = ("link:1".to_owned(), token.to_owned());
            kept.write(&TakenTask { superlink, run: 7, token: token.clone() }).unwrap();
            let read = kept.read("link:1").unwrap();
            assert_eq!((read.run, read.token), (7, token));
        }
        assert!(kept.read("link:2").is_none());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        kept.remove();
        assert!(kept.read("link:1").is_none());
        std::fs::write(folder.path().join(FILE), "half a li").unwrap();
        assert!(kept.read("link:1").is_none());
    }
}
