//! The JSON header of a safetensors file, checked. The `safetensors` crate says what a tensor is and
//! that all of them together cover the data without overlap or gap; what it takes on trust is
//! checked here: names that come twice or cannot be printed, the number of tensors and dimensions,
//! and the data bytes the file really has. So a header can neither make us allocate nor read
//! outside the file, and a refusal names the tensor.
//!
//! ```text
//! | header length: u64 le | header: JSON, padded with spaces | data: the tensors, back to back |
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ::safetensors::SafeTensorError;
use ::safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

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
    pub tensors: BTreeMap<String, TensorInfo>,
    /// Free-form text, such as `format: pt`.
    pub metadata: BTreeMap<String, String>,
}

impl Header {
    /// Parses `json` and checks it against `data_length`, the bytes that follow it in the file at
    /// `path`.
    pub fn parse(path: &Path, json: &[u8], data_length: u64) -> Result<Self, ModelError> {
        if json.first() != Some(&b'{') {
            return Err(ModelError::file(path, "a header that does not begin with `{`", "JSON"));
        }
        let header: Self = serde_json::from_slice(json)
            .map_err(|e| ModelError::file(path, format!("header: {e}"), "a safetensors header"))?;
        for (name, info) in &header.tensors {
            check_tensor(name, info, data_length)
                .map_err(|(found, expected)| ModelError::tensor(path, name, found, expected))?;
        }
        header.check_cover(path, data_length)?;
        Ok(header)
    }

    /// Every byte of the data belongs to exactly one tensor.
    fn check_cover(&self, path: &Path, data_length: u64) -> Result<(), ModelError> {
        let mut in_order: Vec<(String, TensorInfo)> =
            self.tensors.iter().map(|(name, info)| (name.clone(), info.clone())).collect();
        in_order.sort_by_key(|(_, info)| info.data_offsets);
        let covered = Metadata::new(None, in_order).map_err(|error| {
            let SafeTensorError::InvalidOffset(name) = &error else {
                return ModelError::file(path, error.to_string(), "tensors that cover the data");
            };
            let begin = self.tensors.get(name).map_or(0, |info| info.data_offsets.0);
            let found = format!("data beginning at byte {begin}, an overlap or a gap");
            ModelError::tensor(path, name, found, "it where the tensor before it ends")
        })?;
        if covered.data_len() as u64 != data_length {
            return Err(ModelError::file(
                path,
                format!("{data_length} bytes of data"),
                format!("{}, the sum of all tensors in the header", covered.data_len()),
            ));
        }
        Ok(())
    }
}

/// What is wrong with one tensor by itself: what was found and what was expected.
fn check_tensor(name: &str, info: &TensorInfo, data_length: u64) -> Result<(), (String, String)> {
    let (begin, end) = info.data_offsets;
    if begin > end || end as u64 > data_length {
        return Err((
            format!("data_offsets [{begin}, {end}]"),
            format!("an ascending range within {data_length} bytes of data"),
        ));
    }
    if info.shape.len() > MAX_RANK {
        return Err((
            format!("{} dimensions", info.shape.len()),
            format!("at most {MAX_RANK} dimensions"),
        ));
    }
    // Asked about the tensor alone, the crate's answer is about this tensor.
    let alone = TensorInfo { data_offsets: (0, end - begin), ..info.clone() };
    Metadata::new(None, vec![(name.to_owned(), alone)]).map(drop).map_err(|_| {
        let needed = format!("as many as {} of shape {:?} needs", info.dtype, info.shape);
        (format!("{} bytes of data", end - begin), needed)
    })
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one entry per tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
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
                    let info: TensorInfo =
                        map.next_value().map_err(|e| A::Error::custom(about(&name, &e)))?;
                    if tensors.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    if tensors.contains_key(&name) {
                        return Err(A::Error::custom(format!("a second tensor {name:?}")));
                    }
                    tensors.insert(name, info);
                }
                Ok(Header { tensors, metadata: metadata.unwrap_or_default() })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// What the crate says about an entry, with the tensor's name. The format calls a variant a dtype.
fn about(name: &str, error: &impl fmt::Display) -> String {
    let said = error.to_string();
    let unknown = said.strip_prefix("unknown variant ");
    if let Some(dtype) = unknown.and_then(|rest| rest.split(", expected").next()) {
        return format!("tensor {name:?}: dtype {dtype}, which the format does not have");
    }
    let said = said.replace("struct TensorInfo", "an object of dtype, shape and data_offsets");
    format!("tensor {name:?}: {said}")
}

/// Tensor names end up in messages and reports, so they are short and printable.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!("a tensor name of {} bytes, not 1 to {MAX_NAME}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("a control character in the tensor name {name:?}"));
    }
    Ok(())
}
