//! SmolLM3 (2025): LLaMA in which every fourth block has no positions (Yang et al. 2025,
//! <https://arxiv.org/abs/2501.18795>).

use serde_json::{Map, Value, json};

use super::decoder;
use crate::config::{AttentionBias, Config, Positions, Rope};
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::Family;

pub(crate) static FAMILY: Family = decoder::family(
    ("smollm3", "SmolLM3", "SmolLM3"),
    &[&decoder::OUTSIDE, &decoder::BLOCK, &decoder::NORMS],
);

/// The base of its positions unless the file says otherwise.
const THETA: f64 = 2_000_000.0;

/// Every so many blocks one is not turned, unless the file lists them.
const INTERVAL: usize = 4;

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    fields.must_be_false("use_sliding_window")?;
    let biased = fields.flag_or("attention_bias", false)?;
    let config = Config {
        attention_bias: if biased { AttentionBias::All } else { AttentionBias::None },
        mlp_bias: fields.flag_or("mlp_bias", false)?,
        tie_word_embeddings: true,
        pad_token_id: Some(128_004),
        bos_token_id: Some(128_000),
        eos_token_ids: vec![128_001],
        positions: Positions::Rotary(Rope::plain(THETA)),
        ..decoder::plain(&FAMILY)
    };
    let config = decoder::read(fields, config)?;
    let blocks = config.num_hidden_layers;
    let interval = fields.size_or("no_rope_layer_interval", 1..=usize::MAX, INTERVAL)?;
    let unturned: Option<Vec<bool>> = match fields.get("no_rope_layers") {
        None => Some((1..=blocks).map(|block| block % interval == 0).collect()),
        Some(list) => list.as_array().and_then(|list| {
            list.iter().map(|turned| turned.as_u64().map(|turned| turned == 0)).collect()
        }),
    };
    let unturned = unturned.filter(|list| list.len() == blocks).ok_or_else(|| {
        fields.refuse("no_rope_layers", format!("0 or 1 for each of the {blocks} blocks"))
    })?;
    let Positions::Rotary(rope) = config.positions else {
        unreachable!("a decoder's positions are rotary")
    };
    Ok(Config { positions: Positions::Rotary(Rope { unturned, ..rope }), ..config })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    object.insert("attention_bias".into(), json!(config.attention_bias == AttentionBias::All));
    object.insert("mlp_bias".into(), json!(config.mlp_bias));
    if let Positions::Rotary(rope) = &config.positions {
        let turned = |block| u8::from(!rope.unturned.get(block).copied().unwrap_or(false));
        let list: Vec<u8> = (0..config.num_hidden_layers).map(turned).collect();
        object.insert("no_rope_layers".into(), json!(list));
    }
}
