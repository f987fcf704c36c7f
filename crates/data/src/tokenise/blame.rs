//! What is wrong with a `tokenizer.json` that the library does not take.
//!
//! The library's own words name Rust types. Here the file is looked at section by section, so that a
//! message says which part of it stands there and what could stand there instead.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
};

use crate::error::Mismatch;

/// The file as JSON, if it has what every tokenizer has and its numbers make sense.
pub(super) fn whole(json: &str) -> Result<Value, Mismatch> {
    let whole: Value = serde_json::from_str(json)
        .map_err(|error| (format!("no JSON ({error})"), "a tokenizer.json".to_owned()))?;
    let Some(model) = whole.get("model").filter(|model| model.is_object()) else {
        return Err(("no `model`".to_owned(), "a JSON object with a `model`".to_owned()));
    };
    if let Some(dropout) = model["dropout"].as_f64().filter(|dropout| *dropout > 0.0) {
        let expected = "no dropout: random pieces would differ from run to run";
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

/// Which section of a file does not read, and what its reader says of it.
pub(super) fn section(whole: &Value, error: &str) -> Mismatch {
    let readers: [(&str, Reader); 5] = [
        ("normalizer", failure::<NormalizerWrapper>),
        ("pre_tokenizer", failure::<PreTokenizerWrapper>),
        ("post_processor", failure::<PostProcessorWrapper>),
        ("decoder", failure::<DecoderWrapper>),
        ("model", failure::<ModelWrapper>),
    ];
    let blamed = readers.into_iter().find_map(|(key, read)| blame(key, read, &whole[key]));
    let expected = "what Hugging Face's tokenizers read".to_owned();
    (blamed.unwrap_or_else(|| format!("a file that cannot be read ({error})")), expected)
}

/// What a section's own reader says of a value that it does not read.
type Reader = fn(&Value) -> Option<String>;

fn failure<T: DeserializeOwned>(value: &Value) -> Option<String> {
    serde_json::from_value::<T>(value.clone()).err().map(|error| error.to_string())
}

/// The innermost part of a section that does not read.
fn blame(key: &str, read: Reader, value: &Value) -> Option<String> {
    let error = if value.is_null() { None } else { read(value) }?;
    if value["type"] == "Sequence" {
        let lists = value.as_object().into_iter().flatten().filter_map(|(_, list)| list.as_array());
        if let Some(inner) = lists.flatten().find_map(|part| blame(key, read, part)) {
            return Some(inner);
        }
    }
    // That no variant of an enum fits is said by the type.
    let why = if error.contains("variant") { String::new() } else { format!(" ({error})") };
    Some(format!("a {key} of type {}{why}", value["type"]))
}

/// The types that a section has, those inside a `Sequence` included.
pub(super) fn kinds(section: &Value) -> Vec<&str> {
    let own = section["type"].as_str();
    let lists = ["normalizers", "pretokenizers", "decoders"].into_iter();
    let inner = lists.flat_map(|list| section[list].as_array().into_iter().flatten());
    own.into_iter().chain(inner.flat_map(kinds)).collect()
}
