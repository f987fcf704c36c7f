//! ModernBERT (Warner et al. 2024, <https://arxiv.org/abs/2412.13663>): an encoder with rotary positions, GeGLU,
//! norms in front without biases, and windows in most blocks.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::{rope, sizes, windows};
use crate::config::{
    AttentionBias, ClassifierHead, ClassifierLayers, Config, LanguageHead, Mlp, Norm, NormKind,
    NormPlace, Pooling, Positions, Rope, Window,
};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};

pub(crate) static FAMILY: Family = Family {
    model_type: "modernbert",
    name: "ModernBERT",
    class: "ModernBert",
    language: "ForMaskedLM",
    language_class: None,
    prefix: "model.",
    blocks: "layers.",
    keys: &[],
    modules: &[&MODULES],
    copies: &[],
    buffers: &["rotary_emb.inv_freq"],
    other_heads: &["qa_outputs."],
    unread: &[],
    as_modules: None,
};

const MODULES: [Module; 13] = [
    module(Place::Embedding, &[Role::Token], "embeddings.tok_embeddings"),
    module(Place::Embedding, &[Role::EmbeddingNorm], "embeddings.norm"),
    module(Place::Block, &[Role::AttentionNorm], "attn_norm"),
    module(Place::Block, &[Role::Query, Role::Key, Role::Value], "attn.Wqkv"),
    module(Place::Block, &[Role::Output], "attn.Wo"),
    module(Place::Block, &[Role::MlpNorm], "mlp_norm"),
    module(Place::Block, &[Role::Gate, Role::Up], "mlp.Wi"),
    module(Place::Block, &[Role::Down], "mlp.Wo"),
    module(Place::BackboneHead, &[Role::FinalNorm], "final_norm"),
    module(Place::Head, &[Role::Transform], "head.dense"),
    module(Place::Head, &[Role::TransformNorm], "head.norm"),
    module(Place::Head, &[Role::Classifier], "classifier"),
    module(Place::Head, &[Role::Vocabulary], "decoder"),
];

/// Every third block sees everything.
const GLOBAL_EVERY: usize = 3;
/// Tokens that the others see, on both sides together.
const LOCAL: usize = 128;
/// The rotary bases of the ones and of the others.
const THETAS: [f64; 2] = [160_000.0, 10_000.0];

impl Config {
    /// `ModernBERT-base`.
    pub fn modernbert() -> Self {
        let blocks = (0..22).map(|block: usize| !block.is_multiple_of(GLOBAL_EVERY)).collect();
        let [theta, near] = THETAS;
        Self {
            family: &FAMILY,
            vocab_size: 50368,
            num_hidden_layers: 22,
            intermediate_size: 1152,
            max_position_embeddings: 8192,
            type_vocab_size: 0,
            positions: Positions::Rotary(Rope { local_theta: Some(near), ..Rope::plain(theta) }),
            // Half of it lies on either side.
            window: Some(Window { distance: LOCAL / 2, blocks }),
            norm: Norm { kind: NormKind::LayerUnbiased, epsilon: 1e-5 },
            norm_place: NormPlace::Before,
            first_norm_skipped: true,
            mlp: Mlp { activation: Activation::Gelu, gated: true },
            attention_bias: AttentionBias::None,
            mlp_bias: false,
            classifier: ClassifierHead {
                layers: ClassifierLayers::Transform,
                bias: true,
                pooling: Pooling::First,
            },
            language: LanguageHead {
                transform: Some(Activation::Gelu),
                transform_bias: false,
                bias: true,
            },
            pad_token_id: Some(50283),
            ..Self::bert()
        }
    }
}

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    for key in ["hidden_activation", "classifier_activation"] {
        fields.only(key, "gelu")?;
    }
    for key in ["norm_bias", "attention_bias", "mlp_bias"] {
        fields.must_be_false(key)?;
    }
    let pooling = match fields.text("classifier_pooling")? {
        None | Some("cls") => Pooling::First,
        Some("mean") => Pooling::Mean,
        Some(_) => return Err(fields.refuse("classifier_pooling", r#""cls" or "mean""#)),
    };
    let usual = Config::modernbert();
    let config = sizes::read(
        fields,
        Config {
            norm: Norm {
                epsilon: fields.positive_or("norm_eps", usual.norm.epsilon)?,
                ..usual.norm
            },
            classifier: ClassifierHead { pooling, ..usual.classifier },
            language: LanguageHead {
                transform_bias: fields.flag_or("classifier_bias", false)?,
                bias: fields.flag_or("decoder_bias", true)?,
                ..usual.language
            },
            ..usual
        },
    )?;
    let every = fields.size_or("global_attn_every_n_layers", 1..=1 << 10, GLOBAL_EVERY)?;
    let local = fields.size_or("local_attention", 1..=limit::POSITIONS, LOCAL)?;
    let blocks = windows::blocks(fields, &config, |block| !block.is_multiple_of(every))?;
    let [global, near] = THETAS;
    let positions =
        rope::read_two(fields, ("global_rope_theta", global), ("local_rope_theta", near))?;
    Ok(Config {
        // Half of it lies on either side.
        window: Some(Window { distance: local / 2, blocks }),
        positions: Positions::Rotary(positions),
        ..config
    })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    for key in ["hidden_activation", "classifier_activation"] {
        object.insert(key.into(), json!("gelu"));
    }
    object.insert("norm_eps".into(), json!(config.norm.epsilon));
    let pooling = if config.classifier.pooling == Pooling::Mean { "mean" } else { "cls" };
    object.insert("classifier_pooling".into(), json!(pooling));
    object.insert("classifier_bias".into(), json!(config.language.transform_bias));
    object.insert("decoder_bias".into(), json!(config.language.bias));
    if let Some(window) = &config.window {
        object.insert("local_attention".into(), json!(2 * window.distance));
    }
    windows::write_types(config, object);
    if let Positions::Rotary(rope) = &config.positions {
        rope::write(rope, object);
        object.insert("global_rope_theta".into(), json!(rope.theta));
        object.insert("local_rope_theta".into(), json!(rope.local_theta));
    }
}
