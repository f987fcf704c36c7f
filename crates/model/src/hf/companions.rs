//! The files beside the weights that another library needs to use a model: its tokenizer above all.
//! They are kept as bytes and written back unchanged, because nothing here has reason to alter
//! them. A tokenizer without its `tokenizer_config.json` gets one when it is saved: without it other
//! libraries know neither the model's longest sequence nor which token pads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use fedra_files::model_folder::TOKENIZER_CONFIG;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::file;
use crate::config::Config;
use crate::error::ModelError;

pub use fedra_files::model_folder::{CHAT_TEMPLATE, COMPANIONS as NAMES, PROCESSOR, TOKENIZER};

/// Companions that are not JSON: words one a line, merges, what `SentencePiece` trained, and a template.
const NOT_JSON: [&str; 4] = ["vocab.txt", "merges.txt", "tokenizer.model", CHAT_TEMPLATE];

/// The usual names of special tokens, by what a configuration calls them.
const SPECIALS: [(&str, &[&str]); 6] = [
    ("pad_token", &["[PAD]", "<pad>", "<|pad|>"]),
    ("cls_token", &["[CLS]"]),
    ("sep_token", &["[SEP]"]),
    ("mask_token", &["[MASK]", "<mask>"]),
    ("bos_token", &["<s>", "<|begin_of_text|>", "<|startoftext|>"]),
    ("eos_token", &["</s>", "<|end_of_text|>", "<|endoftext|>"]),
];

/// What a model with token types is given.
const INPUTS: [&str; 3] = ["input_ids", "token_type_ids", "attention_mask"];

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

    /// Only an image processor, for a model made in code.
    pub fn with_processor(json: Vec<u8>) -> Result<Self, ModelError> {
        let mut companions = Self::default();
        companions.insert(Path::new(PROCESSOR), PROCESSOR, json)?;
        Ok(companions)
    }

    /// Files that were made from what `path` says.
    pub(crate) fn made(
        path: &Path,
        files: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Self, ModelError> {
        let mut companions = Self::default();
        for (name, text) in files {
            companions.insert(path, name, text.into_bytes())?;
        }
        Ok(companions)
    }

    /// The same with this chat template, which counts more than any that the tokenizer's configuration has.
    #[must_use]
    pub fn with_chat_template(mut self, template: &str) -> Self {
        self.0.insert(CHAT_TEMPLATE, template.into());
        self
    }

    /// The same with the chat template that adapters in a folder were trained with, where one lies beside them.
    pub fn beside_adapters(mut self, dir: &Path) -> Result<Self, ModelError> {
        let path = dir.join(CHAT_TEMPLATE);
        if path.exists() {
            self.insert(&path, CHAT_TEMPLATE, file::read(&path, MAX_BYTES)?)?;
        }
        Ok(self)
    }

    /// The bytes of `tokenizer.json`.
    pub fn tokenizer(&self) -> Option<&[u8]> {
        self.get(TOKENIZER)
    }

    /// The bytes of `preprocessor_config.json`.
    pub fn processor(&self) -> Option<&[u8]> {
        self.get(PROCESSOR)
    }

    /// The bytes of a companion.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The names of those present, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// The same, with a configuration of the tokenizer made for the model where there is none. One
    /// that does not say whether an encoder is given token types says so from then on.
    pub fn completed(&self, config: &Config) -> Cow<'_, Self> {
        let made = match (self.tokenizer(), self.get(TOKENIZER_CONFIG)) {
            (Some(tokenizer), None) => Some(tokenizer_config(tokenizer, config)),
            (Some(_), Some(given)) => with_token_types(given, config),
            (None, _) => None,
        };
        let Some(made) = made else { return Cow::Borrowed(self) };
        let mut whole = self.clone();
        whole.0.insert(TOKENIZER_CONFIG, made.into_bytes());
        Cow::Owned(whole)
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
            other if NOT_JSON.contains(&other) => (Ok(()), "any bytes"),
            _ => (serde_json::from_slice::<IgnoredAny>(&bytes).map(drop), "JSON"),
        };
        result.map_err(|e| ModelError::file(path, e.to_string(), expected))?;
        self.0.insert(name, bytes);
        Ok(())
    }
}

