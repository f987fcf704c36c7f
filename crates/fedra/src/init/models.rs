//! Pretrained models that are on this machine already: beside the data, in a folder `models/`, in the
//! Hugging Face cache.
//!
//! Fresh weights know no language, and with a few hundred rows they learn none. So a first run should
//! begin with a pretrained model wherever there is one, and a person should see which were found, which
//! one was taken and why the others were not. Nothing is fetched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fedra_data::printable;
use fedra_hub::{Hub, ModelName};
use fedra_model::{Head, Model};

use super::wishes::ClientFile;
use crate::error::Result;
use crate::prepare::pretrained::OpenedModel;
use crate::text::grid::grouped;

/// Most folders of one place that are looked into.
const MOST_FOLDERS: usize = 200;
/// Parameters up to which training on a processor takes minutes and not hours.
const LIGHT: usize = 50_000_000;
/// Letters of a reason why a model cannot be used.
const LONGEST_REASON: usize = 100;

/// A model folder that was found.
#[derive(Clone, Debug)]
pub struct FoundModel {
    /// Where it is.
    pub path: PathBuf,
    /// What people call it: its path, or its repository.
    pub name: String,
    /// Whether it is in the Hugging Face cache.
    pub is_cached: bool,
    /// What it is, or why it cannot be used.
    pub shape: Result<ModelShape, String>,
}

/// What a model is, by its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Whether it reads images; the others read texts.
    pub reads_images: bool,
    /// Whether it writes text; an encoder does not.
    pub is_decoder: bool,
    /// Its blocks.
    pub blocks: usize,
    /// Its parameters without a head.
    pub parameters: usize,
    /// Tokens that it can read.
    pub positions: usize,
    /// The labels that it was trained to answer, where they have names.
    pub labels: Option<usize>,
}

impl ModelShape {
    /// Opens a folder or a GGUF file, and its tokenizer.
    pub fn open(path: &Path) -> Result<Self> {
        let OpenedModel { checkpoint, .. } = OpenedModel::open(path)?;
        let config = checkpoint.config();
        let structure = Model::new(config.clone(), Head::Bare, None)?;
        let labels = config.labels.as_ref().filter(|labels| labels.are_named());
        Ok(Self {
            reads_images: config.image.is_some(),
            is_decoder: config.causal,
            blocks: config.num_hidden_layers,
            parameters: structure.layout().elements(),
            positions: config.max_position_embeddings,
            labels: labels.map(|labels| labels.names.len()),
        })
    }

    /// Its family, for people.
    pub fn family(&self) -> &'static str {
        match (self.reads_images, self.is_decoder) {
            (true, _) => "model of images (ViT)",
            (false, true) => "decoder (LLaMA)",
            (false, false) => "encoder (BERT)",
        }
    }

    /// What it is, in a few words.
    pub fn in_words(&self) -> String {
        let named = |labels: usize| format!(", with a head for {} labels", grouped(labels as u64));
        let head = self.labels.map_or(String::new(), named);
        format!(
            "{} of {} blocks and {} parameters{head}",
            self.family(),
            self.blocks,
            grouped(self.parameters as u64)
        )
    }
}

/// Where models are looked for.
#[derive(Clone, Debug, Default)]
pub struct ModelPlaces {
    /// Folders with model folders in them, in the order of their weight.
    pub folders: Vec<PathBuf>,
    /// The cache of `huggingface_hub`.
    pub hub: Option<PathBuf>,
}

impl ModelPlaces {
    /// Beside the data and where the command runs, each with its folder `models/`, and the cache.
    pub fn usual(files: &[ClientFile]) -> Self {
        let parent = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let mut beside: Vec<PathBuf> = Vec::new();
        for file in files {
            let own = parent(&file.path);
            // Files of clients have a folder of their own, and models lie beside that.
            let around = file.client.is_some().then(|| parent(&own));
            beside.extend([own].into_iter().chain(around));
        }
        beside.push(PathBuf::from("."));
        let mut seen = BTreeSet::new();
        let folders = beside.into_iter().flat_map(|folder| [folder.clone(), folder.join("models")]);
        let is_new = |folder: &PathBuf| folder.canonicalize().is_ok_and(|real| seen.insert(real));
        let hub = Hub::from_env().ok().map(|hub| hub.cache().to_owned());
        Self { folders: folders.filter(is_new).collect(), hub }
    }

