//! What models of images have in common: sizes of images and patches in place of a vocabulary, norms in front of
//! each half, learned positions, a class token.

use fedra_compute::Activation;
use fedra_plan::Role;
use serde_json::{Map, Value, json};

use crate::config::{
    AttentionBias, ClassifierHead, ClassifierLayers, Config, LanguageHead, Mlp, Norm, NormKind,
    NormPlace, Pooling, Positions,
};
use crate::config_json::fields::{Fields, INITIALIZER_RANGE, limit};
use crate::config_json::labels::Labels;
use crate::error::ModelError;
use crate::family::{Family, Module, Place, module};
use crate::image_input::ImageInput;

/// The modules of the embedding that all have.
pub(super) const EMBEDDING: [Module; 3] = [
    module(Place::Embedding, &[Role::ClassToken], "embeddings.cls_token").alone(3),
    module(Place::Embedding, &[Role::Position], "embeddings.position_embeddings").alone(3),
    module(Place::Embedding, &[Role::Patch], "embeddings.patch_embeddings.projection"),
];

/// The modules of attention.
pub(super) const ATTENTION: [Module; 4] = [
    module(Place::Block, &[Role::Query], "attention.attention.query"),
    module(Place::Block, &[Role::Key], "attention.attention.key"),
    module(Place::Block, &[Role::Value], "attention.attention.value"),
    module(Place::Block, &[Role::Output], "attention.output.dense"),
];

/// The same as the library has called them since version 5; its files keep the older names.
pub(super) const ATTENTION_MODULES: [Module; 4] = [
    module(Place::Block, &[Role::Query], "attention.q_proj"),
    module(Place::Block, &[Role::Key], "attention.k_proj"),
    module(Place::Block, &[Role::Value], "attention.v_proj"),
    module(Place::Block, &[Role::Output], "attention.o_proj"),
];

/// The modules behind the blocks.
pub(super) const HEAD: [Module; 2] = [
    module(Place::BackboneHead, &[Role::FinalNorm], "layernorm"),
    module(Place::Head, &[Role::Classifier], "classifier"),
];

/// The base size of every family: 12 blocks of width 768 over 224 x 224 pixels in patches of 16.
pub(super) fn plain(family: &'static Family) -> Config {
    Config {
        family,
        vocab_size: 0,
        type_vocab_size: 0,
        embedding_norm: false,
        positions: Positions::Learned { offset: 0 },
        norm: Norm { kind: NormKind::Layer, epsilon: 1e-12 },
        norm_place: NormPlace::Before,
        mlp: Mlp { activation: Activation::Gelu, gated: false },
        attention_bias: AttentionBias::All,
        mlp_bias: true,
        classifier: ClassifierHead {
            layers: ClassifierLayers::None,
            bias: true,
            pooling: Pooling::First,
        },
        language: LanguageHead { transform: None, transform_bias: false, bias: false },
        pad_token_id: None,
        ..Config::bert().with_image(ImageInput::new((224, 224), 16, 3))
    }
}

/// The sizes that all have, over the properties of one and its images when the file says nothing.
pub(super) fn read(
    fields: &Fields<'_>,
    (properties, image): (Config, ImageInput),
) -> Result<Config, ModelError> {
    fields.one_of("hidden_act", &["gelu", "gelu_python"])?;
    fields.refuse_quantised()?;
    let hidden_size = fields.size("hidden_size", 1..=limit::WIDTH)?;
    let num_attention_heads = fields.size("num_attention_heads", 1..=limit::HEADS)?;
    if !hidden_size.is_multiple_of(num_attention_heads) {
        let expected = format!("a divisor of hidden_size, which is {hidden_size}");
        return Err(fields.refuse("num_attention_heads", expected));
    }
    let head = hidden_size / num_attention_heads;
    if fields.size_or("head_dim", 1..=limit::WIDTH, head)? != head {
        return Err(fields.refuse("head_dim", format!("{head}, hidden_size by heads, or nothing")));
    }
    let (height, width) = pair(fields, "image_size", (image.height, image.width))?;
    let usual = (image.patch_height, image.patch_width);
    let (patch_height, patch_width) = pair(fields, "patch_size", usual)?;
    let channels = fields.size_or("num_channels", 1..=limit::CHANNELS, image.channels)?;
    if !height.is_multiple_of(patch_height) || !width.is_multiple_of(patch_width) {
        let patch = format!("{patch_height} x {patch_width}");
        let expected = format!("whole patches: multiples of patch_size, {patch}");
        let found = format!("{height} x {width}");
        return Err(ModelError::config(fields.path, "image_size", found, expected));
    }
    let image = ImageInput { height, width, patch_height, patch_width, channels, ..image };
    let has_bias = fields.flag_or("qkv_bias", true)?;
    let epsilon = fields.positive_or("layer_norm_eps", properties.norm.epsilon)?;
    let config = Config {
        hidden_size,
        num_attention_heads,
        num_hidden_layers: fields.size("num_hidden_layers", 1..=limit::BLOCKS)?,
        attention_bias: if has_bias { AttentionBias::All } else { AttentionBias::Output },
        norm: Norm { epsilon, ..properties.norm },
        initializer_range: fields.positive_or("initializer_range", INITIALIZER_RANGE)?,
        labels: Labels::read(fields)?,
        original: fields.object.clone(),
        ..properties
    };
    Ok(config.with_image(image))
}

/// Writes what all have beside widths, heads and blocks.
pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("hidden_act", json!("gelu"));
    put("layer_norm_eps", json!(config.norm.epsilon));
    put("qkv_bias", json!(config.attention_bias == AttentionBias::All));
    if let Some(image) = &config.image {
        put("image_size", one_or_two(image.height, image.width));
        put("patch_size", one_or_two(image.patch_height, image.patch_width));
        put("num_channels", json!(image.channels));
    }
}

/// The library writes a square as one number.
fn one_or_two(height: usize, width: usize) -> Value {
    if height == width { json!(height) } else { json!([height, width]) }
}

/// A height and a width: one number for both, or a list of two.
fn pair(
    fields: &Fields<'_>,
    key: &str,
    absent: (usize, usize),
) -> Result<(usize, usize), ModelError> {
    let Some(value) = fields.get(key) else { return Ok(absent) };
    let side = |value: &Value| {
        let side = usize::try_from(value.as_u64()?).ok()?;
        (1..=limit::IMAGE_SIDE).contains(&side).then_some(side)
    };
    let found = match value.as_array().map(Vec::as_slice) {
        None => side(value).map(|side| (side, side)),
        Some([height, width]) => side(height).zip(side(width)),
        Some(_) => None,
    };
    let most = limit::IMAGE_SIDE;
    found.ok_or_else(|| fields.refuse(key, format!("a number from 1 to {most}, or a list of two")))
}
