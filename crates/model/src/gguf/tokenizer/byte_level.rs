//! Byte-level BPE: pieces are spelt in an alphabet of 256 letters, one for each byte, and merged in
//! the order of a list.

use serde_json::{Value, json};

use super::pieces::{Kind, Pieces, Rules};
use crate::error::ModelError;
use crate::gguf::metadata::Metadata;

const MERGES: &str = "tokenizer.ggml.merges";
const CUT: &str = "tokenizer.ggml.pre";

/// How LLaMA 3 cuts text: contractions, words, up to three digits, signs, line ends, blanks.
const LLAMA3: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}\
                      | ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/// How a text is cut before pieces are merged.
#[derive(Clone, Copy)]
enum Cut {
    /// GPT-2: words, numbers and signs, each with the blank before it.
    Gpt2,
    /// The same, and each digit alone.
    SingleDigits,
    /// LLaMA 3; a word that is a piece is not merged from smaller ones.
    Llama3,
}

pub(super) fn rules(metadata: &Metadata, pieces: &Pieces<'_>) -> Result<Rules, ModelError> {
    let cut = match metadata.text(CUT)? {
        Some("gpt-2") => Cut::Gpt2,
        Some("smollm" | "starcoder" | "refact" | "command-r" | "codeshell") => Cut::SingleDigits,
        Some("llama-bpe" | "llama3" | "llama-v3") => Cut::Llama3,
        Some(_) | None => {
            let expected = "one of gpt-2, smollm, starcoder, refact, command-r, codeshell, \
                            llama-bpe, llama3, llama-v3";
            return Err(metadata.refuse(CUT, expected));
        }
    };
    let merges = metadata.texts(MERGES)?;
    let merges = merges.ok_or_else(|| metadata.refuse(MERGES, "a list of merges"))?;
    let pairs: Option<Vec<(&str, &str)>> = merges.iter().map(|m| m.split_once(' ')).collect();
    let pairs = pairs
        .ok_or_else(|| metadata.refuse(MERGES, "pairs of pieces with a blank between them"))?;
    let known = |piece: &str| pieces.by_text.contains_key(piece);
    if let Some((left, right)) = pairs
        .iter()
        .find(|(left, right)| !(known(left) && known(right) && known_pair(pieces, left, right)))
    {
        let expected = format!("merges of pieces, and {left:?} with {right:?} makes none");
        return Err(metadata.refuse(MERGES, expected));
    }
    let level = |cuts: bool| {
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
               "use_regex": cuts})
    };
    let sequence = |parts: [Value; 2]| json!({"type": "Sequence", "pretokenizers": parts});
    let pre_tokenizer = match cut {
        Cut::Gpt2 => level(true),
        Cut::SingleDigits => {
            sequence([json!({"type": "Digits", "individual_digits": true}), level(true)])
        }
        Cut::Llama3 => sequence([
            json!({"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated",
                   "invert": false}),
            level(false),
        ]),
    };
    let ignore_merges = matches!(cut, Cut::Llama3);
    Ok(Rules {
        normalizer: Value::Null,
        pre_tokenizer,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                        "use_regex": true}),
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": ignore_merges,
            "vocab": pieces.by_text, "merges": pairs,
        }),
        begins: ignore_merges,
    })
}

/// Whether two pieces together are a piece that texts have.
fn known_pair(pieces: &Pieces<'_>, left: &str, right: &str) -> bool {
    let id = pieces.by_text.get(format!("{left}{right}").as_str());
    id.is_some_and(|&id| pieces.kinds[id] != Kind::Control)
}
