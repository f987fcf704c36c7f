//! BERT's tokenizer as a `tokenizer.json`: a list of pieces under BERT's rules.
//!
//! Both a vocabulary grown here and a folder that has only `vocab.txt` become this file, so that one
//! reader serves all and what is saved loads in Hugging Face's libraries.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The marks of a continuation and the longest word with pieces, as BERT has them.
const CONTINUATION: &str = "##";
const LONGEST_WORD: usize = 100;

/// What a BERT vocabulary leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bert {
    /// Everything in lower case.
    pub lowercase: bool,
    /// Drop accents; absent means as `lowercase`.
    pub strip_accents: Option<bool>,
    /// Each Chinese character is a word.
    pub chinese: bool,
    /// The names of padding, unknown, start, separator and mask.
    pub names: [String; 5],
}

impl Default for Bert {
    /// The uncased rules.
    fn default() -> Self {
        let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
        Self { lowercase: true, strip_accents: None, chinese: true, names }
    }
}

impl Bert {
    /// The file of these pieces, numbered as they stand; the name of a missing token otherwise.
    pub fn to_json(&self, pieces: &[String]) -> Result<Value, String> {
        let vocabulary: BTreeMap<&str, usize> =
            pieces.iter().enumerate().map(|(id, piece)| (piece.as_str(), id)).collect();
        let added: Vec<Value> = self
            .names
            .iter()
            .filter_map(|name| Some((name, vocabulary.get(name.as_str())?)))
            .map(|(name, id)| {
                json!({"id": id, "content": name, "single_word": false, "lstrip": false,
                       "rstrip": false, "normalized": false, "special": true})
            })
            .collect();
        let number = |name: &String| vocabulary.get(name.as_str()).ok_or_else(|| name.clone());
        let [_, unknown, start, end, _] = &self.names;
        number(unknown)?;
        let special = |name: &String| {
            Ok::<_, String>(json!({"id": name, "ids": [number(name)?], "tokens": [name]}))
        };
        let token = |name: &str, kind: u8| json!({"SpecialToken": {"id": name, "type_id": kind}});
        let sequence = |name: &str, kind: u8| json!({"Sequence": {"id": name, "type_id": kind}});
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": true,
                "handle_chinese_chars": self.chinese,
                "strip_accents": self.strip_accents,
                "lowercase": self.lowercase,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [token(start, 0), sequence("A", 0), token(end, 0)],
                "pair": [token(start, 0), sequence("A", 0), token(end, 0),
                         sequence("B", 1), token(end, 1)],
                "special_tokens": {(start): special(start)?, (end): special(end)?},
            },
            "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": true},
            "model": {
                "type": "WordPiece",
                "unk_token": unknown,
                "continuing_subword_prefix": CONTINUATION,
                "max_input_chars_per_word": LONGEST_WORD,
                "vocab": vocabulary,
            },
        }))
    }
}
