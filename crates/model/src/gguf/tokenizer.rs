//! The tokenizer of a file as the `tokenizer.json` and its companions in a folder.
//!
//! A file has the vocabulary, what each piece is and the names of two sets of rules: how pieces are
//! merged (`tokenizer.ggml.model`) and how text is cut before that (`tokenizer.ggml.pre`). Rules
//! that are not known here are refused by name: a model only understands the pieces it was trained
//! with, and rules that are nearly right show in nothing but worse answers.

mod byte_level;
mod sentence_piece;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::metadata::Metadata;
use super::reader::Reader;
use crate::error::ModelError;
use crate::hf::{Companions, Config};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

/// The tokenizer files that a folder would have; none where the file has no tokenizer.
pub(super) fn companions(reader: &Reader, config: &Config) -> Result<Companions, ModelError> {
    let metadata = reader.metadata();
    let mut pieces = match metadata.text("tokenizer.ggml.model")? {
        None | Some("none" | "no_vocab") => return Ok(Companions::default()),
        Some("gpt2" | "llama") => Pieces::read(metadata)?,
        Some(_) => {
            let expected = "\"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE)";
            return Err(metadata.refuse("tokenizer.ggml.model", expected));
        }
    };
    let made = if metadata.text("tokenizer.ggml.model")? == Some("gpt2") {
        byte_level::rules(metadata, &pieces)?
    } else {
        pieces.unknown.get_or_insert(0);
        sentence_piece::rules(metadata, &pieces)?
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

/// What one set of rules makes of the pieces.
struct Rules {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Value,
    /// Whether a text begins with a token of its own unless the file says otherwise.
    begins: bool,
}

/// The vocabulary with what each piece is.
struct Pieces<'m> {
    tokens: &'m [String],
    kinds: Vec<Kind>,
    by_text: BTreeMap<&'m str, usize>,
    bos: Option<usize>,
    eos: Option<usize>,
    pad: Option<usize>,
    unknown: Option<usize>,
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    /// A mark that no text spells.
    Control,
    /// Found in a text before it is cut.
    UserDefined,
    Unused,
    Byte,
}

impl<'m> Pieces<'m> {
    fn read(metadata: &'m Metadata) -> Result<Self, ModelError> {
        let tokens = metadata.texts(TOKENS)?.filter(|tokens| !tokens.is_empty());
        let tokens = tokens.ok_or_else(|| metadata.refuse(TOKENS, "a list of pieces"))?;
        let mut by_text = BTreeMap::new();
        for (id, token) in tokens.iter().enumerate() {
            if let Some(other) = by_text.insert(token.as_str(), id) {
                let expected = format!("distinct pieces, and {other} and {id} are both {token:?}");
                return Err(metadata.refuse(TOKENS, expected));
            }
        }
        let kinds = match metadata.integers(TYPES)? {
            None => vec![Kind::Normal; tokens.len()],
            Some(types) if types.len() == tokens.len() => {
                let kinds: Option<Vec<Kind>> = types.iter().map(|&number| kind(number)).collect();
                kinds.ok_or_else(|| metadata.refuse(TYPES, "types from 1 to 6"))?
            }
            Some(_) => {
                let expected = format!("one for each of the {} pieces", tokens.len());
                return Err(metadata.refuse(TYPES, expected));
            }
        };
        let special = |name: &str| {
            let key = format!("tokenizer.ggml.{name}_token_id");
            let Some(id) = metadata.count(&key)? else { return Ok(None) };
            let id = usize::try_from(id).ok().filter(|&id| id < tokens.len());
            let expected = || metadata.refuse(&key, format!("less than {} pieces", tokens.len()));
            id.map(Some).ok_or_else(expected)
        };
        Ok(Self {
            tokens,
            kinds,
            by_text,
            bos: special("bos")?,
            eos: special("eos")?,
            pad: special("padding")?,
            unknown: special("unknown")?,
        })
    }

    /// Pieces that are recognised whole, in the order of their numbers.
    fn added(&self) -> Vec<Value> {
        let special = |kind: Kind| match kind {
            Kind::Control | Kind::Unknown => Some(true),
            Kind::UserDefined => Some(false),
            Kind::Normal | Kind::Unused | Kind::Byte => None,
        };
        let numbered = self.tokens.iter().zip(&self.kinds).enumerate();
        let added = numbered.filter_map(|(id, (token, &kind))| Some((id, token, special(kind)?)));
        added
            .filter(|(_, token, _)| !token.is_empty())
            .map(|(id, token, special)| {
                json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                       "rstrip": false, "normalized": false, "special": special})
            })
            .collect()
    }

    /// What stands around a text.
    fn frame(&self, metadata: &Metadata, begins: bool) -> Result<Value, ModelError> {
        let flag = |name: &str, absent: bool| -> Result<bool, ModelError> {
            Ok(metadata.flag(&format!("tokenizer.ggml.add_{name}_token"))?.unwrap_or(absent))
        };
        let before = if flag("bos", begins)? { self.bos } else { None };
        let after = if flag("eos", false)? { self.eos } else { None };
        if before.is_none() && after.is_none() {
            return Ok(Value::Null);
        }
        let mark = |id: usize| json!({"SpecialToken": {"id": self.tokens[id], "type_id": 0}});
        let framed = |text: &str| -> Vec<Value> {
            let text = json!({"Sequence": {"id": text, "type_id": 0}});
            before.map(mark).into_iter().chain([text]).chain(after.map(mark)).collect()
        };
        let mut marks = json!({});
        for id in before.into_iter().chain(after) {
            let token = &self.tokens[id];
            marks[token] = json!({"id": token, "ids": [id], "tokens": [token]});
        }
        Ok(json!({
            "type": "TemplateProcessing",
            "single": framed("A"),
            "pair": framed("A").into_iter().chain(framed("B")).collect::<Vec<_>>(),
            "special_tokens": marks,
        }))
    }

    /// What other libraries have to know beside the tokenizer itself.
    fn config(&self, metadata: &Metadata, config: &Config) -> Result<Value, ModelError> {
        let longest = match config {
            Config::Bert(bert) => bert.max_position_embeddings,
            Config::Llama(llama) => llama.max_position_embeddings,
        };
        let mut made = json!({
            "clean_up_tokenization_spaces": false,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": longest,
            "tokenizer_class": "PreTrainedTokenizerFast",
        });
        for (key, id) in [
            ("bos_token", self.bos),
            ("eos_token", self.eos),
            ("pad_token", self.pad),
            ("unk_token", self.unknown),
        ] {
            if let Some(id) = id {
                made[key] = json!(self.tokens[id]);
            }
        }
        if let Some(template) = metadata.text("tokenizer.chat_template")? {
            made["chat_template"] = json!(template);
        }
        Ok(made)
    }
}

fn kind(number: i64) -> Option<Kind> {
    Some(match number {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => return None,
    })
}
