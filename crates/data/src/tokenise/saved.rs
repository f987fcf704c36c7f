//! `tokenizer.json` of a `WordPiece` tokenizer, and what all kinds share in reading one.
//!
//! What is written loads in Hugging Face's libraries. What is read must be `WordPiece` under
//! BERT's rules; anything else is refused rather than half understood.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::Tokenizer;
use super::WordTokenizer;
use super::bert::Cleaning;
use crate::{DataError, Result};

/// A vocabulary of a million pieces is about 30 MB; more than this is not a tokenizer.
const LARGEST_FILE: u64 = 256 << 20;
const EXPECTED: &str = "a WordPiece tokenizer under BERT's rules";

pub(super) fn to_json(tokenizer: &WordTokenizer) -> String {
    let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let vocabulary: BTreeMap<&str, usize> =
        tokenizer.vocabulary().iter().enumerate().map(|(id, piece)| (piece.as_str(), id)).collect();
    let added: Vec<Value> = names
        .iter()
        .filter_map(|name| Some((name, vocabulary.get(name)?)))
        .map(|(name, id)| {
            json!({"id": id, "content": name, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let specials = tokenizer.specials();
    let special = |name: &str, id: Option<u32>| json!({"id": name, "ids": [id], "tokens": [name]});
    let token = |name: &str, kind: u8| json!({"SpecialToken": {"id": name, "type_id": kind}});
    let sequence = |name: &str, kind: u8| json!({"Sequence": {"id": name, "type_id": kind}});
    let cleaning = tokenizer.cleaning;
    let whole = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": cleaning.clean_text,
            "handle_chinese_chars": cleaning.handle_chinese_chars,
            "strip_accents": cleaning.strip_accents,
            "lowercase": cleaning.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0)],
            "pair": [token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0),
                     sequence("B", 1), token("[SEP]", 1)],
            "special_tokens": {
                "[CLS]": special("[CLS]", specials.start),
                "[SEP]": special("[SEP]", specials.end),
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.longest_word,
            "vocab": vocabulary,
        },
    });
    serde_json::to_string_pretty(&whole).expect("a JSON value always prints")
}

/// The text of a file of a reasonable size.
pub(super) fn text(path: &Path) -> Result<String> {
    let size = fs::metadata(path).map_err(|e| DataError::io("open", path, e))?.len();
    if size > LARGEST_FILE {
        let (file, limit) = (path.to_owned(), LARGEST_FILE);
        return Err(DataError::TooLarge { file, line: 1, what: "expanded data", limit });
    }
    fs::read_to_string(path).map_err(|e| DataError::io("read", path, e))
}

/// The type of the model in a file; old files leave it out, and only BPE has merges.
pub(super) fn model_kind(path: &Path) -> Result<String> {
    #[derive(Deserialize)]
    struct Outer {
        model: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        #[serde(rename = "type")]
        kind: Option<String>,
        merges: Option<serde::de::IgnoredAny>,
    }
    let text = text(path)?;
    let outer: Outer = serde_json::from_str(&text)
        .map_err(|error| DataError::file(path, error.to_string(), "a tokenizer.json"))?;
    let usual = if outer.model.merges.is_some() { "BPE" } else { "WordPiece" };
    Ok(outer.model.kind.unwrap_or_else(|| usual.to_owned()))
}

pub(super) fn open(path: &Path) -> Result<WordTokenizer> {
    let text = text(path)?;
    let refuse = |found: String| DataError::file(path, found, EXPECTED);
    let file: File = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    if file.model.kind.as_deref() != Some("WordPiece")
        || file.model.continuing_subword_prefix.as_deref() != Some("##")
    {
        return Err(refuse(format!("a model of type {:?}", file.model.kind)));
    }
    if file.normalizer.kind != "BertNormalizer" || file.pre_tokenizer.kind != "BertPreTokenizer" {
        let kinds = (file.normalizer.kind, file.pre_tokenizer.kind);
        return Err(refuse(format!("the rules {} and {}", kinds.0, kinds.1)));
    }
    let mut pieces = vec![None; file.model.vocab.len()];
    for (piece, id) in file.model.vocab {
        match pieces.get_mut(id as usize) {
            Some(slot @ None) => *slot = Some(piece),
            Some(Some(_)) | None => {
                return Err(refuse(format!("piece {piece:?} with the number {id}")));
            }
        }
    }
    let pieces: Vec<String> = pieces.into_iter().flatten().collect();
    let longest = file.model.max_input_chars_per_word;
    WordTokenizer::from_pieces(pieces, file.normalizer.cleaning, longest)
        .map_err(|name| refuse(format!("no token {name}")))
}

#[derive(Deserialize)]
struct File {
    normalizer: Normalizer,
    pre_tokenizer: Kind,
    model: Model,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    cleaning: Cleaning,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    continuing_subword_prefix: Option<String>,
    #[serde(default = "hundred")]
    max_input_chars_per_word: usize,
    vocab: BTreeMap<String, u32>,
}

fn hundred() -> usize {
    100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopened(json: &str) -> Result<WordTokenizer> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        fs::write(&path, json).unwrap();
        WordTokenizer::open(&path)
    }

    #[test]
    fn a_saved_tokenizer_opens_as_itself() {
        let tokenizer = WordTokenizer::grow(["no chest pain , no \"cough\""], 100).unwrap();
        assert_eq!(reopened(&tokenizer.to_json().unwrap()).unwrap(), tokenizer);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let json = WordTokenizer::grow(["abc abc"], 40).unwrap().to_json().unwrap();
        let refused = |from: &str, to: &str| {
            assert!(json.contains(from));
            let error = reopened(&json.replace(from, to)).unwrap_err();
            assert!(matches!(error, DataError::File { .. }), "{error}");
            error.to_string()
        };
        assert!(refused("\"WordPiece\",\n    \"unk", "\"BPE\",\n    \"unk").contains("BPE"));
        assert!(refused("BertPreTokenizer", "Whitespace").contains("Whitespace"));
        assert!(refused("\"[CLS]\": 2", "\"[CLS]\": 1").contains("number"));
        assert!(refused("\"[CLS]\": 2", "\"[CLX]\": 2").contains("no token [CLS]"));
        assert!(refused("\"[CLS]\": 2", "\"[CLS]\": 4000000000").contains("4000000000"));
    }
}