    /// The models there, those that lie nearest first.
    pub fn search(&self) -> Vec<FoundModel> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for folder in &self.folders {
            for path in folders_in(folder) {
                if is_model(&path) && path.canonicalize().is_ok_and(|real| seen.insert(real)) {
                    let path = path.strip_prefix(".").map_or(path.clone(), Path::to_owned);
                    let name = path.display().to_string();
                    found.push(FoundModel::open(path, name, false));
                }
            }
        }
        for repository in self.hub.iter().flat_map(|hub| folders_in(hub)) {
            let name = repository.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(name) = name.strip_prefix("models--") else { continue };
            let name = name.replace("--", "/");
            found.push(match snapshot(&repository) {
                Ok(path) => FoundModel::open(path, name, true),
                Err(reason) => {
                    let shape = Err(reason.to_owned());
                    FoundModel { path: repository, name, is_cached: true, shape }
                }
            });
        }
        found
    }

    /// Where it was looked, for people.
    pub fn in_words(&self) -> String {
        let folders = self.folders.iter().map(|folder| {
            if folder.to_str() == Some(".") {
                return "this folder".to_owned();
            }
            let shown = folder.strip_prefix(".").unwrap_or(folder).display().to_string();
            printable(&shown).into_owned()
        });
        let hub = self.hub.iter().map(|_| "the Hugging Face cache".to_owned());
        let places: Vec<String> = folders.chain(hub).collect();
        match places.split_last() {
            Some((last, rest @ [_, ..])) => format!("{} or {last}", rest.join(", ")),
            Some(_) | None => places.concat(),
        }
    }
}

impl FoundModel {
    fn open(path: PathBuf, name: String, is_cached: bool) -> Self {
        let shape = ModelShape::open(&path).map_err(|error| {
            let reason = error.in_words();
            let reason = reason.lines().next().unwrap_or_default();
            // The folder is named beside it.
            let reason = reason.replace(&format!("{}/", path.display()), "");
            let start: String = printable(&reason).chars().take(LONGEST_REASON).collect();
            if start.len() < reason.len() { format!("{start}..") } else { start }
        });
        Self { path, name, is_cached, shape }
    }

    /// How an experiment names it: one of the cache by its name and commit, which mean the same on every machine.
    pub fn written(&self) -> PathBuf {
        let commit = self.path.file_name().and_then(|commit| commit.to_str());
        let name =
            commit.filter(|_| self.is_cached).map(|commit| format!("hf:{}@{commit}", self.name));
        let pinned =
            name.filter(|name| name.parse().is_ok_and(|name: ModelName| name.commit().is_some()));
        pinned.map_or_else(|| self.path.clone(), PathBuf::from)
    }

    /// The folder that it lies in; the cache is one.
    fn place(&self) -> Option<&Path> {
        if self.is_cached { None } else { self.path.parent() }
    }

    fn shape(&self) -> Option<&ModelShape> {
        self.shape.as_ref().ok()
    }
}

/// The model that a first run should begin with: one that answers the task, from the nearest place;
/// there the largest that trains in minutes, or the smallest of all.
pub fn fitting(
    found: &[FoundModel],
    (needs_decoder, reads_images): (bool, bool),
) -> Option<&FoundModel> {
    let fits = |model: &&FoundModel| {
        model.shape().is_some_and(|shape| {
            shape.is_decoder == needs_decoder && shape.reads_images == reads_images
        })
    };
    let nearest = found.iter().find(fits)?.place();
    let there = || found.iter().filter(fits).filter(|model| model.place() == nearest);
    let size = |model: &&FoundModel| model.shape().map_or(0, |shape| shape.parameters);
    let light = there().filter(|model| size(model) <= LIGHT).max_by_key(size);
    light.or_else(|| there().min_by_key(size))
}

/// The folders in a folder by name; none where it cannot be read.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut folders: Vec<PathBuf> = folders.take(MOST_FOLDERS).collect();
    folders.sort();
    folders
}

/// Whether a folder looks like that of a model: a configuration, and weights in any format.
fn is_model(folder: &Path) -> bool {
    let is_weights = |name: &str| {
        [".safetensors", ".safetensors.index.json"].iter().any(|end| name.ends_with(end))
            || name.starts_with("pytorch_model")
    };
    folder.join("config.json").is_file()
        && fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| is_weights(name) && !name.starts_with("adapter_model"))
        })
}

