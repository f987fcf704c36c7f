//! Checks of single values that several tables share.

use std::path::{Path, PathBuf};

use crate::config::complaint::Complaint;

/// What a check comes to.
pub(super) type Result<T> = std::result::Result<T, Complaint>;

/// Refuses a count of none.
pub(super) fn at_least_one(key: &str, value: Option<usize>) -> Result<()> {
    match value {
        Some(0) => Err(Complaint::new(key, 0, "at least 1")),
        Some(_) | None => Ok(()),
    }
}

/// The path from the root, so that a run resumes from any folder.
pub(super) fn existing(key: &str, path: &Path) -> Result<PathBuf> {
    if !path.exists() {
        let complaint = Complaint::new(key, path.display(), "a file or folder that exists");
        if path.to_string_lossy().starts_with('$') {
            return Err(complaint.with_hint("a variable of the environment is written ${NAME}"));
        }
        return Err(match std::env::current_dir() {
            Ok(here) if path.is_relative() => complaint
                .with_hint(format!("relative paths start where fedra runs: {}", here.display())),
            Ok(_) | Err(_) => complaint,
        });
    }
    std::path::absolute(path).map_err(|error| Complaint::new(key, error, "a path"))
}
