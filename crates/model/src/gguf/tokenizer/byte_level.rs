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

/// How Qwen 2 does: the same, with each digit alone.
const QWEN2: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}\
                     | ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/// How Mistral Nemo does: a word also ends where capitals begin, and each digit is alone.
const TEKKEN: &str = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+\
     |[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}\
     | ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/// Rules by the names that files have for them.
struct Rule {
    names: &'static [&'static str],
    cut: Cut,
    /// Whether letters are composed first.
    composed: bool,
    /// Whether a word that is a piece is not merged from smaller ones.
    whole_words: bool,
    /// Whether a text begins with a token of its own unless the file says otherwise.
    begins: bool,
}

/// How a text is cut before pieces are merged.
#[derive(Clone, Copy)]
enum Cut {
    /// GPT-2: words, numbers and signs, each with the blank before it.
    Gpt2,
    /// The same, and each digit alone.
    SingleDigits,
    /// By a pattern.
    Pattern(&'static str),
}

const PLAIN: Rule =
    Rule { names: &[], cut: Cut::Gpt2, composed: false, whole_words: false, begins: false };

const RULES: [Rule; 7] = [
    Rule { names: &["gpt-2"], ..PLAIN },
    Rule { names: &["olmo"], composed: true, ..PLAIN },
    Rule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        cut: Cut::SingleDigits,
        ..PLAIN
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        cut: Cut::Pattern(LLAMA3),
        whole_words: true,
        begins: true,
        ..PLAIN
    },
    Rule { names: &["dbrx", "smaug-bpe"], cut: Cut::Pattern(LLAMA3), ..PLAIN },
    Rule { names: &["qwen2"], cut: Cut::Pattern(QWEN2), composed: true, ..PLAIN },
    Rule {
        names: &["tekken"],
        cut: Cut::Pattern(TEKKEN),
        whole_words: true,
        begins: true,
        ..PLAIN
    },
];

pub(super) fn rules(metadata: &Metadata, pieces: &Pieces<'_>) -> Result<Rules, ModelError> {
    let name = metadata.text(CUT)?;
    let is_meant = |rule: &&Rule| name.is_some_and(|name| rule.names.contains(&name));
    let rule = RULES.iter().find(is_meant).ok_or_else(|| {
        let names: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
        metadata.refuse(CUT, format!("one of {}", names.join(", ")))
    })?;
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
    let pre_tokenizer = match rule.cut {
        Cut::Gpt2 => level(true),
        Cut::SingleDigits => {
            sequence([json!({"type": "Digits", "individual_digits": true}), level(true)])
        }
        Cut::Pattern(pattern) => sequence([
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                   "invert": false}),
            level(false),
        ]),
    };
    Ok(Rules {
        normalizer: if rule.composed { json!({"type": "NFC"}) } else { Value::Null },
        pre_tokenizer,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                        "use_regex": true}),
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": rule.whole_words,
            "vocab": pieces.by_text, "merges": pairs,
        }),
        begins: rule.begins,
    })
}

/// Whether two pieces together are a piece that texts have.
fn known_pair(pieces: &Pieces<'_>, left: &str, right: &str) -> bool {
    let id = pieces.by_text.get(format!("{left}{right}").as_str());
    id.is_some_and(|&id| pieces.kinds[id] != Kind::Control)
}