/// The snapshot of a repository in the cache, that of its branch `main` or the only one; or why there is none
/// to be used.
fn snapshot(repository: &Path) -> Result<PathBuf, &'static str> {
    let snapshots = repository.join("snapshots");
    let revision = fs::read_to_string(repository.join("refs/main")).unwrap_or_default();
    let main = Some(snapshots.join(revision.trim())).filter(|_| !revision.trim().is_empty());
    let path = match (main.filter(|path| path.is_dir()), folders_in(&snapshots).as_slice()) {
        (Some(main), _) => main,
        (None, [only]) => only.clone(),
        (None, []) => return Err("its download is not complete: there are no files"),
        (None, _) => return Err("there are several versions, and none is main"),
    };
    if !path.join("config.json").is_file() {
        return Err("its download is not complete: there is no config.json");
    }
    if is_model(&path) {
        Ok(path)
    } else {
        Err("its download is not complete: there are no weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, is_decoder: bool, parameters: usize, is_cached: bool) -> FoundModel {
        let (blocks, positions, labels) = (2, 512, None);
        let shape =
            ModelShape { reads_images: false, is_decoder, blocks, parameters, positions, labels };
        FoundModel { path: name.into(), name: name.to_owned(), is_cached, shape: Ok(shape) }
    }

    #[test]
    fn the_nearest_model_that_fits_is_taken_and_of_several_the_largest_that_is_light() {
        let broken = FoundModel { shape: Err("no".into()), ..model("models/a", false, 1, false) };
        let found = [
            broken,
            model("models/decoder", true, 30, false),
            model("models/heavy", false, 110_000_000, false),
            model("models/light", false, 22_000_000, false),
            model("models/tiny", false, 4_000_000, false),
            model("org/cached", false, 40_000_000, true),
        ];
        let name = |found: &[FoundModel], decoder| {
            fitting(found, (decoder, false)).map(|m| m.name.clone())
        };
        assert_eq!(name(&found, false).as_deref(), Some("models/light"));
        assert_eq!(name(&found, true).as_deref(), Some("models/decoder"));
        assert_eq!(name(&found[..3], false).as_deref(), Some("models/heavy"));
        assert_eq!(name(&found[5..], false).as_deref(), Some("org/cached"));
        assert_eq!(name(&found[..2], false), None);
    }

    #[test]
    fn models_are_found_beside_the_data_and_in_the_cache_with_why_one_cannot_be_used() {
        let place = tempfile::tempdir().unwrap();
        let put = |folder: &str, files: &[(&str, &str)]| {
            let folder = place.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                fs::write(folder.join(name), text).unwrap();
            }
        };
        let other = [("config.json", "{\"model_type\": \"mamba\"}"), ("model.safetensors", "")];
        put("data/models/gpt", &other);
        put("data/web", &[("config.json", "{}")]);
        put("hub/models--org--name/snapshots/abc", &other);
        put("hub/models--org--name/snapshots/old", &other);
        put("hub/models--org--name/refs", &[("main", "abc\n")]);
        put("hub/models--org--two/snapshots/abc", &other);
        put("hub/models--org--two/snapshots/old", &other);
        put("hub/datasets--org--rows/snapshots/abc", &other);
        put("hub/models--org--half/snapshots/abc", &other[..1]);
        let data = place.path().join("data");
        let places = ModelPlaces {
            folders: vec![data.clone(), data.join("models")],
            hub: Some(place.path().join("hub")),
        };
        let found = places.search();
        let names: Vec<&str> = found.iter().map(|model| model.name.as_str()).collect();
        let gpt = data.join("models/gpt");
        assert_eq!(names, [gpt.to_str().unwrap(), "org/half", "org/name", "org/two"]);
        assert!(found[2].path.ends_with("snapshots/abc") && found[2].is_cached);
        let reasons = [1, 3].map(|place: usize| found[place].shape.as_ref().unwrap_err().as_str());
        let expected = [
            "its download is not complete: there are no weights",
            "there are several versions, and none is main",
        ];
        assert_eq!(reasons, expected);
        let reason = found[0].shape.as_ref().unwrap_err();
        assert!(reason.contains("mamba"), "{reason}");
    }
}
