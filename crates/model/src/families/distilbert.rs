//! DistilBERT (Sanh et al. 2019, <https://arxiv.org/abs/1910.01108>): BERT's blocks without segments, under
//! names of their own.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::sizes;
use crate::config::{ClassifierHead, ClassifierLayers, Config, Pooling};
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};

pub(crate) static FAMILY: Family = Family {
    model_type: "distilbert",
    name: "DistilBERT",
    class: "DistilBert",
    language: "ForMaskedLM",
    language_class: None,
    prefix: "distilbert.",
    blocks: "transformer.layer.",
    keys: &[
        ("hidden_size", "dim"),
        ("num_hidden_layers", "n_layers"),
        ("num_attention_heads", "n_heads"),
        ("intermediate_size", "hidden_dim"),
    ],
    modules: &[&MODULES],
    copies: &[],
    buffers: &["embeddings.position_ids"],
    other_heads: &["qa_outputs."],
    unread: &[],
    as_modules: None,
};

const MODULES: [Module; 16] = [
    module(Place::Embedding, &[Role::Token], "embeddings.word_embeddings"),
    module(Place::Embedding, &[Role::Position], "embeddings.position_embeddings"),
    module(Place::Embedding, &[Role::EmbeddingNorm], "embeddings.LayerNorm"),
    module(Place::Block, &[Role::Query], "attention.q_lin"),
    module(Place::Block, &[Role::Key], "attention.k_lin"),
    module(Place::Block, &[Role::Value], "attention.v_lin"),
    module(Place::Block, &[Role::Output], "attention.out_lin"),
    module(Place::Block, &[Role::AttentionNorm], "sa_layer_norm"),
    module(Place::Block, &[Role::Up], "ffn.lin1"),
    module(Place::Block, &[Role::Down], "ffn.lin2"),
    module(Place::Block, &[Role::MlpNorm], "output_layer_norm"),
    module(Place::Head, &[Role::Pooler], "pre_classifier"),
    module(Place::Head, &[Role::Classifier], "classifier"),
    module(Place::Head, &[Role::Transform], "vocab_transform"),
    module(Place::Head, &[Role::TransformNorm], "vocab_layer_norm"),
    // Its weight is the token embedding.
    module(Place::Head, &[Role::Vocabulary], "vocab_projector"),
];

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    fields.only("activation", "gelu")?;
    if !fields.flag_or("tie_word_embeddings", true)? {
        return Err(fields.refuse("tie_word_embeddings", "true"));
    }
    sizes::read(
        fields,
        Config {
            family: &FAMILY,
            type_vocab_size: 0,
            classifier: ClassifierHead {
                layers: ClassifierLayers::Dense(Activation::Relu),
                bias: true,
                pooling: Pooling::First,
            },
            ..Config::bert()
        },
    )
}

pub(super) fn write(_: &Config, object: &mut Map<String, Value>) {
    object.insert("activation".into(), json!("gelu"));
}
