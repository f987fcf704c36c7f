//! `ViT` (Dosovitskiy et al. 2021, <https://arxiv.org/abs/2010.11929>) and `DeiT` (Touvron et al. 2021,
//! <https://arxiv.org/abs/2012.12877>), which has a second token for what a teacher said.

use fedra_plan::Role;

use super::images::{self, ATTENTION, ATTENTION_MODULES, EMBEDDING, HEAD};
use crate::config::Config;
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};
use crate::image_input::ImageInput;

pub(crate) static VIT: Family = Family {
    model_type: "vit",
    name: "ViT",
    class: "ViT",
    language: "",
    language_class: None,
    prefix: "vit.",
    blocks: "encoder.layer.",
    keys: &[],
    modules: &[&EMBEDDING, &ATTENTION, &BLOCK, &HEAD],
    copies: &[],
    buffers: &[],
    other_heads: &["pooler.", "decoder.", "embeddings.mask_token"],
    unread: &[],
    as_modules: Some(&VIT_MODULES),
};

pub(crate) static DEIT: Family = Family {
    model_type: "deit",
    name: "DeiT",
    class: "DeiT",
    prefix: "deit.",
    modules: &[&EMBEDDING, &DISTILLATION, &ATTENTION, &BLOCK, &HEAD],
    other_heads: &[
        "pooler.",
        "decoder.",
        "embeddings.mask_token",
        "cls_classifier.",
        "distillation_classifier.",
    ],
    as_modules: Some(&DEIT_MODULES),
    ..VIT
};

static VIT_MODULES: Family = Family {
    blocks: "layers.",
    modules: &[&EMBEDDING, &ATTENTION_MODULES, &BLOCK_MODULES, &HEAD],
    as_modules: None,
    ..VIT
};

static DEIT_MODULES: Family = Family { prefix: "deit.", class: "DeiT", ..VIT_MODULES };

const DISTILLATION: [Module; 1] =
    [module(Place::Embedding, &[Role::DistillationToken], "embeddings.distillation_token")
        .alone(3)];

const BLOCK: [Module; 4] = [
    module(Place::Block, &[Role::AttentionNorm], "layernorm_before"),
    module(Place::Block, &[Role::MlpNorm], "layernorm_after"),
    module(Place::Block, &[Role::Up], "intermediate.dense"),
    module(Place::Block, &[Role::Down], "output.dense"),
];

const BLOCK_MODULES: [Module; 2] =
    [module(Place::Block, &[Role::Up], "mlp.fc1"), module(Place::Block, &[Role::Down], "mlp.fc2")];

impl Config {
    /// `ViT-base` for images of 224 x 224 pixels in patches of 16.
    pub fn vit() -> Self {
        images::plain(&VIT)
    }
}

pub(super) fn read_vit(fields: &Fields<'_>) -> Result<Config, ModelError> {
    read(fields, Config::vit(), false)
}

pub(super) fn read_deit(fields: &Fields<'_>) -> Result<Config, ModelError> {
    read(fields, images::plain(&DEIT), true)
}

fn read(fields: &Fields<'_>, properties: Config, distillation: bool) -> Result<Config, ModelError> {
    let intermediate_size = fields.size("intermediate_size", 1..=limit::WIDTH)?;
    let image = ImageInput { distillation, ..ImageInput::new((224, 224), 16, 3) };
    images::read(fields, (Config { intermediate_size, ..properties }, image))
}
