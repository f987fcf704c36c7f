//! Models of the hub in the place of a path: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION`.
//!
//! To check an experiment makes no connection. A name is looked up in the cache and pinned to the commit that is there,
//! so that the file of a run means the same weights next time; one that is not there is refused, and whoever may make a
//! connection fetches it and tries again ([`crate::prepare::hub`]).

use std::path::{Path, PathBuf};

use fedra_hub::{Hub, ModelName};

use crate::error::config_error::ConfigError;

/// The folder behind a path that may be a name of the hub, which is pinned; `None` for any other path.
pub fn pinned(key: &str, path: &mut PathBuf) -> Result<Option<PathBuf>, ConfigError> {
    let Some(text) = path.to_str().filter(|text| ModelName::is_meant(text)) else {
        return Ok(None);
    };
    let refused = |error: fedra_hub::HubError| ConfigError::sentence(key, error);
    let name: ModelName = text.parse().map_err(refused)?;
    let hub = Hub::from_env().map_err(refused)?;
    let Some(snapshot) = hub.cached(&name) else {
        let state = hub.state_of(&name);
        return Err(ConfigError::unfetched(key, name, (hub.cache(), state)));
    };
    *path = snapshot.name.to_string().into();
    Ok(Some(snapshot.folder))
}

/// The folder behind a path of a checked experiment.
pub fn folder_of(path: &Path) -> PathBuf {
    let folder = || Hub::from_env().ok()?.folder_of(&name_of(path)?);
    folder().unwrap_or_else(|| path.to_owned())
}

/// The name of the hub that a path is.
pub fn name_of(path: &Path) -> Option<ModelName> {
    path.to_str().filter(|text| ModelName::is_meant(text))?.parse().ok()
}
