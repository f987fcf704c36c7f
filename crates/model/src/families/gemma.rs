//! Gemma (Mesnard et al. 2024, <https://arxiv.org/abs/2403.08295>), Gemma 2 (2024,
//! <https://arxiv.org/abs/2408.00118>) and the text models of Gemma 3 (2025,
//! <https://arxiv.org/abs/2503.19786>): LLaMA with GeGLU, norms whose weight is 1 + w, and scaled embeddings; then
//! norms behind each half too, windows in some blocks, and soft caps or norms of queries and keys.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::{decoder, rope, windows};
use crate::config::{AttentionBias, Config, Mlp, Norm, NormKind, NormPlace, Positions, QkNorm};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};

pub(crate) static GEMMA: Family = decoder::family(
    ("gemma", "Gemma", "Gemma"),
    &[&decoder::OUTSIDE, &decoder::BLOCK, &decoder::NORMS],
);

pub(crate) static GEMMA2: Family =
    decoder::family(("gemma2", "Gemma 2", "Gemma2"), &[&NORMS, &decoder::OUTSIDE, &decoder::BLOCK]);

pub(crate) static GEMMA3: Family = Family {
    // Classes without "Text" read images too, but for this one.
    language_class: Some("Gemma3ForCausalLM"),
    ..decoder::family(
        ("gemma3_text", "Gemma 3", "Gemma3Text"),
        &[&NORMS, &decoder::OUTSIDE, &decoder::BLOCK, &decoder::QK_NORM],
    )
};

const NORMS: [Module; 4] = [
    module(Place::Block, &[Role::AttentionNorm], "input_layernorm"),
    module(Place::Block, &[Role::AttentionOutputNorm], "post_attention_layernorm"),
    module(Place::Block, &[Role::MlpNorm], "pre_feedforward_layernorm"),
    module(Place::Block, &[Role::MlpOutputNorm], "post_feedforward_layernorm"),
];

fn plain(fields: &Fields<'_>, family: &'static Family) -> Result<Config, ModelError> {
    fields.one_of("hidden_activation", &["gelu_pytorch_tanh"])?;
    let biased = fields.flag_or("attention_bias", false)?;
    Ok(Config {
        embedding_scaled: true,
        norm: Norm { kind: NormKind::RmsPlusOne, epsilon: 1e-6 },
        mlp: Mlp { activation: Activation::GeluTanh, gated: true },
        attention_bias: if biased { AttentionBias::All } else { AttentionBias::None },
        head_dim: Some(256),
        tie_word_embeddings: true,
        pad_token_id: Some(0),
        bos_token_id: Some(2),
        eos_token_ids: vec![1],
        ..decoder::plain(family)
    })
}

pub(super) fn read_gemma(fields: &Fields<'_>) -> Result<Config, ModelError> {
    decoder::read_with(fields, plain(fields, &GEMMA)?, &["gelu", "gelu_pytorch_tanh"])
}

pub(super) fn read_gemma2(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let properties = Config { norm_place: NormPlace::Around, ..plain(fields, &GEMMA2)? };
    let config = decoder::read_with(fields, properties, &["gelu_pytorch_tanh"])?;
    Ok(Config {
        score_divisor: Some(fields.size_or("query_pre_attn_scalar", 1..=limit::WIDTH, 256)? as f64),
        score_cap: fields.positive("attn_logit_softcapping", Some(50.0))?,
        logit_cap: fields.positive("final_logit_softcapping", Some(30.0))?,
        window: windows::read(fields, &config, Some(4096), |block| block % 2 == 0)?,
        ..config
    })
}

pub(super) fn read_gemma3(fields: &Fields<'_>) -> Result<Config, ModelError> {
    fields.must_be_false("use_bidirectional_attention")?;
    let properties = Config {
        norm_place: NormPlace::Around,
        qk_norm: QkNorm::PerHead,
        ..plain(fields, &GEMMA3)?
    };
    let config = decoder::read_with(fields, properties, &["gelu_pytorch_tanh"])?;
    let rope = rope::read_two(fields, ("rope_theta", 1e6), ("rope_local_base_freq", 1e4))?;
    // The library keeps this key and never applies it to Gemma 3.
    let cap = "attn_logit_softcapping";
    if fields.positive(cap, None)?.is_some() {
        return Err(fields.refuse(cap, "null: Gemma 3 has no cap on attention scores"));
    }
    let every = fields.size_or("sliding_window_pattern", 1..=1 << 10, 6)?;
    Ok(Config {
        positions: Positions::Rotary(rope),
        score_divisor: Some(fields.size_or("query_pre_attn_scalar", 1..=limit::WIDTH, 256)? as f64),
        logit_cap: fields.positive("final_logit_softcapping", None)?,
        window: windows::read(fields, &config, Some(4096), |block| {
            !(block + 1).is_multiple_of(every)
        })?,
        ..config
    })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    object.insert("hidden_act".into(), json!("gelu_pytorch_tanh"));
    object.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
    object.insert("attention_bias".into(), json!(config.attention_bias == AttentionBias::All));
    if config.norm_place == NormPlace::Around {
        // The library accepts a whole number only.
        let divisor = config.score_divisor.unwrap_or(config.head_width() as f64);
        object.insert("query_pre_attn_scalar".into(), json!(divisor as u64));
        object.insert("attn_logit_softcapping".into(), json!(config.score_cap));
        object.insert("final_logit_softcapping".into(), json!(config.logit_cap));
        windows::write(config, object);
    }
}
