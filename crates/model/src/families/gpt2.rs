//! GPT-2 (Radford et al. 2019): learned positions, layer norms in front of each half, one tensor for queries, keys
//! and values, and weights stored with inputs as rows.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::{decoder, sizes};
use crate::config::{AttentionBias, Config, Mlp, Norm, NormKind, Positions};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{ClassKind, Family, Module, Place, module, of_class};

pub(crate) static FAMILY: Family = Family {
    model_type: "gpt2",
    name: "GPT-2",
    class: "GPT2",
    language: "LMHeadModel",
    language_class: None,
    prefix: "transformer.",
    blocks: "h.",
    keys: &[
        ("hidden_size", "n_embd"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("intermediate_size", "n_inner"),
        ("max_position_embeddings", "n_positions"),
    ],
    modules: &[&MODULES],
    copies: &[],
    buffers: &[".attn.bias", ".attn.masked_bias"],
    other_heads: &["qa_outputs."],
    unread: &[],
    as_modules: None,
};

const MODULES: [Module; 12] = [
    module(Place::Embedding, &[Role::Token], "wte"),
    module(Place::Embedding, &[Role::Position], "wpe"),
    module(Place::Block, &[Role::AttentionNorm], "ln_1"),
    module(Place::Block, &[Role::Query, Role::Key, Role::Value], "attn.c_attn").transposed(),
    module(Place::Block, &[Role::Output], "attn.c_proj").transposed(),
    module(Place::Block, &[Role::MlpNorm], "ln_2"),
    module(Place::Block, &[Role::Up], "mlp.c_fc").transposed(),
    module(Place::Block, &[Role::Down], "mlp.c_proj").transposed(),
    module(Place::BackboneHead, &[Role::FinalNorm], "ln_f"),
    module(Place::Head, &[Role::Vocabulary], "lm_head"),
    of_class(ClassKind::Sequences, &[Role::Classifier], "score"),
    of_class(ClassKind::Tokens, &[Role::Classifier], "classifier"),
];

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    fields.one_of("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
    fields.must_be_false("add_cross_attention")?;
    fields.must_be_false("scale_attn_by_inverse_layer_idx")?;
    if !fields.flag_or("scale_attn_weights", true)? {
        return Err(fields.refuse("scale_attn_weights", "true"));
    }
    let mut object = fields.object.clone();
    if fields.get("intermediate_size").is_none() {
        let width = fields.size("hidden_size", 1..=limit::WIDTH)?;
        object.insert("n_inner".into(), json!(4 * width));
    }
    let fields = &Fields { object: &object, ..*fields };
    let config = sizes::read(
        fields,
        Config {
            positions: Positions::Learned { offset: 0 },
            norm: Norm {
                kind: NormKind::Layer,
                epsilon: fields.positive_or("layer_norm_epsilon", 1e-5)?,
            },
            mlp: Mlp { activation: Activation::GeluTanh, gated: false },
            attention_bias: AttentionBias::All,
            mlp_bias: true,
            tie_word_embeddings: true,
            ..decoder::plain(&FAMILY)
        },
    )?;
    Ok(Config {
        tie_word_embeddings: fields.flag_or("tie_word_embeddings", true)?,
        bos_token_id: fields.token_or("bos_token_id", Some(50256))?,
        eos_token_ids: fields.tokens_or("eos_token_id", Some(50256))?,
        ..config
    })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    object.insert("activation_function".into(), json!("gelu_new"));
    object.insert("layer_norm_epsilon".into(), json!(config.norm.epsilon));
}
