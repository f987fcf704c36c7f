//! Models of the Hugging Face hub: what something lacks that is about to be opened is fetched first, as every library
//! that speaks to the hub does. With `HF_HUB_OFFLINE=1` nothing is.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

use fedra::prepare::hub;
use fedra::process::locked;
use pyo3::prelude::*;

use crate::errors::raised;

/// Fetches every model that something lacks; what else is wrong with it is left for whoever opens it.
pub fn provide(
    py: Python<'_>,
    follower: Option<&Bound<'_, PyAny>>,
    open: &dyn Fn() -> fedra::Result<()>,
) -> PyResult<()> {
    let mut before = Vec::new();
    while let Some(name) = open().err().as_ref().and_then(fedra::Error::unfetched).cloned() {
        if before.contains(&name) {
            break;
        }
        note(follower, &format!("note: fetching {name}"))?;
        let told = fetched(py, name.clone())?;
        note(follower, &format!("note: {told}"))?;
        before.push(name);
    }
    Ok(())
}

/// The folder behind an argument that may be a name of the hub.
pub fn folder(py: Python<'_>, key: &str, path: &Path) -> PyResult<PathBuf> {
    let open = || hub::folder(key, path).map_err(fedra::Error::from);
    provide(py, None, &|| open().map(drop))?;
    open().map_err(|error| raised(py, &error))
}

fn note(follower: Option<&Bound<'_, PyAny>>, line: &str) -> PyResult<()> {
    follower.map_or(Ok(()), |follower| follower.call_method1("note", (line,)).map(drop))
}

/// Fetches a model, and says what was fetched; Ctrl-C ends it, and what arrived is kept.
fn fetched(py: Python<'_>, name: hub::ModelName) -> PyResult<String> {
    let (report, reports) = channel();
    let reports = Mutex::new(reports);
    let (end, ended) = channel::<()>();
    let fetch = move || {
        let goes_on = |_: hub::Progress<'_>| {
            ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected)
        };
        let _nobody_waits = report.send(hub::fetch(&name, &goes_on));
    };
    Builder::new().name("fedra-fetch".to_owned()).spawn(fetch)?;
    loop {
        let heard = py.detach(|| locked(&reports).recv_timeout(Duration::from_millis(100)));
        if let Ok(fetched) = heard {
            drop(end);
            let fetched = fetched.map_err(|error| raised(py, &error))?;
            return Ok(hub::in_words(&fetched));
        }
        py.check_signals()?;
    }
}
