//! What the files hold: format, columns, values; one file with everybody's rows, or one a client.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fedra_data::{Columns, FoundFormat, Reader, Survey};

use super::header;
use super::images::{self, ImageSight};
use super::models::{FoundModel, ModelPlaces};
use super::wishes::ClientFile;
use crate::config::ConfigError;
use crate::error::{Context, Result, refuse};
use crate::text::grid::counted;

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
    /// What images the rows are, where they are images.
    pub images: Option<ImageSight>,
    /// Rows of each file.
    pub rows: Vec<usize>,
    /// Files of a folder that hold no data, by their names.
    pub left_out: Vec<String>,
    /// Columns that have one value in each file: they say whose it is.
    pub constant: BTreeSet<String>,
    /// Pretrained models that are on this machine, the nearest first.
    pub models: Vec<FoundModel>,
    /// Where they were looked for, in words.
    pub looked_in: String,
}

impl Sight {
    /// Whether each client has a file.
    pub fn is_by_client(&self) -> bool {
        self.files.iter().any(|file| file.client.is_some())
    }
}

/// Looks at a file, at a folder with a file for each client, or at named files of clients.
pub fn look(data: Option<&Path>, clients: &[(String, PathBuf)]) -> Result<Sight> {
    let mut left_out = Vec::new();
    if let (Some(data), []) = (data, clients)
        && let Some(found) = images::folder(data)
    {
        return Ok(of_images(data, found?));
    }
    let files = match (data, clients) {
        (Some(data), []) if data.is_dir() => in_folder(data, &mut left_out)?,
        (Some(data), []) => vec![ClientFile { client: None, path: data.to_owned() }],
        (None, [_, ..]) => {
            let named: BTreeMap<String, PathBuf> = clients.iter().cloned().collect();
            ConfigError::new("client", "a name twice", "one file for each client")
                .when(named.len() < clients.len())?;
            let file = |(client, path)| ClientFile { client: Some(client), path };
            named.into_iter().map(file).collect()
        }
        (Some(data), [_, ..]) => {
            return Err(ConfigError::excludes("client", data.display()).into());
        }
        (None, []) => {
            refuse!("found no data, expected a file, a folder, or a file for each client")
        }
    };
    let mut sight: Option<Sight> = None;
    for file in files {
        let shown = file.path.display().to_string();
        let found = FoundFormat::of(&file.path)?;
        // Bytes of images are no text to be looked at.
        let bytes = images::bytes_column(found.format, &file.path);
        let reader = Reader {
            columns: Columns { image: bytes.clone(), ..Columns::default() },
            delimiter: found.delimiter,
            encoding: found.encoding.unwrap_or_default(),
            ..Reader::default()
        };
        let survey = Survey::of(found.format, &file.path, &reader, MOST_ROWS)?;
        header::check(&file.path, found.format, &survey)?;
        let pictures = images::of_table(&file.path, bytes.as_deref(), &survey);
        if survey.rows == 0 {
            refuse!("{shown}: found no rows, expected at least one");
        }
        let Some(all) = &mut sight else {
            sight = Some(Sight {
                rows: vec![survey.rows],
                files: vec![file],
                left_out: std::mem::take(&mut left_out),
                images: pictures,
                constant: constant(&survey),
                models: Vec::new(),
                looked_in: String::new(),
                found,
                survey,
            });
            continue;
        };
        if all.found != found {
            refuse!(
                "{shown}: found another format, delimiter or encoding than in {}, expected files of one kind",
                all.files[0].path.display()
            );
        }
        all.rows.push(survey.rows);
        let here = constant(&survey);
        all.constant.retain(|name| here.contains(name));
        all.survey.merge(survey);
        all.files.push(file);
    }
    let mut sight = sight.context("found no file")?;
    let places = ModelPlaces::usual(&sight.files);
    (sight.models, sight.looked_in) = (places.search(), places.in_words());
    Ok(sight)
}

