//! Typed access to one JSON object, with errors that name the key, its value and what was expected.

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::family::Family;

/// Largest accepted sizes. All are several times what published models have, and small enough that
/// the product of any two is far from overflowing.
pub mod limit {
    /// Rows of a token embedding.
    pub const VOCABULARY: usize = 1 << 24;
    /// Width of hidden states, and inside a feed-forward layer.
    pub const WIDTH: usize = 1 << 18;
    /// Blocks.
    pub const BLOCKS: usize = 1 << 10;
    /// Attention heads of a block.
    pub const HEADS: usize = 1 << 12;
    /// Positions.
    pub const POSITIONS: usize = 1 << 26;
    /// Rows of a segment embedding.
    pub const SEGMENTS: usize = 1 << 10;
    /// Rows or columns of pixels.
    pub const IMAGE_SIDE: usize = 1 << 13;
    /// Numbers of a pixel.
    pub const CHANNELS: usize = 1 << 8;
    /// Tokens in front of an image's patches.
    pub const REGISTERS: usize = 1 << 10;
}

/// The deviation of new weights unless the file says otherwise.
pub const INITIALIZER_RANGE: f64 = 0.02;

/// What is expected where weights are quantised.
pub const UNQUANTISED: &str = "weights stored as F32, F16 or BF16";

/// A JSON object of a configuration file. A key that is `null` counts as absent, as it does in
/// Python.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub path: &'a Path,
    pub object: &'a Map<String, Value>,
    /// Prefix of the keys in messages, for nested objects.
    pub within: &'a str,
    /// Whose names its keys have, once that is known.
    pub family: Option<&'static Family>,
}

impl<'a> Fields<'a> {
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.entry(key).filter(|value| !value.is_null())
    }

    /// The value under the family's name of a key, if only `null`.
    fn entry(&self, key: &str) -> Option<&'a Value> {
        self.object.get(self.key(key))
    }

    pub fn key<'k>(&self, key: &'k str) -> &'k str {
        self.family.map_or(key, |family| family.key(key))
    }

    /// The error that `key` does not hold what was expected.
    pub fn refuse(&self, key: &str, expected: impl Into<String>) -> ModelError {
        let found = self.entry(key).map_or("nothing".into(), Value::to_string);
        let key = format!("{}{}", self.within, self.key(key));
        ModelError::config(self.path, &key, found, expected)
    }

    /// A whole number that must be present.
    pub fn size(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, ModelError> {
        self.get(key)
            .and_then(Value::as_u64)
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (low, high) = range.into_inner();
                self.refuse(key, format!("a whole number from {low} to {high}"))
            })
    }

    /// A whole number that may be absent.
    pub fn size_or(
        &self,
        key: &str,
        range: RangeInclusive<usize>,
        absent: usize,
    ) -> Result<usize, ModelError> {
        if self.get(key).is_none() { Ok(absent) } else { self.size(key, range) }
    }

    /// A finite number above zero.
    pub fn positive_or(&self, key: &str, absent: f64) -> Result<f64, ModelError> {
        let Some(value) = self.get(key) else { return Ok(absent) };
        value
            .as_f64()
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| self.refuse(key, "a finite number above zero"))
    }

    /// The same; absent where the file says `null`.
    pub fn positive(&self, key: &str, absent: Option<f64>) -> Result<Option<f64>, ModelError> {
        match self.entry(key) {
            None => Ok(absent),
            Some(Value::Null) => Ok(None),
            Some(_) => self.positive_or(key, 0.0).map(Some),
        }
    }

    /// Whether the file has a key and says that it is nothing.
    pub fn is_null(&self, key: &str) -> bool {
        self.entry(key).is_some_and(Value::is_null)
    }

    pub fn flag_or(&self, key: &str, absent: bool) -> Result<bool, ModelError> {
        let Some(value) = self.get(key) else { return Ok(absent) };
        value.as_bool().ok_or_else(|| self.refuse(key, "true or false"))
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.refuse(key, "a string"))
    }

    /// A nested object.
    pub fn object(&self, key: &'a str) -> Result<Option<&'a Map<String, Value>>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.refuse(key, "an object"))
    }

    /// A token's number, or none where the file says `null`; some old files say -1 for none.
    pub fn token_or(&self, key: &str, absent: Option<u32>) -> Result<Option<u32>, ModelError> {
        let Some(value) = self.entry(key) else { return Ok(absent) };
        if value.is_null() || value.as_i64() == Some(-1) {
            return Ok(None);
        }
        token(value).map(Some).ok_or_else(|| self.refuse(key, "a token's number"))
    }

    /// The token that fills short rows, which must have a row in the embedding.
    pub fn padding_or(
        &self,
        absent: Option<u32>,
        vocabulary: usize,
    ) -> Result<Option<u32>, ModelError> {
        let key = "pad_token_id";
        let token = self.token_or(key, absent)?;
        if token.is_some_and(|token| token as usize >= vocabulary) {
            return Err(self.refuse(key, format!("a token below vocab_size, {vocabulary}")));
        }
        Ok(token)
    }

    /// One token's number, or a list of them.
    pub fn tokens_or(&self, key: &str, absent: Option<u32>) -> Result<Vec<u32>, ModelError> {
        let Some(Value::Array(list)) = self.entry(key) else {
            return Ok(self.token_or(key, absent)?.into_iter().collect());
        };
        let tokens: Option<Vec<u32>> = list.iter().map(token).collect();
        tokens.ok_or_else(|| self.refuse(key, "tokens' numbers"))
    }

    /// A string that has one supported value, which is also what its absence means.
    pub fn only(&self, key: &str, supported: &str) -> Result<(), ModelError> {
        self.one_of(key, &[supported])
    }

    /// A string that has several names for the one supported thing, which its absence means too.
    pub fn one_of(&self, key: &str, names: &[&str]) -> Result<(), ModelError> {
        match self.text(key)? {
            Some(text) if !names.contains(&text) => {
                let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                Err(self.refuse(key, quoted.join(" or ")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A flag that would need code this crate does not have.
    pub fn must_be_false(&self, key: &str) -> Result<(), ModelError> {
        if self.flag_or(key, false)? { Err(self.refuse(key, "false")) } else { Ok(()) }
    }

    /// Refuses weights that are not what they are stored as.
    pub fn refuse_quantised(&self) -> Result<(), ModelError> {
        let key = "quantization_config";
        let Some(value) = self.get(key) else { return Ok(()) };
        let flag = |name: &str| value[name] == Value::Bool(true);
        let method = match value["quant_method"].as_str() {
            Some(method) => method,
            // What its files said before they named themselves.
            None if flag("load_in_4bit") || flag("load_in_8bit") => "bitsandbytes",
            None => "by a method that it does not name",
        };
        let found = format!("a quantised checkpoint ({method})");
        Err(ModelError::config(self.path, key, found, UNQUANTISED))
    }
}

fn token(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}
