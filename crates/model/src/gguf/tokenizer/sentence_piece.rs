//! `SentencePiece` BPE: a blank is the letter `▁`, a letter without a piece is written in bytes, and
//! of two pieces side by side those merge first whose union has the highest score.
//!
//! A file has the scores and no list of merges, so the list is made: every way to cut a piece into
//! two pieces, by falling score.

use serde_json::json;

use super::pieces::{Kind, Pieces, Rules, TOKENS};
use crate::error::ModelError;
use crate::gguf::metadata::Metadata;

const SCORES: &str = "tokenizer.ggml.scores";
/// Longest piece in bytes; each has as many cuts. The longest of LLaMA 2 has 48.
const LONGEST: usize = 1 << 10;

pub(super) fn rules(metadata: &Metadata, pieces: &Pieces<'_>) -> Result<Rules, ModelError> {
    let scores = metadata.numbers(SCORES)?.filter(|scores| scores.len() == pieces.tokens.len());
    let scores = scores.ok_or_else(|| {
        metadata.refuse(SCORES, format!("one for each of the {} pieces", pieces.tokens.len()))
    })?;
    if let Some(long) = pieces.tokens.iter().find(|token| token.len() > LONGEST) {
        let expected = format!("pieces of at most {LONGEST} bytes, not of {}", long.len());
        return Err(metadata.refuse(TOKENS, expected));
    }
    let blank = "\u{2581}";
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": blank});
    let prepends = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let normalizer = if prepends {
        let prepend = json!({"type": "Prepend", "prepend": blank});
        json!({"type": "Sequence", "normalizers": [prepend, replace]})
    } else {
        replace
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": blank}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prepends {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    Ok(Rules {
        normalizer,
        pre_tokenizer: json!(null),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: json!({
            "type": "BPE", "dropout": null,
            "unk_token": pieces.unknown.map(|id| &pieces.tokens[id]),
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
            "byte_fallback": pieces.kinds.contains(&Kind::Byte), "ignore_merges": false,
            "vocab": pieces.by_text, "merges": merges(pieces, &scores),
        }),
        begins: true,
    })
}

/// Every way to cut a piece of text into two pieces, by falling score; of those that make the same
/// score, longer first parts come first.
fn merges<'m>(pieces: &Pieces<'m>, scores: &[f64]) -> Vec<(&'m str, &'m str)> {
    let is_text =
        |id: usize| matches!(pieces.kinds[id], Kind::Normal | Kind::UserDefined | Kind::Unused);
    let number = |piece: &str| pieces.by_text.get(piece).copied().filter(|&id| is_text(id));
    let mut cuts = Vec::new();
    for (id, &token) in pieces.tokens.iter().enumerate().filter(|(id, _)| is_text(*id)) {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(first), Some(second)) = (number(left), number(right)) {
                let lengths = (left.chars().count(), right.chars().count());
                cuts.push((scores[id], lengths, (id, first, second), (left, right)));
            }
        }
    }
    cuts.sort_by(|a, b| {
        b.0.total_cmp(&a.0).then_with(|| b.1.cmp(&a.1)).then_with(|| a.2.cmp(&b.2))
    });
    cuts.into_iter().map(|(.., pair)| pair).collect()
}
