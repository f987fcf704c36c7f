//! The vocabulary of a file, and what the rules for cutting text make of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::ModelError;
use crate::gguf::metadata::Metadata;
use crate::hf::Config;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

/// What one set of rules makes of the pieces.
pub(super) struct Rules {
    pub normalizer: Value,
    pub pre_tokenizer: Value,
    pub decoder: Value,
    pub model: Value,
    /// Whether a text begins with a token of its own unless the file says otherwise.
    pub begins: bool,
}

/// The vocabulary with what each piece is.
pub(super) struct Pieces<'m> {
    pub tokens: Vec<&'m str>,
    pub kinds: Vec<Kind>,
    pub by_text: BTreeMap<&'m str, usize>,
    pub bos: Option<usize>,
    pub eos: Option<usize>,
    pub pad: Option<usize>,
    pub unknown: Option<usize>,
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub fn read(metadata: &'m Metadata) -> Result<Self, ModelError> {
        let tokens = metadata.texts(TOKENS)?.filter(|tokens| !tokens.is_empty());
        let tokens = tokens.ok_or_else(|| metadata.refuse(TOKENS, "a list of pieces"))?;
        let mut by_text = BTreeMap::new();
        for (id, &token) in tokens.iter().enumerate() {
            if let Some(other) = by_text.insert(token, id) {
                let expected = format!("distinct pieces, and {other} and {id} are both {token:?}");
                return Err(metadata.refuse(TOKENS, expected));
            }
        }
        let kinds = match metadata.integers(TYPES)? {
            None => vec![Kind::Normal; tokens.len()],
            Some(types) if types.len() == tokens.len() => {
                let kinds: Option<Vec<Kind>> = types.into_iter().map(kind).collect();
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
        let (bos, eos) = (special("bos")?, special("eos")?);
        let (pad, unknown) = (special("padding")?, special("unknown")?);
        Ok(Self { tokens, kinds, by_text, bos, eos, pad, unknown })
    }

    /// Pieces that are recognised whole, in the order of their numbers.
    pub fn added(&self) -> Vec<Value> {
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
    pub fn frame(&self, metadata: &Metadata, begins: bool) -> Result<Value, ModelError> {
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
            let token = self.tokens[id];
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
    pub fn config(&self, metadata: &Metadata, config: &Config) -> Result<Value, ModelError> {
        let mut made = json!({
            "clean_up_tokenization_spaces": false,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": config.max_position_embeddings,
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

/// The kinds are numbered from 1.
fn kind(number: i64) -> Option<Kind> {
    const KINDS: [Kind; 6] =
        [Kind::Normal, Kind::Unknown, Kind::Control, Kind::UserDefined, Kind::Unused, Kind::Byte];
    KINDS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}
