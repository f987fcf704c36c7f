//! OLMo 2 (2024, <https://arxiv.org/abs/2501.00656>): LLaMA with norms behind each half of a block and over all
//! queries and all keys.

use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::decoder;
use crate::config::{AttentionBias, Config, NormPlace, QkNorm};
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};

pub(crate) static FAMILY: Family = decoder::family(
    ("olmo2", "OLMo 2", "Olmo2"),
    &[&NORMS, &decoder::OUTSIDE, &decoder::BLOCK, &decoder::QK_NORM],
);

const NORMS: [Module; 2] = [
    module(Place::Block, &[Role::AttentionOutputNorm], "post_attention_layernorm"),
    module(Place::Block, &[Role::MlpOutputNorm], "post_feedforward_layernorm"),
];

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let biased = fields.flag_or("attention_bias", false)?;
    let config = Config {
        attention_bias: if biased { AttentionBias::All } else { AttentionBias::None },
        norm_place: NormPlace::After,
        qk_norm: QkNorm::Whole,
        pad_token_id: Some(1),
        bos_token_id: None,
        eos_token_ids: vec![50279],
        ..decoder::plain(&FAMILY)
    };
    decoder::read(fields, config)
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    object.insert("attention_bias".into(), json!(config.attention_bias == AttentionBias::All));
}
