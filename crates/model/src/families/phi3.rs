//! Phi-3 and Phi-4 (Abdin et al. 2024, <https://arxiv.org/abs/2404.14219>): LLaMA whose projections are stored
//! together.

use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::{decoder, windows};
use crate::config::Config;
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};

pub(crate) static FAMILY: Family =
    decoder::family(("phi3", "Phi-3", "Phi3"), &[&decoder::OUTSIDE, &BLOCK, &decoder::NORMS]);

const BLOCK: [Module; 4] = [
    module(Place::Block, &[Role::Query, Role::Key, Role::Value], "self_attn.qkv_proj"),
    module(Place::Block, &[Role::Output], "self_attn.o_proj"),
    module(Place::Block, &[Role::Gate, Role::Up], "mlp.gate_up_proj"),
    module(Place::Block, &[Role::Down], "mlp.down_proj"),
];

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let config = Config {
        pad_token_id: Some(32000),
        bos_token_id: Some(1),
        eos_token_ids: vec![32000],
        ..decoder::plain(&FAMILY)
    };
    let config = decoder::read(fields, config)?;
    let window = windows::read(fields, &config, None, |_| true)?;
    Ok(Config { window, ..config })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    windows::write(config, object);
    object.remove("layer_types");
    // The library has no such key for this family and computes it.
    object.remove("head_dim");
    object.insert("attention_bias".into(), json!(false));
}
