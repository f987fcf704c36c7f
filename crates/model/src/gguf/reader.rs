//! An open file: its header in memory, its values read a piece at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::block::BlockType;
use super::cursor::Cursor;
use super::metadata::Metadata;
use super::placed::{self, Placed};
use crate::error::ModelError;
use crate::hf::file;
use fedra_compute::{ComputeError, Quantisation, QuantisedMatrix};

/// Most bytes of a header; its bulk is the vocabulary and its merges, and the largest published
/// have a tenth of this.
const MAX_HEADER: u64 = 256 << 20;
/// How every file begins.
const MAGIC: [u8; 4] = *b"GGUF";
/// Where tensors begin unless the file says otherwise: a multiple of this.
const ALIGNMENT: u64 = 32;
/// How many blocks of a tensor are held in their stored form at once.
const BLOCKS_AT_ONCE: usize = 1 << 12;

/// An open GGUF file whose header has been checked.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    /// Behind a lock because reading moves the one cursor the file has.
    file: Mutex<File>,
    metadata: Metadata,
    tensors: BTreeMap<String, Placed>,
    data_start: u64,
}

impl Reader {
    /// Opens `path` and checks its header.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let (file, length) = file::open(path)?;
        let mut cursor = Cursor::new(path, BufReader::new(&file), length.min(MAX_HEADER));
        let magic = if length < 4 { [0; 4] } else { cursor.bytes()? };
        if magic != MAGIC {
            let found = format!("a file that begins with {:?}", magic.escape_ascii().to_string());
            return Err(ModelError::file(path, found, "a GGUF file, or a folder with a model"));
        }
        match cursor.u32()? {
            2 | 3 => {}
            other => {
                let found = if matches!(other.swap_bytes(), 1..=3) {
                    "a big-endian file".to_owned()
                } else {
                    format!("version {other} of the format")
                };
                return Err(ModelError::file(path, found, "version 2 or 3, little-endian"));
            }
        }
        let (tensor_count, key_count) = (cursor.u64()?, cursor.u64()?);
        let metadata = Metadata::read(path, &mut cursor, key_count)?;
        if metadata.count("split.count")?.is_some_and(|count| count > 1) {
            return Err(metadata.refuse("split.count", "a model in one file"));
        }
        let tensors = placed::read(path, &mut cursor, tensor_count)?;
        let alignment = metadata.count("general.alignment")?.unwrap_or(ALIGNMENT);
        if alignment == 0 || !alignment.is_multiple_of(8) || alignment > 1 << 20 {
            let expected = "a multiple of 8 of at most a MiB";
            return Err(metadata.refuse("general.alignment", expected));
        }
        let data_start = cursor.position().next_multiple_of(alignment);
        placed::check(path, &tensors, (alignment, length.saturating_sub(data_start)))?;
        let path = path.to_path_buf();
        Ok(Self { path, file: Mutex::new(file), metadata, tensors, data_start })
    }

    /// The file this reads.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// How a tensor is stored, and its dimensions, outermost first.
    pub fn info(&self, name: &str) -> Option<(BlockType, &[usize])> {
        self.tensors.get(name).map(|placed| (placed.block_type, placed.shape.as_slice()))
    }

    /// The values of a tensor.
    pub fn read_f32(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let Some(placed) = self.tensors.get(name) else {
            let expected = "one of the file's tensors";
            return Err(ModelError::tensor(&self.path, name, "no such tensor", expected));
        };
        let (width, block) = (placed.block_type.bytes(), placed.block_type.elements());
        let elements: usize = placed.shape.iter().product();
        let mut values = Vec::with_capacity(elements);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let start = SeekFrom::Start(self.data_start + placed.offset);
        file.seek(start).map_err(ModelError::io("seek in", &self.path))?;
        let mut left = elements / block;
        let mut chunk = vec![0; left.min(BLOCKS_AT_ONCE) * width];
        while left > 0 {
            let blocks = left.min(BLOCKS_AT_ONCE);
            let bytes = &mut chunk[..blocks * width];
            file.read_exact(bytes).map_err(ModelError::io("read", &self.path))?;
            placed.block_type.decode(bytes, &mut values);
            left -= blocks;
        }
        Ok(values)
    }

    /// A matrix of blocks of 32 as it is stored, if its integers have these many bits or fewer.
    pub fn read_quantised(
        &self,
        name: &str,
        most: Quantisation,
    ) -> Result<Option<QuantisedMatrix>, ModelError> {
        let Some(Placed { block_type, shape, offset, .. }) = self.tensors.get(name) else {
            return Ok(None);
        };
        let kind = block_type.quantisation();
        let (Some(kind), &[rows, cols]) = (kind, &shape[..]) else { return Ok(None) };
        if kind == Quantisation::Int8 && most == Quantisation::Int4 {
            return Ok(None);
        }
        let (width, blocks) = (block_type.bytes(), rows * cols / block_type.elements());
        let mut quants = Vec::with_capacity(blocks * kind.bytes());
        let mut scales = Vec::with_capacity(blocks * kind.scales());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let start = SeekFrom::Start(self.data_start + offset);
        file.seek(start).map_err(ModelError::io("seek in", &self.path))?;
        let mut left = blocks;
        let mut chunk = vec![0; left.min(BLOCKS_AT_ONCE) * width];
        while left > 0 {
            let now = left.min(BLOCKS_AT_ONCE);
            let bytes = &mut chunk[..now * width];
            file.read_exact(bytes).map_err(ModelError::io("read", &self.path))?;
            block_type.split(bytes, (&mut quants, &mut scales));
            left -= now;
        }
        let made = QuantisedMatrix::from_blocks(kind, (rows, cols), quants, scales);
        let refused = |error: ComputeError| {
            ModelError::tensor(&self.path, name, error.to_string(), "finite numbers")
        };
        made.map(Some).map_err(refused)
    }

    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Frees the metadata, of which the vocabulary is the bulk.
    pub(super) fn forget_metadata(&mut self) {
        self.metadata = Metadata::default();
    }
}
