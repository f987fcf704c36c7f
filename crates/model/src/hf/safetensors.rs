//! Reading one safetensors file. The file is read, never mapped: a mapped file that shrinks under a
//! running program kills it, and converting to f32 copies anyway.
//!
//! Opening checks the whole header against the length of the file; reading a tensor afterwards
//! takes the memory of its values and one small buffer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ::safetensors::tensor::TensorInfo;

use super::dtype::Precision;
use super::file;
use super::header::{Header, MAX_HEADER};
use super::tensors::{Info, Tensors};
use crate::error::ModelError;
use fedra_compute::{Quantisation, QuantisedMatrix};

/// Bytes of the header's length, at the start of the file.
const LENGTH_BYTES: u64 = 8;
/// How much of a tensor is held in its stored form at once; a multiple of every element width.
const CHUNK: usize = 1 << 20;

/// An open safetensors file whose header has been checked.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    /// Behind a lock because reading moves the one cursor the file has.
    file: Mutex<File>,
    header: Header,
    data_start: u64,
}

impl Reader {
    /// Opens `path` and checks its header. Takes memory for the header only, and only after its
    /// length was compared with the length of the file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ModelError> {
        let path = path.into();
        let (mut file, length) = file::open(&path)?;
        let Some(after_length) = length.checked_sub(LENGTH_BYTES) else {
            return Err(ModelError::file(
                &path,
                format!("{length} bytes"),
                format!("a safetensors file, which has at least {LENGTH_BYTES}"),
            ));
        };
        let mut length_bytes = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length_bytes).map_err(ModelError::io("read", &path))?;
        let header_length = u64::from_le_bytes(length_bytes);
        let limit = after_length.min(MAX_HEADER);
        if header_length > limit {
            return Err(ModelError::file(
                &path,
                format!("a header of {header_length} bytes"),
                format!("at most {limit} in a file of {length}: the file is cut off or damaged"),
            ));
        }
        let mut json = vec![0; header_length as usize];
        file.read_exact(&mut json).map_err(ModelError::io("read", &path))?;
        let header = Header::parse(&path, &json, after_length - header_length)?;
        let data_start = LENGTH_BYTES + header_length;
        Ok(Self { path, file: Mutex::new(file), header, data_start })
    }

    /// Free-form text of the header, such as `format: pt`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    fn readable(&self, name: &str) -> Result<(&TensorInfo, Precision), ModelError> {
        let Some(info) = self.header.tensors.get(name) else {
            return Err(self.tensor_error(name, "no such tensor", "one of the file's tensors"));
        };
        match Precision::of(info.dtype) {
            Some(precision) => Ok((info, precision)),
            None => Err(self.tensor_error(name, &info.dtype.to_string(), "F32, F16 or BF16")),
        }
    }

    /// Reads some of a tensor's elements, piece by piece.
    fn read_pieces(
        &self,
        info: &TensorInfo,
        precision: Precision,
        part: Range<usize>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), ModelError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let first = info.data_offsets.0 + part.start * precision.width();
        let start = SeekFrom::Start(self.data_start + first as u64);
        file.seek(start).map_err(ModelError::io("seek in", &self.path))?;
        let mut left = part.len() * precision.width();
        let mut chunk = vec![0; left.min(CHUNK)];
        while left > 0 {
            let part = &mut chunk[..left.min(CHUNK)];
            file.read_exact(part).map_err(ModelError::io("read", &self.path))?;
            take(part);
            left -= part.len();
        }
        Ok(())
    }

    /// Room for all elements of a tensor. A sparse file may be larger than memory: that is an error, not an abort.
    fn room<T>(&self, name: &str, elements: usize) -> Result<Vec<T>, ModelError> {
        let mut values = Vec::new();
        values.try_reserve_exact(elements).map_err(|_| {
            self.tensor_error(name, &format!("{elements} elements"), "as many as fit in memory")
        })?;
        Ok(values)
    }

    fn tensor_error(&self, name: &str, found: &str, expected: &str) -> ModelError {
        ModelError::tensor(&self.path, name, found, expected)
    }
}

impl Tensors for Reader {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.header.tensors.keys().map(String::as_str))
    }

    fn info(&self, name: &str) -> Option<Info<'_>> {
        let entry = self.header.tensors.get(name)?;
        Some(Info { dtype: entry.dtype, shape: &entry.shape })
    }

    fn read_f32(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let (info, precision) = self.readable(name)?;
        let elements = elements(info, precision);
        let mut values = self.room(name, elements)?;
        self.read_pieces(info, precision, 0..elements, |bytes| {
            precision.decode(bytes, &mut values);
        })?;
        Ok(values)
    }

    fn read_bf16(&self, name: &str) -> Result<Option<Vec<u16>>, ModelError> {
        let (info, precision) = self.readable(name)?;
        if precision != Precision::BF16 {
            return Ok(None);
        }
        let elements = elements(info, precision);
        let mut halves = self.room(name, elements)?;
        self.read_pieces(info, precision, 0..elements, |bytes| {
            halves.extend(bytes.as_chunks().0.iter().map(|half| u16::from_le_bytes(*half)));
        })?;
        Ok(Some(halves))
    }

    /// Other libraries' quantised tensors are refused before they are read.
    fn read_quantised(
        &self,
        _: &str,
        _: Quantisation,
    ) -> Result<Option<QuantisedMatrix>, ModelError> {
        Ok(None)
    }

    fn read_part(&self, name: &str, part: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let (info, precision) = self.readable(name)?;
        let end = part.end.min(elements(info, precision));
        let mut values = Vec::new();
        self.read_pieces(info, precision, part.start.min(end)..end, |bytes| {
            precision.decode(bytes, &mut values);
        })?;
        Ok(values)
    }
}

/// Number of elements, from the bytes: what the file really has.
fn elements(info: &TensorInfo, precision: Precision) -> usize {
    (info.data_offsets.1 - info.data_offsets.0) / precision.width()
}
