//! The JSON header of a safetensors file, checked. Nothing in it is believed before it has been
//! compared with the number of data bytes the file really has, so a header can neither make us
//! allocate nor read outside the file.
//!
//! ```text
//! | header length: u64 le | header: JSON, padded with spaces | data: the tensors, back to back |
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::dtype::Dtype;
use super::unique::Unique;
use crate::error::ModelError;

/// The format's own limit on the header, in bytes.
pub const MAX_HEADER: u64 = 100_000_000;
/// Most dimensions a tensor may have; Transformers need two.
pub const MAX_RANK: usize = 8;
/// Most tensors in one file; the largest published checkpoints have under a thousand per shard.
pub const MAX_TENSORS: usize = 1 << 18;
/// Longest tensor name, in bytes.
pub const MAX_NAME: usize = 1024;

/// The key of the free-form text that is not a tensor.
pub const METADATA: &str = "__metadata__";

/// A header whose tensors cover the data exactly: no overlap, no gap, nothing outside.
#[derive(Debug)]
pub struct Header {
    /// The tensors by name.
    pub tensors: BTreeMap<String, Entry>,
    /// Free-form text, such as `format: pt`.
    pub metadata: BTreeMap<String, String>,
}

/// One tensor's type, shape and place in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the data.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Entry {
    /// Number of elements, from the bytes: a zero-size shape may have dimensions whose product
    /// overflows.
    pub fn elements(&self) -> usize {
        (self.end - self.begin) as usize / self.dtype.width()
    }
}

impl Header {
    /// Parses `json` and checks it against `data_length`, the bytes that follow it in the file at
    /// `path`.
    pub fn parse(path: &Path, json: &[u8], data_length: u64) -> Result<Self, ModelError> {
        if json.first() != Some(&b'{') {
            return Err(ModelError::file(path, "a header that does not begin with `{`", "JSON"));
        }
        let raw: RawHeader = serde_json::from_slice(json)
            .map_err(|e| ModelError::file(path, format!("header: {e}"), "a safetensors header"))?;
        let mut tensors = BTreeMap::new();
        for (name, raw) in raw.tensors {
            let entry = raw
                .check(data_length)
                .map_err(|(found, expected)| ModelError::tensor(path, &name, found, expected))?;
            tensors.insert(name, entry);
        }
        check_cover(path, &tensors, data_length)?;
        Ok(Self { tensors, metadata: raw.metadata })
    }
}

/// Every byte of the data belongs to exactly one tensor.
fn check_cover(
    path: &Path,
    tensors: &BTreeMap<String, Entry>,
    data_length: u64,
) -> Result<(), ModelError> {
    let mut in_order: Vec<_> = tensors.iter().collect();
    in_order.sort_by_key(|(_, entry)| (entry.begin, entry.end));
    let mut covered = 0;
    for (name, entry) in in_order {
        if entry.begin != covered {
            let kind = if entry.begin < covered { "an overlap" } else { "a gap" };
            let found = format!("{kind}: data beginning at byte {}", entry.begin);
            let expected = format!("byte {covered}, where the tensor before it ends");
            return Err(ModelError::tensor(path, name, found, expected));
        }
        covered = entry.end;
    }
    if covered != data_length {
        return Err(ModelError::file(
            path,
            format!("{data_length} bytes of data"),
            format!("{covered}, the sum of all tensors in the header"),
        ));
    }
    Ok(())
}

struct RawHeader {
    tensors: BTreeMap<String, RawEntry>,
    metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: String,
    shape: RawShape,
    data_offsets: (u64, u64),
}

impl RawEntry {
    /// The checked entry, or what was found and what was expected.
    fn check(self, data_length: u64) -> Result<Entry, (String, String)> {
        let Some(dtype) = Dtype::parse(&self.dtype) else {
            return Err((format!("dtype {:?}", self.dtype), "a dtype of the format".into()));
        };
        let (begin, end) = self.data_offsets;
        if begin > end || end > data_length {
            return Err((
                format!("data_offsets [{begin}, {end}]"),
                format!("an ascending range within {data_length} bytes of data"),
            ));
        }
        let shape = self.shape.0;
        // Zero is absorbing, so a zero-size shape has no overflow whatever its other dimensions
        // say.
        let bytes = if shape.contains(&0) {
            Some(0)
        } else {
            shape.iter().try_fold(dtype.width() as u64, |product, &dim| product.checked_mul(dim))
        };
        if bytes != Some(end - begin) {
            let bytes = bytes.map_or("more than 2^64".into(), |b| b.to_string());
            return Err((
                format!("{} bytes of data", end - begin),
                format!("{bytes} for {} of shape {shape:?}", dtype.name()),
            ));
        }
        let shape = shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<_, _>>();
        let shape = shape.map_err(|_| ("a dimension beyond this machine".into(), "less".into()))?;
        Ok(Entry { dtype, shape, begin, end })
    }
}

/// A shape that stops reading after [`MAX_RANK`] dimensions instead of collecting a hostile list.
struct RawShape(Vec<u64>);

impl<'de> Deserialize<'de> for RawShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Dims;
        impl<'de> Visitor<'de> for Dims {
            type Value = RawShape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_RANK} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawShape, A::Error> {
                let mut dims = Vec::new();
                while let Some(dim) = list.next_element()? {
                    if dims.len() == MAX_RANK {
                        return Err(A::Error::custom(format!("more than {MAX_RANK} dimensions")));
                    }
                    dims.push(dim);
                }
                Ok(RawShape(dims))
            }
        }
        deserializer.deserialize_seq(Dims)
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one entry per tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut tensors = BTreeMap::new();
                let mut metadata = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        let text: Unique = map.next_value()?;
                        if metadata.replace(text.0).is_some() {
                            return Err(A::Error::custom("a second __metadata__"));
                        }
                        continue;
                    }
                    check_name(&name).map_err(A::Error::custom)?;
                    let entry: RawEntry = map
                        .next_value()
                        .map_err(|e| A::Error::custom(format!("tensor {name:?}: {e}")))?;
                    if tensors.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    if tensors.contains_key(&name) {
                        return Err(A::Error::custom(format!("a second tensor {name:?}")));
                    }
                    tensors.insert(name, entry);
                }
                Ok(RawHeader { tensors, metadata: metadata.unwrap_or_default() })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Tensor names end up in messages and reports, so they are short and printable.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!("a tensor name of {} bytes, not 1 to {MAX_NAME}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("a control character in the tensor name {name:?}"));
    }
    Ok(())
}
