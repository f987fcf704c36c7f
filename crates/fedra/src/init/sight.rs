//! What the files hold: format, columns, values; one file with everybody's rows, or one a client.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fedra_data::{FoundFormat, Reader, Survey};

use crate::error::{Context, Result, refuse};

/// Most rows of a file that are looked at.
const MOST_ROWS: usize = 200_000;

/// The files, as found.
#[derive(Clone, Debug)]
pub struct Sight {
    /// One with everybody's rows, or one for each client.
    pub files: Vec<ClientFile>,
    /// How they are written.
    pub found: FoundFormat,
    /// What they hold together.
    pub survey: Survey,
    /// Rows of each file.
    pub rows: Vec<usize>,
}

/// A file, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFile {
    /// The client; none where the rows say it themselves, or nobody does.
    pub client: Option<String>,
    /// Where it is.
    pub path: PathBuf,
}

impl Sight {
    /// Whether each client has a file.
    pub fn is_by_client(&self) -> bool {
        self.files.iter().any(|file| file.client.is_some())
    }
}

/// Looks at a file, at a folder with a file for each client, or at named files of clients.
pub fn look(data: Option<&Path>, clients: &[(String, PathBuf)]) -> Result<Sight> {
    let files = match (data, clients) {
        (Some(data), []) if data.is_dir() => in_folder(data)?,
        (Some(data), []) => vec![ClientFile { client: None, path: data.to_owned() }],
        (None, [_, ..]) => {
            let named: BTreeMap<&String, &PathBuf> =
                clients.iter().map(|(name, path)| (name, path)).collect();
            if named.len() < clients.len() {
                refuse!("--client: found a name twice, expected one file for each client");
            }
            let file = |(name, path): (&&String, &&PathBuf)| ClientFile {
                client: Some((*name).clone()),
                path: (*path).clone(),
            };
            named.iter().map(file).collect()
        }
        (Some(data), [_, ..]) => {
            refuse!("--client: found it beside {}, expected one or the other", data.display())
        }
        (None, []) => {
            refuse!("found no data, expected a file, a folder, or --client NAME=FILE")
        }
    };
    let mut sight: Option<Sight> = None;
    for file in files {
        let shown = file.path.display().to_string();
        let found = FoundFormat::of(&file.path)?;
        let reader = Reader {
            delimiter: found.delimiter,
            encoding: found.encoding.unwrap_or_default(),
            ..Reader::default()
        };
        let survey = Survey::of(found.format, &file.path, &reader, MOST_ROWS)?;
        if survey.rows == 0 {
            refuse!("{shown}: found no rows, expected at least one");
        }
        match &mut sight {
            None => {
                let (rows, files) = (vec![survey.rows], vec![file]);
                sight = Some(Sight { files, found, survey, rows });
            }
            Some(first) if first.found != found => refuse!(
                "{shown}: found another format, delimiter or encoding than in {}, expected files of \
                 one kind",
                first.files[0].path.display()
            ),
            Some(all) => {
                all.rows.push(survey.rows);
                all.survey.merge(survey);
                all.files.push(file);
            }
        }
    }
    sight.context("found no file")
}

/// The files of a folder, each a client by its name without the ending.
fn in_folder(folder: &Path) -> Result<Vec<ClientFile>> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {shown}"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_file() || name.starts_with('.') {
            continue;
        }
        let client = name.split('.').next().unwrap_or_default().to_owned();
        if let Some(other) = files.insert(client.clone(), path) {
            refuse!(
                "{shown}: found two files called {client:?} ({name} and {}), expected one for each \
                 client",
                other.display()
            );
        }
    }
    if files.len() < 2 {
        let found = files.len();
        refuse!("{shown}: found a folder with {found} files, expected one file for each client");
    }
    let file = |(client, path)| ClientFile { client: Some(client), path };
    Ok(files.into_iter().map(file).collect())
}
