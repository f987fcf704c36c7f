//! The files beside the weights that another library needs to use a model: its tokenizer above all.
//! They are kept as bytes and written back unchanged, because nothing here has reason to alter
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::file;
use crate::error::ModelError;

/// The tokenizer in one file.
pub const TOKENIZER: &str = "tokenizer.json";

/// The words of an older tokenizer, one a line; the only companion that is not JSON.
const VOCABULARY: &str = "vocab.txt";

/// The files carried along.
pub const NAMES: [&str; 5] = [
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    VOCABULARY,
    "generation_config.json",
];

/// Largest companion; the tokenizer of a 250,000-word vocabulary has a third of this.
const MAX_BYTES: u64 = 64 << 20;

/// The companion files of a model folder, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Companions(BTreeMap<&'static str, Vec<u8>>);

impl Companions {
    /// Reads those that a folder has.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        let mut companions = Self::default();
        for name in NAMES {
            let path = dir.join(name);
            if path.exists() {
                companions.insert(&path, name, file::read(&path, MAX_BYTES)?)?;
            }
        }
        Ok(companions)
    }

    /// Only a tokenizer, for a model made in code.
    pub fn with_tokenizer(json: Vec<u8>) -> Result<Self, ModelError> {
        let mut companions = Self::default();
        companions.insert(Path::new(TOKENIZER), TOKENIZER, json)?;
        Ok(companions)
    }

    /// The bytes of `tokenizer.json`.
    pub fn tokenizer(&self) -> Option<&[u8]> {
        self.get(TOKENIZER)
    }

    /// The bytes of a companion.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The names of those present, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Writes them into a folder.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        for (name, bytes) in &self.0 {
            let path = dir.join(name);
            file::write(&path, |out| out.write_all(bytes).map_err(ModelError::io("write", &path)))?;
        }
        Ok(())
    }

    fn insert(
        &mut self,
        path: &Path,
        name: &'static str,
        bytes: Vec<u8>,
    ) -> Result<(), ModelError> {
        let (result, expected) = match name {
            TOKENIZER => {
                let parsed = serde_json::from_slice::<Tokenizer>(&bytes).map(drop);
                (parsed, "a JSON object with a `model`")
            }
            VOCABULARY => (Ok(()), "any text"),
            _ => (serde_json::from_slice::<IgnoredAny>(&bytes).map(drop), "JSON"),
        };
        result.map_err(|e| ModelError::file(path, e.to_string(), expected))?;
        self.0.insert(name, bytes);
        Ok(())
    }
}

/// The least a tokenizer must have. That it works is for the library that builds it to say.
#[derive(Deserialize)]
struct Tokenizer {
    #[serde(rename = "model")]
    _model: IgnoredAny,
}