/// The configuration of an encoder's tokenizer with the names of its inputs, if neither they nor a class that brings
/// some are given.
fn with_token_types(given: &[u8], config: &Config) -> Option<String> {
    let has_types = !config.causal && config.type_vocab_size > 1;
    let mut given: Value = serde_json::from_slice(given).ok()?;
    let is_told = given.get("model_input_names").is_some() || given["tokenizer_class"].is_string();
    if !has_types || is_told {
        return None;
    }
    given["model_input_names"] = json!(INPUTS);
    serde_json::to_string_pretty(&given).ok()
}

/// What other libraries have to know about a tokenizer beside its own file.
fn tokenizer_config(tokenizer: &[u8], config: &Config) -> String {
    let tokenizer: Value = serde_json::from_slice(tokenizer).unwrap_or_default();
    let inputs = if config.causal || config.type_vocab_size < 2 {
        &["input_ids", "attention_mask"][..]
    } else {
        &INPUTS[..]
    };
    let mut made = json!({
        "clean_up_tokenization_spaces": false,
        "model_input_names": inputs,
        "model_max_length": config.max_position_embeddings,
        "tokenizer_class": "PreTrainedTokenizerFast",
    });
    let model = &tokenizer["model"];
    let unknown =
        model["unk_id"].as_u64().and_then(|id| model["vocab"].get(usize::try_from(id).ok()?));
    if let Some(token) = model["unk_token"].as_str().or(unknown.and_then(|piece| piece[0].as_str()))
    {
        made["unk_token"] = json!(token);
    }
    let added = tokenizer["added_tokens"].as_array();
    let added: Vec<&str> =
        added.into_iter().flatten().filter_map(|token| token["content"].as_str()).collect();
    for (key, names) in SPECIALS {
        if let Some(name) = names.iter().find(|name| added.contains(name)) {
            made[key] = json!(name);
        }
    }
    format!("{made:#}\n")
}

/// The least a tokenizer must have. That it works is for the library that builds it to say.
#[derive(Deserialize)]
struct Tokenizer {
    #[serde(rename = "model")]
    _model: IgnoredAny,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;

    #[test]
    fn a_tokenizer_without_a_configuration_gets_one_and_another_keeps_its_own() {
        let tokenizer = json!({"model": {"type": "Unigram", "unk_id": 1, "vocab": [["<s>", 0.0], ["<unk>", 0.0]]},
            "added_tokens": [{"id": 0, "content": "<s>", "special": true}]});
        let bare = Companions::with_tokenizer(tokenizer.to_string().into_bytes()).unwrap();
        let config = Preset::Tiny.config();
        let whole = bare.completed(&config);
        let made: Value = serde_json::from_slice(whole.get(TOKENIZER_CONFIG).unwrap()).unwrap();
        assert_eq!(made["model_max_length"], json!(config.max_position_embeddings));
        assert_eq!((&made["unk_token"], &made["bos_token"]), (&json!("<unk>"), &json!("<s>")));
        assert_eq!(made["model_input_names"][1], "token_type_ids");
        assert!(made.get("pad_token").is_none());

        let with = |given: &[u8]| {
            let mut own = bare.clone();
            own.insert(Path::new(TOKENIZER_CONFIG), TOKENIZER_CONFIG, given.to_vec()).unwrap();
            own
        };
        for told in [
            &br#"{"tokenizer_class":"BertTokenizer"}"#[..],
            br#"{"tokenizer_class":"TokenizersBackend"}"#,
            br#"{"model_input_names":[]}"#,
        ] {
            assert_eq!(with(told).completed(&config).as_ref(), &with(told));
        }
        // Without a word about its inputs, other libraries would leave token types out.
        let own = with(br#"{"padding_side":"left"}"#);
        let own: Value =
            serde_json::from_slice(own.completed(&config).get(TOKENIZER_CONFIG).unwrap()).unwrap();
        assert_eq!(own["padding_side"], "left");
        assert_eq!(own["model_input_names"][1], "token_type_ids");
        assert_eq!(Companions::default().completed(&config).as_ref(), &Companions::default());
    }
}
