//! The small Flower app with which `flwr run` starts a federation of ours.
//!
//! A run of Flower is made from an app. Ours says nothing that matters: the coordinator takes the place of
//! its server app, and nodes never load its client app. Whoever runs it without them is told so.

use std::path::Path;

use crate::error::FlowerError;

const PROJECT: &str = r#"[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedra-federation"
version = "1.0.0"
description = "Starts a federation whose coordinator is `fedra serve` and whose nodes are `fedra join`."
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedra"

[tool.flwr.app.components]
serverapp = "fedra_federation.server_app:app"
clientapp = "fedra_federation.client_app:app"

[tool.flwr.app.config]
"#;

const SERVER: &str = r#""""Stands in for the coordinator, which is `fedra serve`."""

from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    raise RuntimeError(
        "this run is coordinated by `fedra serve FILE.toml --superlink URL`: start the SuperLink with "
        "--isolation process and run that command"
    )
"#;

const CLIENT: &str = r#""""Stands in for the nodes, which are `fedra join`."""

from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("fedra")
def query(message, context):
    raise RuntimeError(
        "this run's nodes are `fedra join FILE.toml --superlink URL --client NAME`: this node is not one"
    )
"#;

/// Which runs a coordinator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apps {
    /// Those of the app that is written here.
    Ours,
    /// Those of any app: it may have a client app of Flower's own.
    Any,
}

/// What a SuperLink calls the app: its publisher and its name.
pub(crate) const APP: &str = "fedra/fedra-federation";

/// The files of the app, each with its place.
const FILES: [(&str, &str); 4] = [
    ("pyproject.toml", PROJECT),
    ("fedra_federation/__init__.py", "\"\"\"A federation of fedra.\"\"\"\n"),
    ("fedra_federation/server_app.py", SERVER),
    ("fedra_federation/client_app.py", CLIENT),
];

/// Writes the app into a folder, which may not hold another one.
pub fn write_app(folder: &Path) -> Result<(), FlowerError> {
    let failed =
        |path: &Path, error: &dyn std::fmt::Display| FlowerError::file(path.display(), error);
    for (name, text) in FILES {
        let path = folder.join(name);
        match std::fs::read_to_string(&path) {
            Ok(found) if found != text => {
                return Err(failed(&path, &"found another file, expected none or this app's"));
            }
            Ok(_) | Err(_) => {}
        }
    }
    for (name, text) in FILES {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_written_once_and_over_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        write_app(folder.path()).unwrap();
        write_app(folder.path()).unwrap();
        std::fs::write(folder.path().join("pyproject.toml"), "mine").unwrap();
        let told = write_app(folder.path()).unwrap_err().to_string();
        assert!(told.contains("found another file"), "{told}");
    }
}
