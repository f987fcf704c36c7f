//! The weights of a model folder, whether in one file or in shards: by name, as if there were only
//! one file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fedra_compute::{Quantisation, QuantisedMatrix};
use serde::Deserialize;

use super::file;
use super::safetensors::Reader;
use super::tensors::{Info, Tensors};
use super::unique::Unique;
use crate::error::ModelError;

pub use fedra_files::model_folder::{INDEX, WEIGHTS as SINGLE};

/// Largest index file; that of a 400-billion-parameter model has a tenth of this.
const MAX_INDEX: u64 = 32 << 20;
/// Most shards: each holds a file open.
const MAX_SHARDS: usize = 512;

/// All tensors of a model folder.
#[derive(Debug)]
pub struct Weights {
    /// The file that lists the tensors: the index, or the single weights file.
    path: PathBuf,
    shards: Vec<Box<dyn Tensors>>,
    /// Which shard holds a tensor.
    places: BTreeMap<String, usize>,
}

impl Weights {
    /// Opens `model.safetensors`, or else every shard of `model.safetensors.index.json`, and checks
    /// headers.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        let single = dir.join(SINGLE);
        if single.exists() {
            return Ok(Self::single(Box::new(Reader::open(single)?)));
        }
        let index = dir.join(INDEX);
        if index.exists() {
            return Self::sharded(dir, index);
        }
        let has = |ending: &str| {
            let mut files = std::fs::read_dir(dir).into_iter().flatten().flatten();
            files.any(|file| file.file_name().to_string_lossy().ends_with(ending))
        };
        let found = if has(".gguf") {
            "only a quantised checkpoint (gguf)"
        } else if has(".bin") || has(".pt") || has(".pth") {
            "only pickled PyTorch weights"
        } else {
            "neither"
        };
        let expected = if has(".gguf") {
            format!("{SINGLE} or {INDEX}, or the path of the GGUF file itself")
        } else {
            format!("{SINGLE} or {INDEX}")
        };
        Err(ModelError::file(dir, found, expected))
    }

    /// The tensors of one file.
    pub(crate) fn single(tensors: Box<dyn Tensors>) -> Self {
        let path = tensors.path().to_path_buf();
        let places = tensors.names().map(|name| (name.to_owned(), 0)).collect();
        Self { path, shards: vec![tensors], places }
    }

    fn sharded(dir: &Path, path: PathBuf) -> Result<Self, ModelError> {
        let index: Index = serde_json::from_slice(&file::read(&path, MAX_INDEX)?)
            .map_err(|e| ModelError::file(&path, e.to_string(), "an index of shards"))?;
        let tensor_error = |tensor: &str, found: String, expected: &str| {
            ModelError::tensor(&path, tensor, found, expected)
        };
        let weight_map = index.weight_map.0;
        for (tensor, shard) in &weight_map {
            if !is_plain_file_name(shard) {
                let found = format!("shard {shard:?}");
                return Err(tensor_error(tensor, found, "a plain file name in the same folder"));
            }
        }
        let files: BTreeSet<&String> = weight_map.values().collect();
        if files.is_empty() || files.len() > MAX_SHARDS {
            let found = format!("{} shards", files.len());
            return Err(ModelError::file(&path, found, format!("1 to {MAX_SHARDS}")));
        }
        let mut shards: Vec<Box<dyn Tensors>> = Vec::new();
        let mut places = BTreeMap::new();
        for file in files {
            let reader = Reader::open(dir.join(file))?;
            for tensor in reader.names() {
                if let Some(other) = places.insert(tensor.to_owned(), shards.len()) {
                    let other = shards[other].path().display();
                    let found = format!("it in both {other} and {file}");
                    return Err(tensor_error(tensor, found, "one shard that holds it"));
                }
                if weight_map.get(tensor) != Some(file) {
                    let listed = weight_map.get(tensor).map_or("nowhere", String::as_str);
                    let found = format!("it in {file}");
                    let expected = format!("it where the index has it: {listed}");
                    return Err(tensor_error(tensor, found, &expected));
                }
            }
            shards.push(Box::new(reader));
        }
        if let Some((tensor, shard)) = weight_map.iter().find(|(t, _)| !places.contains_key(*t)) {
            return Err(tensor_error(tensor, format!("no such tensor in {shard}"), "it there"));
        }
        Ok(Self { path, shards, places })
    }

    /// The file that lists the tensors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Type and shape of a tensor, if there is one of this name. A tensor of a GGUF file counts as
    /// F32, which is what it is read as.
    pub fn info(&self, name: &str) -> Option<Info<'_>> {
        self.shards[*self.places.get(name)?].info(name)
    }

    /// The file that holds a tensor, or the list of tensors when none does.
    pub fn path_of(&self, name: &str) -> &Path {
        self.places.get(name).map_or(&self.path, |&shard| self.shards[shard].path())
    }

    /// The values of a tensor stored as F32, F16 or BF16.
    pub fn read_f32(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let Some(&shard) = self.places.get(name) else {
            let expected = "one of the folder's tensors";
            return Err(ModelError::tensor(&self.path, name, "no such tensor", expected));
        };
        self.shards[shard].read_f32(name)
    }

    /// The values of a tensor that is stored as BF16, in that precision; `None` for any other.
    pub(crate) fn read_bf16(&self, name: &str) -> Result<Option<Vec<u16>>, ModelError> {
        let Some(&shard) = self.places.get(name) else { return Ok(None) };
        self.shards[shard].read_bf16(name)
    }

    /// A matrix that the file has quantised, if it is one of these many bits or fewer.
    pub(crate) fn read_quantised(
        &self,
        name: &str,
        most: Quantisation,
    ) -> Result<Option<QuantisedMatrix>, ModelError> {
        let Some(&shard) = self.places.get(name) else { return Ok(None) };
        self.shards[shard].read_quantised(name, most)
    }

    /// The first element in which two tensors of one shape differ, read a piece at a time so that
    /// neither is ever held whole.
    pub fn first_difference(&self, one: &str, other: &str) -> Result<Option<usize>, ModelError> {
        const PIECE: usize = 1 << 18;
        let shard = |name: &str| self.places.get(name).map(|&shard| &self.shards[shard]);
        let (Some(left), Some(right)) = (shard(one), shard(other)) else {
            let expected = "two of the folder's tensors";
            return Err(ModelError::tensor(&self.path, one, "no such tensor", expected));
        };
        let mut start = 0;
        loop {
            let part = start..start + PIECE;
            let (a, b) = (left.read_part(one, part.clone())?, right.read_part(other, part)?);
            if let Some(at) = a.iter().zip(&b).position(|(a, b)| a.to_bits() != b.to_bits()) {
                return Ok(Some(start + at));
            }
            if a.len() != b.len() {
                return Ok(Some(start + a.len().min(b.len())));
            }
            if a.len() < PIECE {
                return Ok(None);
            }
            start += PIECE;
        }
    }
}

/// No folder, drive or parent: what stays in the folder it is joined to.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.starts_with('.')
        && !name.contains(|c: char| matches!(c, '/' | '\\' | ':') || c.is_control())
}

#[derive(Deserialize)]
struct Index {
    /// Tensor name to shard.
    weight_map: Unique,
}
