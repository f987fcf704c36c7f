//! ELECTRA (Clark et al. 2020, <https://arxiv.org/abs/2003.10555>): BERT's blocks behind an embedding that may
//! be narrower than they are.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::bert::{self, BLOCK, EMBEDDING};
use crate::config::{ClassifierHead, ClassifierLayers, Config, Pooling};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{ClassKind, Family, Module, Place, module, of_class};

pub(crate) static FAMILY: Family = Family {
    model_type: "electra",
    name: "ELECTRA",
    class: "Electra",
    language: "ForMaskedLM",
    language_class: None,
    prefix: "electra.",
    blocks: "encoder.layer.",
    keys: &[],
    modules: &[&EMBEDDING, &BLOCK, &OTHERS],
    copies: &[],
    buffers: &["embeddings.position_ids", "embeddings.token_type_ids"],
    other_heads: &["qa_outputs.", "discriminator_predictions."],
    unread: &[],
    as_modules: None,
};

const OTHERS: [Module; 7] = [
    module(Place::Embedding, &[Role::EmbeddingProjection], "embeddings_project"),
    of_class(ClassKind::Sequences, &[Role::Pooler], "classifier.dense"),
    of_class(ClassKind::Sequences, &[Role::Classifier], "classifier.out_proj"),
    of_class(ClassKind::Tokens, &[Role::Classifier], "classifier"),
    module(Place::Head, &[Role::Transform], "generator_predictions.dense"),
    module(Place::Head, &[Role::TransformNorm], "generator_predictions.LayerNorm"),
    // Its weight is the token embedding.
    module(Place::Head, &[Role::Vocabulary], "generator_lm_head"),
];

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let config = bert::encoder(
        fields,
        Config {
            family: &FAMILY,
            classifier: ClassifierHead {
                layers: ClassifierLayers::Dense(Activation::Gelu),
                bias: true,
                pooling: Pooling::First,
            },
            ..Config::bert()
        },
    )?;
    let width = fields.size_or("embedding_size", 1..=limit::WIDTH, 128)?;
    Ok(Config { embedding_size: (width != config.hidden_size).then_some(width), ..config })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    bert::write(config, object);
    object.insert("embedding_size".into(), json!(config.embedding_width()));
}
