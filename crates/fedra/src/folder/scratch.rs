//! A folder for a run that nobody asked to keep.
//!
//! A run needs a place for its checkpoint, its log and its model. Whoever names none gets one that goes with the value
//! that stands for it, so that a run without a folder is an ordinary run: it can be stopped and resumed, and its page
//! can be made, for as long as somebody holds on to it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Context, Result};

/// A folder that is removed with this value, whatever is in it by then.
#[derive(Debug)]
pub struct ScratchFolder {
    folder: TempDir,
    run: PathBuf,
}

impl ScratchFolder {
    /// A new one where the system keeps what is temporary. Nobody else may look into it.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("fedra-").tempdir();
        let folder = folder.context("cannot make a temporary folder for the run")?;
        let run = folder.path().join("run");
        Ok(Self { folder, run })
    }

    /// The folder for the run, which is not made yet.
    pub fn path(&self) -> &Path {
        &self.run
    }

    /// Keeps what is there, under the system's own folder for what is temporary.
    pub fn keep(self) -> PathBuf {
        let kept = self.folder.keep();
        kept.join("run")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_goes_with_its_value_unless_it_is_kept() {
        let scratch = ScratchFolder::new().unwrap();
        let path = scratch.path().to_owned();
        assert!(!path.exists() && path.parent().is_some_and(Path::is_dir));
        std::fs::create_dir(&path).unwrap();
        drop(scratch);
        assert!(!path.parent().is_some_and(Path::exists));
        let kept = ScratchFolder::new().unwrap().keep();
        let parent = kept.parent().unwrap();
        assert!(parent.is_dir());
        std::fs::remove_dir_all(parent).unwrap();
    }
}
