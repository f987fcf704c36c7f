//! What is wrong with a `tokenizer.json` that the library does not take.
//!
//! The library's own words name Rust types. Here the file is looked at section by section, so that a
//! message says which part of it stands there and what could stand there instead.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
};

/// Found, expected.
pub(super) type Complaint = (String, String);

/// A section: its key, the key of the list inside a `Sequence` of it, and the types there are.
struct Section {
    key: &'static str,
    list: &'static str,
    kinds: &'static [&'static str],
    reads: fn(Value) -> Result<(), String>,
}

const SECTIONS: [Section; 5] = [
    Section {
        key: "normalizer",
        list: "normalizers",
        kinds: &[
            "BertNormalizer",
            "Strip",
            "StripAccents",
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Sequence",
            "Lowercase",
            "Nmt",
            "Precompiled",
            "Replace",
            "Prepend",
            "ByteLevel",
        ],
        reads: reads::<NormalizerWrapper>,
    },
    Section {
        key: "pre_tokenizer",
        list: "pretokenizers",
        kinds: &[
            "BertPreTokenizer",
            "ByteLevel",
            "CharDelimiterSplit",
            "Metaspace",
            "Whitespace",
            "Sequence",
            "Split",
            "Punctuation",
            "WhitespaceSplit",
            "Digits",
            "UnicodeScripts",
            "FixedLength",
        ],
        reads: reads::<PreTokenizerWrapper>,
    },
    Section {
        key: "post_processor",
        list: "processors",
        kinds: &[
            "RobertaProcessing",
            "BertProcessing",
            "ByteLevel",
            "TemplateProcessing",
            "Sequence",
        ],
        reads: reads::<PostProcessorWrapper>,
    },
    Section {
        key: "decoder",
        list: "decoders",
        kinds: &[
            "BPEDecoder",
            "ByteLevel",
            "WordPiece",
            "Metaspace",
            "CTC",
            "Sequence",
            "Replace",
            "Fuse",
            "Strip",
            "ByteFallback",
        ],
        reads: reads::<DecoderWrapper>,
    },
    Section {
        key: "model",
        list: "",
        kinds: &["BPE", "WordPiece", "WordLevel", "Unigram"],
        reads: reads::<ModelWrapper>,
    },
];

fn reads<T: DeserializeOwned>(value: Value) -> Result<(), String> {
    serde_json::from_value::<T>(value).map(drop).map_err(|error| error.to_string())
}

/// The file as JSON, if it has what every tokenizer has and its numbers make sense.
pub(super) fn whole(json: &str) -> Result<Value, Complaint> {
    let whole: Value = serde_json::from_str(json)
        .map_err(|error| (format!("no JSON ({error})"), "a tokenizer.json".to_owned()))?;
    let Some(model) = whole.get("model").filter(|model| model.is_object()) else {
        return Err(("no `model`".to_owned(), "a JSON object with a `model`".to_owned()));
    };
    if let Some(dropout) = model["dropout"].as_f64().filter(|dropout| *dropout > 0.0) {
        let expected = "no dropout: pieces drawn at random would differ from run to run";
        return Err((format!("a model with dropout {dropout}"), expected.to_owned()));
    }
    let mut taken = std::collections::BTreeMap::new();
    for (piece, id) in model["vocab"].as_object().into_iter().flatten() {
        if let Some(other) = taken.insert(id.as_u64(), piece) {
            let found = format!("{other:?} and {piece:?} with the same number {id}");
            return Err((found, "a number for each piece of the vocabulary".to_owned()));
        }
    }
    Ok(whole)
}

/// The section that does not read, given what the library said about the whole.
pub(super) fn section(whole: &Value, error: &str) -> Complaint {
    let blamed = SECTIONS.iter().find_map(|section| section.blame(&whole[section.key]));
    blamed.unwrap_or_else(|| {
        (format!("a file that does not read ({error})"), "a tokenizer.json".into())
    })
}

/// The types that a section has, those inside a `Sequence` included.
pub(super) fn kinds(section: &Value) -> Vec<&str> {
    let own = section["type"].as_str();
    let lists = ["normalizers", "pretokenizers"].into_iter();
    let inner = lists.flat_map(|list| section[list].as_array().into_iter().flatten());
    own.into_iter().chain(inner.flat_map(kinds)).collect()
}

impl Section {
    fn blame(&self, value: &Value) -> Option<Complaint> {
        if value.is_null() && self.key != "model" {
            return None;
        }
        let error = (self.reads)(value.clone()).err()?;
        // A sequence is as good as its parts; the part says more.
        let parts = value.get(self.list).and_then(Value::as_array);
        if let Some(complaint) = parts.into_iter().flatten().find_map(|part| self.blame(part)) {
            return Some(complaint);
        }
        // The library's words about its own types say nothing about the file.
        let why = if error.contains("variant") { String::new() } else { format!(" ({error})") };
        if let Value::String(kind) = &value["type"]
            && self.kinds.contains(&kind.as_str())
        {
            let settings = value.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            let settings: Vec<&str> = settings.filter(|name| *name != "type").collect();
            let found =
                format!("a {} of type {kind} with [{}]{why}", self.key, settings.join(", "));
            return Some((found, format!("settings that make a {kind}")));
        }
        let found = format!("a {} of type {}{why}", self.key, value["type"]);
        let expected = format!("one of {}", self.kinds.join(", "));
        Some((found, expected))
    }
}
