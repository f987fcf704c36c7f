//! RoBERTa (Liu et al. 2019, <https://arxiv.org/abs/1907.11692>), and XLM-RoBERTa and CamemBERT, which differ
//! in their vocabularies: BERT's blocks, positions that begin behind the padding token, another head.

use fedra_plan::Role;

use super::bert::{self, BLOCK, EMBEDDING};
use crate::config::{Config, Positions};
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::{ClassKind, Copied, Family, Module, Place, module, of_class};

pub(crate) static ROBERTA: Family = family("roberta", "RoBERTa", "Roberta");
pub(crate) static XLM_ROBERTA: Family = family("xlm-roberta", "XLM-RoBERTa", "XLMRoberta");
pub(crate) static CAMEMBERT: Family = family("camembert", "CamemBERT", "Camembert");

const HEAD: [Module; 6] = [
    of_class(ClassKind::Sequences, &[Role::Pooler], "classifier.dense"),
    of_class(ClassKind::Sequences, &[Role::Classifier], "classifier.out_proj"),
    of_class(ClassKind::Tokens, &[Role::Classifier], "classifier"),
    module(Place::Head, &[Role::Transform], "lm_head.dense"),
    module(Place::Head, &[Role::TransformNorm], "lm_head.layer_norm"),
    // Its weight is the token embedding.
    module(Place::Head, &[Role::Vocabulary], "lm_head"),
];

const fn family(model_type: &'static str, name: &'static str, class: &'static str) -> Family {
    Family {
        model_type,
        name,
        class,
        language: "ForMaskedLM",
        language_class: None,
        prefix: "roberta.",
        blocks: "encoder.layer.",
        keys: &[],
        modules: &[&EMBEDDING, &BLOCK, &HEAD],
        copies: &[
            ("lm_head.decoder.weight", Copied::Token),
            ("lm_head.decoder.bias", Copied::VocabularyBias),
        ],
        buffers: &["embeddings.position_ids", "embeddings.token_type_ids"],
        other_heads: &["qa_outputs.", "pooler."],
        unread: &[],
        as_modules: None,
    }
}

pub(super) fn read_roberta(fields: &Fields<'_>) -> Result<Config, ModelError> {
    read(fields, &ROBERTA)
}

pub(super) fn read_xlm_roberta(fields: &Fields<'_>) -> Result<Config, ModelError> {
    read(fields, &XLM_ROBERTA)
}

pub(super) fn read_camembert(fields: &Fields<'_>) -> Result<Config, ModelError> {
    read(fields, &CAMEMBERT)
}

fn read(fields: &Fields<'_>, family: &'static Family) -> Result<Config, ModelError> {
    let properties = Config { family, pad_token_id: Some(1), ..Config::bert() };
    let config = bert::encoder(fields, properties)?;
    // The rows up to the padding token are never read.
    let offset = config.pad_token_id.map_or(0, |padding| padding as usize + 1);
    let rows = config.max_position_embeddings;
    if rows <= offset {
        let expected = format!("more than {offset}, the rows up to the padding token");
        return Err(fields.refuse("max_position_embeddings", expected));
    }
    let positions = Positions::Learned { offset };
    Ok(Config { max_position_embeddings: rows - offset, positions, ..config })
}
