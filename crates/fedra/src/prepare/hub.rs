//! Models of the hub that an experiment or a caller names, fetched where they are not on this machine.
//!
//! Nothing else in this library makes such a connection, and nothing does so unless a name `hf:` is written somewhere:
//! experiments are opened without one, and an opening that is refused for want of a model is repeated here once the
//! model is there.
//!
//! ```no_run
//! use fedra::{Experiment, Overrides, prepare::hub};
//!
//! let open = || Experiment::open("hospitals.toml".as_ref(), &Overrides::default());
//! hub::provide(&mut |model| hub::fetch(model, &|_| true).map(drop), || open().map(drop))?;
//! let experiment = open()?;
//! # Ok::<(), fedra::Error>(())
//! ```

use std::path::{Path, PathBuf};

pub use fedra_hub::{Fetched, Follow, Hub, ModelName, Progress};
use fedra_plan::ByteCount;

use crate::config::{ConfigError, hub};
use crate::error::{Error, Result};
use crate::text::grid::counted;

/// Fetches a model, or makes its branch or tag mean what it means today.
pub fn fetch(name: &ModelName, follow: Follow<'_>) -> Result<Fetched> {
    Ok(Hub::from_env()?.fetch(name, follow)?)
}

/// Has every model fetched that something lacks which is about to be opened. What else is wrong with it is left for
/// whoever opens it then.
pub fn provide(
    fetch: &mut dyn FnMut(&ModelName) -> Result<()>,
    mut open: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut before = Vec::new();
    while let Some(name) = open().err().as_ref().and_then(Error::unfetched).cloned() {
        if before.contains(&name) {
            break;
        }
        fetch(&name)?;
        before.push(name);
    }
    Ok(())
}

/// The folder behind a path that a caller gives under this key; a name of the hub has to be in the cache.
pub fn folder(key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
    let mut written = path.to_owned();
    Ok(hub::pinned(key, &mut written)?.unwrap_or(written))
}

/// What was fetched from where, in a sentence.
pub fn in_words(fetched: &Fetched) -> String {
    let Fetched { snapshot, endpoint, files, bytes } = fetched;
    let (name, folder) = (&snapshot.name, snapshot.folder.display());
    if *bytes == 0 {
        return format!("nothing had to be fetched of {name}; it is in {folder}");
    }
    let (files, bytes) = (counted(*files as u64, "file"), ByteCount(*bytes));
    format!("fetched {files} ({bytes}) of {name} from {endpoint} into {folder}")
}
