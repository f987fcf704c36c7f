//! BERT (Devlin et al. 2019, <https://arxiv.org/abs/1810.04805>).

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::sizes;
use crate::config::{
    AttentionBias, ClassifierHead, ClassifierLayers, Config, LanguageHead, Mlp, Norm, NormKind,
    NormPlace, Pooling, Positions, QkNorm,
};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{Copied, Family, Module, Place, module};

pub(crate) static FAMILY: Family = Family {
    model_type: "bert",
    name: "BERT",
    class: "Bert",
    language: "ForMaskedLM",
    language_class: None,
    prefix: "bert.",
    blocks: "encoder.layer.",
    keys: &[],
    modules: &[&EMBEDDING, &BLOCK, &HEAD],
    copies: &[
        ("cls.predictions.decoder.weight", Copied::Token),
        ("cls.predictions.decoder.bias", Copied::VocabularyBias),
    ],
    buffers: &["embeddings.position_ids", "embeddings.token_type_ids"],
    other_heads: &["qa_outputs.", "cls.seq_relationship."],
    unread: &[],
    as_modules: None,
};

/// The modules of the embedding, which RoBERTa and ELECTRA have too.
pub(super) const EMBEDDING: [Module; 4] = [
    module(Place::Embedding, &[Role::Token], "embeddings.word_embeddings"),
    module(Place::Embedding, &[Role::Position], "embeddings.position_embeddings"),
    module(Place::Embedding, &[Role::Segment], "embeddings.token_type_embeddings"),
    module(Place::Embedding, &[Role::EmbeddingNorm], "embeddings.LayerNorm"),
];

const HEAD: [Module; 5] = [
    module(Place::BackboneHead, &[Role::Pooler], "pooler.dense"),
    module(Place::Head, &[Role::Classifier], "classifier"),
    module(Place::Head, &[Role::Transform], "cls.predictions.transform.dense"),
    module(Place::Head, &[Role::TransformNorm], "cls.predictions.transform.LayerNorm"),
    // Its weight is the token embedding.
    module(Place::Head, &[Role::Vocabulary], "cls.predictions"),
];

/// The modules of a block, which RoBERTa and ELECTRA have too.
pub(super) const BLOCK: [Module; 8] = [
    module(Place::Block, &[Role::Query], "attention.self.query"),
    module(Place::Block, &[Role::Key], "attention.self.key"),
    module(Place::Block, &[Role::Value], "attention.self.value"),
    module(Place::Block, &[Role::Output], "attention.output.dense"),
    module(Place::Block, &[Role::AttentionNorm], "attention.output.LayerNorm"),
    module(Place::Block, &[Role::Up], "intermediate.dense"),
    module(Place::Block, &[Role::Down], "output.dense"),
    module(Place::Block, &[Role::MlpNorm], "output.LayerNorm"),
];

impl Config {
    /// BERT-base, uncased.
    pub fn bert() -> Self {
        Self {
            family: &FAMILY,
            image: None,
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_key_value_heads: None,
            head_dim: None,
            intermediate_size: 3072,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            embedding_size: None,
            embedding_norm: true,
            embedding_scaled: false,
            window: None,
            score_divisor: None,
            score_cap: None,
            logit_cap: None,
            first_norm_skipped: false,
            layer_scale: false,
            causal: false,
            positions: Positions::Learned { offset: 0 },
            norm: Norm { kind: NormKind::Layer, epsilon: 1e-12 },
            norm_place: NormPlace::AfterResidual,
            qk_norm: QkNorm::None,
            mlp: Mlp { activation: Activation::Gelu, gated: false },
            attention_bias: AttentionBias::All,
            mlp_bias: true,
            classifier: ClassifierHead {
                layers: ClassifierLayers::Dense(Activation::Tanh),
                bias: true,
                pooling: Pooling::First,
            },
            language: LanguageHead {
                transform: Some(Activation::Gelu),
                transform_bias: true,
                bias: true,
            },
            tie_word_embeddings: true,
            initializer_range: 0.02,
            pad_token_id: Some(0),
            bos_token_id: None,
            eos_token_ids: Vec::new(),
            labels: None,
            original: Map::new(),
        }
    }
}

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    encoder(fields, Config::bert())
}

/// An encoder with BERT's blocks, over the family's other properties.
pub(super) fn encoder(fields: &Fields<'_>, properties: Config) -> Result<Config, ModelError> {
    fields.one_of("hidden_act", &["gelu", "gelu_python"])?;
    fields.only("position_embedding_type", "absolute")?;
    fields.must_be_false("is_decoder")?;
    fields.must_be_false("add_cross_attention")?;
    if fields.object("pruned_heads")?.is_some_and(|heads| !heads.is_empty()) {
        return Err(fields.refuse("pruned_heads", "all heads present"));
    }
    if !fields.flag_or("tie_word_embeddings", true)? {
        return Err(fields.refuse("tie_word_embeddings", "true"));
    }
    let config = sizes::read(fields, properties)?;
    let segments = config.type_vocab_size;
    let epsilon = fields.positive_or("layer_norm_eps", config.norm.epsilon)?;
    Ok(Config {
        type_vocab_size: fields.size_or("type_vocab_size", 0..=limit::SEGMENTS, segments)?,
        norm: Norm { epsilon, ..config.norm },
        ..config
    })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    object.insert("hidden_act".into(), json!("gelu"));
    object.insert("position_embedding_type".into(), json!("absolute"));
    object.insert("type_vocab_size".into(), json!(config.type_vocab_size));
    object.insert("layer_norm_eps".into(), json!(config.norm.epsilon));
}
