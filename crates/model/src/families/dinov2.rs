//! `DINOv2` (Oquab et al. 2023, <https://arxiv.org/abs/2304.07193>), plain and with registers (Darcet et al. 2023,
//! <https://arxiv.org/abs/2309.16588>): layer scale, a classifier over the class token and the mean of the patches,
//! and SwiGLU in the largest model.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use super::images::{self, ATTENTION, ATTENTION_MODULES, EMBEDDING, HEAD};
use crate::config::{ClassifierHead, Config, Mlp, Norm, Pooling};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};
use crate::image_input::ImageInput;

pub(crate) static DINOV2: Family = Family {
    model_type: "dinov2",
    name: "DINOv2",
    class: "Dinov2",
    language: "",
    language_class: None,
    prefix: "dinov2.",
    blocks: "encoder.layer.",
    keys: &[],
    modules: &[&EMBEDDING, &ATTENTION, &BLOCK, &GELU, &HEAD],
    copies: &[],
    buffers: &[],
    other_heads: &[],
    unread: &["embeddings.mask_token"],
    as_modules: Some(&DINOV2_MODULES),
};

pub(crate) static WITH_REGISTERS: Family = Family {
    model_type: "dinov2_with_registers",
    name: "DINOv2 with registers",
    class: "Dinov2WithRegisters",
    prefix: "dinov2_with_registers.",
    modules: &[&EMBEDDING, &REGISTERS, &ATTENTION, &BLOCK, &GELU, &HEAD],
    as_modules: Some(&REGISTERS_MODULES),
    ..DINOV2
};

/// The same with SwiGLU, whose weights have other names.
static GATED: Family = Family {
    modules: &[&EMBEDDING, &ATTENTION, &BLOCK, &SWIGLU, &HEAD],
    as_modules: Some(&GATED_MODULES),
    ..DINOV2
};

static GATED_WITH_REGISTERS: Family = Family {
    modules: &[&EMBEDDING, &REGISTERS, &ATTENTION, &BLOCK, &SWIGLU, &HEAD],
    as_modules: Some(&GATED_REGISTERS_MODULES),
    ..WITH_REGISTERS
};

static DINOV2_MODULES: Family = Family {
    modules: &[&EMBEDDING, &ATTENTION_MODULES, &BLOCK, &GELU, &HEAD],
    as_modules: None,
    ..DINOV2
};

static REGISTERS_MODULES: Family =
    Family { prefix: "dinov2_with_registers.", class: "Dinov2WithRegisters", ..DINOV2_MODULES };

static GATED_MODULES: Family = Family {
    modules: &[&EMBEDDING, &ATTENTION_MODULES, &BLOCK, &SWIGLU_MODULES, &HEAD],
    ..DINOV2_MODULES
};

static GATED_REGISTERS_MODULES: Family = Family {
    modules: &[&EMBEDDING, &ATTENTION_MODULES, &BLOCK, &SWIGLU_MODULES, &HEAD],
    ..REGISTERS_MODULES
};

const REGISTERS: [Module; 1] =
    [module(Place::Embedding, &[Role::RegisterToken], "embeddings.register_tokens").alone(3)];

const BLOCK: [Module; 4] = [
    module(Place::Block, &[Role::AttentionNorm], "norm1"),
    module(Place::Block, &[Role::AttentionScale], "layer_scale1.lambda1").alone(1),
    module(Place::Block, &[Role::MlpNorm], "norm2"),
    module(Place::Block, &[Role::MlpScale], "layer_scale2.lambda1").alone(1),
];

const GELU: [Module; 2] =
    [module(Place::Block, &[Role::Up], "mlp.fc1"), module(Place::Block, &[Role::Down], "mlp.fc2")];

const SWIGLU: [Module; 2] = [
    module(Place::Block, &[Role::Gate, Role::Up], "mlp.weights_in"),
    module(Place::Block, &[Role::Down], "mlp.weights_out"),
];

const SWIGLU_MODULES: [Module; 3] = [
    module(Place::Block, &[Role::Gate], "mlp.gate_proj"),
    module(Place::Block, &[Role::Up], "mlp.up_proj"),
    module(Place::Block, &[Role::Down], "mlp.down_proj"),
];

pub(super) fn read_plain(fields: &Fields<'_>) -> Result<Config, ModelError> {
    read(fields, [&DINOV2, &GATED], 0)
}

pub(super) fn read_with_registers(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let registers = fields.size_or("num_register_tokens", 1..=limit::REGISTERS, 4)?;
    read(fields, [&WITH_REGISTERS, &GATED_WITH_REGISTERS], registers)
}

fn read(
    fields: &Fields<'_>,
    [plain, gated]: [&'static Family; 2],
    registers: usize,
) -> Result<Config, ModelError> {
    let is_gated = fields.flag_or("use_swiglu_ffn", false)?;
    let (family, activation) =
        if is_gated { (gated, Activation::Silu) } else { (plain, Activation::Gelu) };
    let properties = images::plain(family);
    let properties = Config {
        layer_scale: true,
        intermediate_size: intermediate_size(fields, is_gated)?,
        norm: Norm { epsilon: 1e-6, ..properties.norm },
        mlp: Mlp { activation, gated: is_gated },
        classifier: ClassifierHead { pooling: Pooling::FirstAndPatches, ..properties.classifier },
        ..properties
    };
    let image = ImageInput { registers, ..ImageInput::new((224, 224), 16, 3) };
    images::read(fields, (properties, image))
}

/// The width inside, as the library finds it from that outside; SwiGLU keeps two thirds in multiples of 8.
fn intermediate_size(fields: &Fields<'_>, is_gated: bool) -> Result<usize, ModelError> {
    let hidden_size = fields.size("hidden_size", 1..=limit::WIDTH)?;
    let ratio = fields.positive_or("mlp_ratio", 4.0)?;
    let inside = (hidden_size as f64 * ratio) as usize;
    let inside =
        if is_gated { ((inside as f64 * 2.0 / 3.0) as usize).next_multiple_of(8) } else { inside };
    if !(1..=limit::WIDTH).contains(&inside) {
        let expected = format!("a ratio that makes the MLP at most {} wide", limit::WIDTH);
        return Err(fields.refuse("mlp_ratio", expected));
    }
    Ok(inside)
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    images::write(config, object);
    object.remove("intermediate_size");
    object.insert("use_swiglu_ffn".into(), json!(config.mlp.gated));
    if let Some(image) = config.image.filter(|image| image.registers > 0) {
        object.insert("num_register_tokens".into(), json!(image.registers));
    } else {
        object.insert("use_mask_token".into(), json!(true));
    }
}
