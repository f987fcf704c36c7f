//! Writing one safetensors file. Its bytes depend only on the tensors and the precision: tensors
//! lie sorted by name, so two machines that hold the same model save the same file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::dtype::Precision;
use super::file;
use super::header::{METADATA, check_name};
use crate::error::ModelError;

/// The format asks that the data begin at a multiple of this.
const ALIGNMENT: usize = 8;
/// Elements converted at once, so that a tensor is never held twice.
const CHUNK: usize = 1 << 18;

/// A tensor to be written, without its values: the header comes first and needs only these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Name in the file.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// Writes tensors that are all in memory. The file appears under `path` only when it is complete.
///
/// ```
/// use fedra_model::hf::{Tensors as _, dtype::Precision, safetensors::Reader, writer};
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("model.safetensors");
/// writer::write(&path, [("bias", &[2][..], &[0.5, 1.5][..])], Precision::F16)?;
/// assert_eq!(Reader::open(&path)?.read_f32("bias")?, [0.5, 1.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (&'a str, &'a [usize], &'a [f32])>,
    precision: Precision,
) -> Result<(), ModelError> {
    let mut outlines = Vec::new();
    let mut values = BTreeMap::new();
    for (name, shape, slice) in tensors {
        outlines.push(Outline { name: name.to_owned(), shape: shape.to_vec() });
        values.insert(name.to_owned(), slice);
    }
    stream(path, outlines, precision, |name| Ok(Cow::Borrowed(values[name])))
}

/// Writes tensors whose values are fetched one at a time, in the order of their names.
pub fn stream<'a>(
    path: &Path,
    mut outlines: Vec<Outline>,
    precision: Precision,
    mut values: impl FnMut(&str) -> Result<Cow<'a, [f32]>, ModelError>,
) -> Result<(), ModelError> {
    outlines.sort_by(|a, b| a.name.cmp(&b.name));
    let header = header(path, &outlines, precision)?;
    file::write(path, |out| {
        let write_error = ModelError::io("write", path);
        out.write_all(&(header.len() as u64).to_le_bytes())
            .and_then(|()| out.write_all(&header))
            .map_err(write_error)?;
        for outline in &outlines {
            write_tensor(path, out, outline, &values(&outline.name)?, precision)?;
        }
        Ok(())
    })
}

fn write_tensor(
    path: &Path,
    out: &mut dyn Write,
    outline: &Outline,
    values: &[f32],
    precision: Precision,
) -> Result<(), ModelError> {
    let elements: usize = outline.shape.iter().product();
    if values.len() != elements {
        let found = format!("{} values", values.len());
        let expected = format!("{elements} for shape {:?}", outline.shape);
        return Err(ModelError::tensor(path, &outline.name, found, expected));
    }
    let mut bytes = Vec::with_capacity(elements.min(CHUNK) * precision.width());
    for chunk in values.chunks(CHUNK) {
        bytes.clear();
        precision.encode(chunk, &mut bytes).map_err(|value| {
            let expected = format!("a value within the range of {}", precision.dtype());
            ModelError::tensor(path, &outline.name, value.to_string(), expected)
        })?;
        out.write_all(&bytes).map_err(ModelError::io("write", path))?;
    }
    Ok(())
}

/// The header of sorted outlines, padded with spaces.
fn header(path: &Path, outlines: &[Outline], precision: Precision) -> Result<Vec<u8>, ModelError> {
    let mut entries = Map::new();
    // Other libraries refuse files that do not say which framework's layout they use.
    entries.insert(METADATA.to_owned(), json!({ "format": "pt" }));
    let (dtype, width) = (precision.dtype().to_string(), precision.width());
    let mut begin = 0;
    for Outline { name, shape } in outlines {
        check_name(name)
            .map_err(|found| ModelError::tensor(path, name, found, "a short printable name"))?;
        let bytes = shape.iter().try_fold(width, |product, &dim| product.checked_mul(dim));
        let end = bytes.and_then(|bytes| bytes.checked_add(begin)).ok_or_else(|| {
            let found = format!("shape {shape:?}");
            ModelError::tensor(path, name, found, "a size this machine can address")
        })?;
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, end] });
        if entries.insert(name.clone(), entry).is_some() {
            let found = "a second tensor of this name";
            return Err(ModelError::tensor(path, name, found, "distinct names"));
        }
        begin = end;
    }
    let mut bytes = Value::Object(entries).to_string().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), b' ');
    Ok(bytes)
}