/// A folder whose rows are images.
fn of_images(path: &Path, (found, survey, images): (FoundFormat, Survey, ImageSight)) -> Sight {
    let files = vec![ClientFile { client: None, path: path.to_owned() }];
    let places = ModelPlaces::usual(&files);
    Sight {
        rows: vec![survey.rows],
        files,
        left_out: Vec::new(),
        images: Some(images),
        constant: BTreeSet::new(),
        models: places.search(),
        looked_in: places.in_words(),
        found,
        survey,
    }
}

/// The columns of a file that have the same value in all its rows.
fn constant(survey: &Survey) -> BTreeSet<String> {
    let columns = survey.columns.iter();
    let same = columns.filter(|column| !column.has_more && column.distinct() == 1);
    same.map(|column| column.name.clone()).collect()
}

/// Endings that say how a file is written.
const ENDINGS: [&str; 11] =
    ["csv", "tsv", "tab", "jsonl", "ndjson", "json", "parquet", "conll", "bio", "iob", "txt"];
/// Files that people put beside their data, by their names without an ending.
const BESIDE: [&str; 6] = ["readme", "license", "licence", "changelog", "notice", "makefile"];

/// The name of a file without the endings that say its format; other dots are part of the name.
pub fn without_ending(name: &str) -> &str {
    let bare = cut(name, &["gz"]).unwrap_or(name);
    cut(bare, &ENDINGS).unwrap_or(bare)
}

fn cut<'a>(name: &'a str, endings: &[&str]) -> Option<&'a str> {
    let (stem, end) = name.rsplit_once('.')?;
    let is_known = endings.iter().any(|ending| end.eq_ignore_ascii_case(ending));
    (is_known && !stem.is_empty()).then_some(stem)
}

/// The files of a folder, each a client by its name without the ending. Where some names say a format,
/// the others are left out.
fn in_folder(folder: &Path, left_out: &mut Vec<String>) -> Result<Vec<ClientFile>> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    let mut names: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {shown}"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && !name.starts_with('.') {
            names.insert(name, path);
        }
    }
    let is_beside = |name: &str| {
        let stem = name.split('.').next().unwrap_or_default().to_lowercase();
        BESIDE.contains(&stem.as_str()) || cut(name, &["md", "pdf", "docx"]).is_some()
    };
    let says_format = |name: &str| without_ending(name) != cut(name, &["gz"]).unwrap_or(name);
    let any_says = names.keys().any(|name| !is_beside(name) && says_format(name));
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (name, path) in names {
        if is_beside(&name) || (any_says && !says_format(&name)) {
            left_out.push(name);
            continue;
        }
        let client = without_ending(&name).to_owned();
        if let Some(other) = files.insert(client.clone(), path) {
            refuse!(
                "{shown}: found two files called {client:?} ({name} and {}), expected one for each \
                 client",
                other.display()
            );
        }
    }
    if files.len() < 2 {
        let found = counted(files.len() as u64, "file");
        refuse!(
            "{shown}: found a folder with {found} of rows, expected one file for each client{}",
            match left_out.as_slice() {
                [] => String::new(),
                names => format!(" (left out by their names: {})", names.join(", ")),
            }
        );
    }
    let file = |(client, path)| ClientFile { client: Some(client), path };
    Ok(files.into_iter().map(file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_endings_that_say_a_format_are_cut_from_a_name() {
        for (name, stem) in [
            ("north.csv", "north"),
            ("st.mary.CSV.gz", "st.mary"),
            ("v1.2", "v1.2"),
            ("notes.2024.jsonl", "notes.2024"),
            (".csv", ".csv"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_ending(name), stem);
        }
    }

    #[test]
    fn what_lies_beside_the_data_is_left_out_and_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["st.mary.csv", "st.john.csv", "README.md", "readme.txt", ".hidden.csv", "run.sh"]
        {
            fs::write(folder.path().join(name), "text,label\na,x\nb,y\n").unwrap();
        }
        let sight = look(Some(folder.path()), &[]).unwrap();
        let clients: Vec<&str> = sight.files.iter().filter_map(|f| f.client.as_deref()).collect();
        assert_eq!(clients, ["st.john", "st.mary"]);
        assert_eq!(sight.left_out, ["README.md", "readme.txt", "run.sh"]);
    }
}
