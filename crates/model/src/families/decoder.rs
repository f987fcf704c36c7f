//! What the decoders that descend from LLaMA share: sizes, biases, and most names.

use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::{rope, sizes};
use crate::config::{
    AttentionBias, ClassifierHead, ClassifierLayers, Config, LanguageHead, Mlp, Norm, NormKind,
    NormPlace, Pooling, Positions, QkNorm, Rope, RopeScaling,
};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};
use fedra_compute::Activation;

/// The projections of a block.
pub(super) const BLOCK: [Module; 7] = [
    module(Place::Block, &[Role::Query], "self_attn.q_proj"),
    module(Place::Block, &[Role::Key], "self_attn.k_proj"),
    module(Place::Block, &[Role::Value], "self_attn.v_proj"),
    module(Place::Block, &[Role::Output], "self_attn.o_proj"),
    module(Place::Block, &[Role::Gate], "mlp.gate_proj"),
    module(Place::Block, &[Role::Up], "mlp.up_proj"),
    module(Place::Block, &[Role::Down], "mlp.down_proj"),
];

/// The norms in front of the halves of a block.
pub(super) const NORMS: [Module; 2] = [
    module(Place::Block, &[Role::AttentionNorm], "input_layernorm"),
    module(Place::Block, &[Role::MlpNorm], "post_attention_layernorm"),
];

/// The modules outside of blocks.
pub(super) const OUTSIDE: [Module; 4] = [
    module(Place::Embedding, &[Role::Token], "embed_tokens"),
    module(Place::BackboneHead, &[Role::FinalNorm], "norm"),
    module(Place::Head, &[Role::Vocabulary], "lm_head"),
    module(Place::Head, &[Role::Classifier], "score"),
];

/// The norms of queries and keys.
pub(super) const QK_NORM: [Module; 2] = [
    module(Place::Block, &[Role::QueryNorm], "self_attn.q_norm"),
    module(Place::Block, &[Role::KeyNorm], "self_attn.k_norm"),
];

/// A family whose names are LLaMA's but for some modules of a block.
pub(super) const fn family(
    (model_type, name, class): (&'static str, &'static str, &'static str),
    modules: &'static [&'static [Module]],
) -> Family {
    Family {
        model_type,
        name,
        class,
        language: "ForCausalLM",
        language_class: None,
        prefix: "model.",
        blocks: "layers.",
        keys: &[],
        modules,
        copies: &[],
        buffers: &["rotary_emb.inv_freq"],
        other_heads: &["qa_outputs."],
        unread: &[],
        as_modules: None,
    }
}

/// Rotary positions, RMS norms in front of each half, SwiGLU, no biases: a LLaMA 2 with 7 billion parameters.
pub(super) fn plain(family: &'static Family) -> Config {
    Config {
        family,
        image: None,
        vocab_size: 32000,
        hidden_size: 4096,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        intermediate_size: 11008,
        max_position_embeddings: 4096,
        type_vocab_size: 0,
        embedding_size: None,
        embedding_norm: false,
        embedding_scaled: false,
        window: None,
        score_divisor: None,
        score_cap: None,
        logit_cap: None,
        first_norm_skipped: false,
        layer_scale: false,
        causal: true,
        positions: Positions::Rotary(Rope::plain(rope::THETA)),
        norm: Norm { kind: NormKind::Rms, epsilon: 1e-5 },
        norm_place: NormPlace::Before,
        qk_norm: QkNorm::None,
        mlp: Mlp { activation: Activation::Silu, gated: true },
        attention_bias: AttentionBias::None,
        mlp_bias: false,
        // As in the library: a head for sequences has no bias, one for tokens has.
        classifier: ClassifierHead {
            layers: ClassifierLayers::None,
            bias: false,
            pooling: Pooling::Last,
        },
        language: LanguageHead { transform: None, transform_bias: false, bias: false },
        tie_word_embeddings: false,
        initializer_range: 0.02,
        pad_token_id: None,
        bos_token_id: Some(1),
        eos_token_ids: vec![2],
        labels: None,
        original: Map::new(),
    }
}

/// Sizes, heads, positions and tokens, over the family's other properties.
pub(super) fn read(fields: &Fields<'_>, properties: Config) -> Result<Config, ModelError> {
    read_with(fields, properties, &["silu", "swish"])
}

/// The same for another activation, which has these names.
pub(super) fn read_with(
    fields: &Fields<'_>,
    properties: Config,
    activation: &[&str],
) -> Result<Config, ModelError> {
    fields.one_of("hidden_act", activation)?;
    let config = sizes::read(fields, properties)?;
    let heads = config.num_attention_heads;
    let kv_heads = fields.size_or("num_key_value_heads", 1..=limit::HEADS, heads)?;
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of num_attention_heads, {heads}");
        return Err(fields.refuse("num_key_value_heads", expected));
    }
    let usual = config.head_dim.unwrap_or(config.hidden_size / heads);
    let head_dim = fields.size_or("head_dim", 1..=limit::WIDTH, usual)?;
    if !head_dim.is_multiple_of(2) || head_dim * heads > limit::WIDTH {
        let expected =
            format!("an even number, at most {} for all {heads} heads together", limit::WIDTH);
        let found = match fields.get("head_dim") {
            Some(value) => value.to_string(),
            None => format!("nothing, so {head_dim} (hidden_size / num_attention_heads)"),
        };
        return Err(ModelError::config(fields.path, "head_dim", found, expected));
    }
    let base = match &config.positions {
        Positions::Rotary(rope) => rope.theta,
        Positions::Learned { .. } => rope::THETA,
    };
    let rope = rope::read(fields, base)?;
    rope::check(fields, &rope, head_dim)?;
    Ok(Config {
        num_key_value_heads: Some(kv_heads),
        head_dim: Some(head_dim),
        // What the library means by its absence, which is not what any published model has.
        norm: Norm { epsilon: fields.positive_or("rms_norm_eps", 1e-6)?, ..config.norm },
        positions: Positions::Rotary(rope),
        tie_word_embeddings: fields.flag_or("tie_word_embeddings", config.tie_word_embeddings)?,
        bos_token_id: fields.token_or("bos_token_id", config.bos_token_id)?,
        eos_token_ids: fields.tokens_or("eos_token_id", config.eos_token_ids.first().copied())?,
        ..config
    })
}

/// What [`read`] reads.
pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    object.insert("hidden_act".into(), json!("silu"));
    object.insert("num_key_value_heads".into(), json!(config.kv_heads()));
    object.insert("head_dim".into(), json!(config.head_width()));
    object.insert("rms_norm_eps".into(), json!(config.norm.epsilon));
    if let Positions::Rotary(rope) = &config.positions {
        rope::write(rope, object);
    }
}

impl Rope {
    /// Without any scaling.
    pub fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::None, local_theta: None, unturned: Vec::new() }
    }
}
