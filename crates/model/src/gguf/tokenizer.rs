//! The tokenizer of a file as the `tokenizer.json` and its companions in a folder.
//!
//! A file has the vocabulary, what each piece is and the names of two sets of rules: how pieces are
//! merged (`tokenizer.ggml.model`) and how text is cut before that (`tokenizer.ggml.pre`). Rules
//! that are not known here are refused by name: a model only understands the pieces it was trained
//! with, and rules that are nearly right show in nothing but worse answers.

mod byte_level;
mod pieces;
mod sentence_piece;

use serde_json::json;

use self::pieces::Pieces;
use super::reader::Reader;
use crate::error::ModelError;
use crate::hf::{Companions, Config};

/// The tokenizer files that a folder would have; none where the file has no tokenizer.
pub(super) fn companions(reader: &Reader, config: &Config) -> Result<Companions, ModelError> {
    let metadata = reader.metadata();
    let (pieces, made) = match metadata.text("tokenizer.ggml.model")? {
        None | Some("none" | "no_vocab") => return Ok(Companions::default()),
        Some("gpt2") => {
            let pieces = Pieces::read(metadata)?;
            let made = byte_level::rules(metadata, &pieces)?;
            (pieces, made)
        }
        Some("llama") => {
            let mut pieces = Pieces::read(metadata)?;
            pieces.unknown.get_or_insert(0);
            let made = sentence_piece::rules(metadata, &pieces)?;
            (pieces, made)
        }
        Some(_) => {
            let expected = "\"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE)";
            return Err(metadata.refuse("tokenizer.ggml.model", expected));
        }
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": pieces.added(),
        "normalizer": made.normalizer,
        "pre_tokenizer": made.pre_tokenizer,
        "post_processor": pieces.frame(metadata, made.begins)?,
        "decoder": made.decoder,
        "model": made.model,
    });
    let mut generation = json!({ "_from_model_config": true });
    for (key, id) in
        [("bos_token_id", pieces.bos), ("eos_token_id", pieces.eos), ("pad_token_id", pieces.pad)]
    {
        if let Some(id) = id {
            generation[key] = json!(id);
        }
    }
    let files = [
        ("tokenizer.json", tokenizer.to_string()),
        ("tokenizer_config.json", format!("{:#}\n", pieces.config(metadata, config)?)),
        ("generation_config.json", format!("{generation:#}\n")),
    ];
    Companions::made(reader.path(), files)
}
