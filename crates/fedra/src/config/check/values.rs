//! Checks of single values that several tables share.

use std::path::{Path, PathBuf};

use crate::config::ConfigError;

/// What a check comes to.
pub(super) type Result<T> = std::result::Result<T, ConfigError>;

/// Refuses a count of none.
pub(super) fn at_least_one(key: &str, value: Option<usize>) -> Result<()> {
    ConfigError::new(key, 0, "at least 1").when(value == Some(0))
}

/// The value of a key that has to be given.
pub(super) fn required<T>(key: &str, value: Option<T>, expected: &str) -> Result<T> {
    value.ok_or_else(|| ConfigError::missing(key, expected))
}

/// The path from the root, so that a run resumes from any folder.
pub(super) fn existing(key: &str, path: &Path) -> Result<PathBuf> {
    if !path.exists() {
        let missing = format_args!("there is no file or folder {}", path.display());
        let refusal = ConfigError::sentence(key, missing);
        if path.to_string_lossy().starts_with('$') {
            return Err(refusal.with_hint("a variable of the environment is written ${NAME}"));
        }
        return Err(match std::env::current_dir() {
            Ok(here) if path.is_relative() => refusal
                .with_hint(format!("relative paths start where fedra runs: {}", here.display())),
            Ok(_) | Err(_) => refusal,
        });
    }
    std::path::absolute(path).map_err(|error| ConfigError::new(key, error, "a path"))
}
