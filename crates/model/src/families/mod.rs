//! Families of models: how `config.json` becomes the properties of a [`Config`], and a table of names.
//!
//! A family is one file. Nothing outside this folder asks which one a model belongs to.

mod bert;
mod decoder;
mod dinov2;
mod distilbert;
mod electra;
mod gemma;
mod gpt2;
mod images;
mod llama;
mod mistral;
mod modernbert;
mod olmo2;
mod phi3;
mod qwen;
mod roberta;
mod rope;
mod sizes;
mod smollm3;
mod vit;
mod windows;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::Family;

/// The properties that a file describes.
type Read = fn(&Fields<'_>) -> Result<Config, ModelError>;
/// Writes the properties that the family's file has beside the common sizes.
type Write = fn(&Config, &mut Map<String, Value>);

/// Every family, in the order in which an error lists them.
static ALL: [(&Family, Read, Write); 22] = [
    (&bert::FAMILY, bert::read, bert::write),
    (&roberta::ROBERTA, roberta::read_roberta, bert::write),
    (&roberta::XLM_ROBERTA, roberta::read_xlm_roberta, bert::write),
    (&roberta::CAMEMBERT, roberta::read_camembert, bert::write),
    (&distilbert::FAMILY, distilbert::read, distilbert::write),
    (&electra::FAMILY, electra::read, electra::write),
    (&modernbert::FAMILY, modernbert::read, modernbert::write),
    (&llama::FAMILY, llama::read, llama::write),
    (&mistral::FAMILY, mistral::read, mistral::write),
    (&qwen::QWEN2, qwen::read_qwen2, decoder::write),
    (&qwen::QWEN3, qwen::read_qwen3, qwen::write_qwen3),
    (&gemma::GEMMA, gemma::read_gemma, gemma::write),
    (&gemma::GEMMA2, gemma::read_gemma2, gemma::write),
    (&gemma::GEMMA3, gemma::read_gemma3, gemma::write),
    (&phi3::FAMILY, phi3::read, phi3::write),
    (&olmo2::FAMILY, olmo2::read, olmo2::write),
    (&smollm3::FAMILY, smollm3::read, smollm3::write),
    (&gpt2::FAMILY, gpt2::read, gpt2::write),
    (&vit::VIT, vit::read_vit, images::write),
    (&vit::DEIT, vit::read_deit, images::write),
    (&dinov2::DINOV2, dinov2::read_plain, dinov2::write),
    (&dinov2::WITH_REGISTERS, dinov2::read_with_registers, dinov2::write),
];

/// Every family.
pub(crate) fn all() -> impl Iterator<Item = &'static Family> {
    ALL.iter().map(|(family, ..)| *family)
}

/// The family that `model_type` names.
pub(crate) fn by_type(model_type: &str) -> Option<&'static Family> {
    all().find(|family| family.model_type == model_type)
}

/// Their names in `config.json`, for an error.
pub(crate) fn known_types() -> String {
    let quoted: Vec<String> = all().map(|family| format!("{:?}", family.model_type)).collect();
    quoted.join(", ")
}

/// The properties that the fields of a family's file describe.
pub(crate) fn read(family: &Family, fields: &Fields<'_>) -> Result<Config, ModelError> {
    let (_, read, _) = entry(family);
    read(fields)
}

/// Writes what the family's file has beside the common sizes.
pub(crate) fn write(config: &Config, object: &mut Map<String, Value>) {
    let (.., write) = entry(config.family);
    write(config, object);
}

fn entry(family: &Family) -> &'static (&'static Family, Read, Write) {
    ALL.iter().find(|(known, ..)| *known == family).expect("every family is in the list")
}
