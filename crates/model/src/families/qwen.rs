//! Qwen 2 and 2.5 (Yang et al. 2024, <https://arxiv.org/abs/2407.10671>), and Qwen 3 (2025,
//! <https://arxiv.org/abs/2505.09388>): LLaMA with biases on queries, keys and values, or with norms on
//! queries and keys.

use serde_json::{Map, Value, json};

use super::decoder;
use crate::config::{AttentionBias, Config, QkNorm};
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::Family;

pub(crate) static QWEN2: Family = decoder::family(
    ("qwen2", "Qwen 2", "Qwen2"),
    &[&decoder::OUTSIDE, &decoder::BLOCK, &decoder::NORMS],
);

pub(crate) static QWEN3: Family = decoder::family(
    ("qwen3", "Qwen 3", "Qwen3"),
    &[&decoder::OUTSIDE, &decoder::BLOCK, &decoder::NORMS, &decoder::QK_NORM],
);

pub(super) fn read_qwen2(fields: &Fields<'_>) -> Result<Config, ModelError> {
    fields.must_be_false("use_sliding_window")?;
    let plain = decoder::plain(&QWEN2);
    decoder::read(fields, Config { attention_bias: AttentionBias::Qkv, ..tokens(plain) })
}

pub(super) fn read_qwen3(fields: &Fields<'_>) -> Result<Config, ModelError> {
    fields.must_be_false("use_sliding_window")?;
    let biased = fields.flag_or("attention_bias", false)?;
    let config = Config {
        attention_bias: if biased { AttentionBias::All } else { AttentionBias::None },
        qk_norm: QkNorm::PerHead,
        head_dim: Some(128),
        ..tokens(decoder::plain(&QWEN3))
    };
    decoder::read(fields, config)
}

/// The library names no token for these where the file names none.
fn tokens(config: Config) -> Config {
    Config { bos_token_id: None, eos_token_ids: Vec::new(), ..config }
}

pub(super) fn write_qwen3(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    object.insert("attention_bias".into(), json!(config.attention_bias == AttentionBias::All));
}
