//! LLaMA 1 to 3.3 (Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>).

use serde_json::{Map, Value, json};

use super::decoder;
use crate::config::{AttentionBias, Config};
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::Family;

pub(crate) static FAMILY: Family = decoder::family(
    ("llama", "LLaMA", "Llama"),
    &[&decoder::OUTSIDE, &decoder::BLOCK, &decoder::NORMS],
);

impl Config {
    /// LLaMA 2 with 7 billion parameters.
    pub fn llama() -> Self {
        decoder::plain(&FAMILY)
    }
}

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let biased = fields.flag_or("attention_bias", false)?;
    let config = Config {
        attention_bias: if biased { AttentionBias::All } else { AttentionBias::None },
        mlp_bias: fields.flag_or("mlp_bias", false)?,
        ..Config::llama()
    };
    decoder::read(fields, config)
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    let biased = config.attention_bias == AttentionBias::All;
    object.insert("attention_bias".into(), json!(biased));
    object.insert("mlp_bias".into(), json!(config.mlp_bias));
}
