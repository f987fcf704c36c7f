//! What a Transformer is made of: properties, which a family reads once from `config.json`.
//!
//! Blocks, heads, layouts and caches are built from these values and ask for no family. The names of sizes
//! are those of `config.json` in most families.

use serde_json::{Map, Value};

use crate::config_json::labels::Labels;
use crate::error::ModelError;
use crate::family::Family;
use crate::image_input::ImageInput;
use fedra_compute::Activation;

/// A checked configuration: the sizes and properties of a model.
///
/// One that is made in code begins with [`Config::bert`], [`Config::llama`] or [`Config::vit`];
/// [`Config::check`] checks it as a file is checked.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct Config {
    /// Whose names its tensors and its file have.
    pub family: &'static Family,
    /// The images that it reads in place of tokens.
    pub image: Option<ImageInput>,
    /// Rows of the token embedding; zero for a model that reads images.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Query heads of a block.
    pub num_attention_heads: usize,
    /// Key and value heads of a block, where they are fewer; a divisor of the query heads.
    pub num_key_value_heads: Option<usize>,
    /// Width of a head, where it is not the width divided by the heads.
    pub head_dim: Option<usize>,
    /// Width inside the feed-forward layer.
    pub intermediate_size: usize,
    /// Longest sequence.
    pub max_position_embeddings: usize,
    /// Rows of the segment embedding; zero for a model that has none.
    pub type_vocab_size: usize,
    /// Width of the token embedding, where it is projected to that of the hidden states.
    pub embedding_size: Option<usize>,
    /// Whether a norm stands behind the embedding.
    pub embedding_norm: bool,
    /// Whether embeddings are multiplied by the root of the width.
    pub embedding_scaled: bool,
    /// Whether a token sees only those before it.
    pub causal: bool,
    /// How positions enter.
    pub positions: Positions,
    /// The window of blocks that see only what is near.
    pub window: Option<Window>,
    /// What scores of attention are divided by the root of, where it is not the width of a head.
    pub score_divisor: Option<f64>,
    /// Scores of attention `s` become `cap * tanh(s / cap)`.
    pub score_cap: Option<f64>,
    /// The same of the scores over the vocabulary.
    pub logit_cap: Option<f64>,
    /// The norm of the blocks.
    pub norm: Norm,
    /// Where norms stand in a block.
    pub norm_place: NormPlace,
    /// Whether the first block has no norm in front of its attention.
    pub first_norm_skipped: bool,
    /// Whether what a half adds is multiplied by factors, one for each column: `DINOv2`.
    pub layer_scale: bool,
    /// The norm of queries and keys.
    pub qk_norm: QkNorm,
    /// The feed-forward layer.
    pub mlp: Mlp,
    /// Which projections of attention have a bias.
    pub attention_bias: AttentionBias,
    /// Whether the feed-forward layer has biases.
    pub mlp_bias: bool,
    /// What stands between the last block and a classifier.
    pub classifier: ClassifierHead,
    /// What stands between the last block and the vocabulary.
    pub language: LanguageHead,
    /// Whether the output vocabulary shares the weight of the token embedding.
    pub tie_word_embeddings: bool,
    /// Standard deviation of weights that are drawn beside those of a folder.
    pub initializer_range: f64,
    /// The token that fills short rows.
    pub pad_token_id: Option<u32>,
    /// The token that begins a text.
    pub bos_token_id: Option<u32>,
    /// The tokens that end a text.
    pub eos_token_ids: Vec<u32>,
    /// Names of the classes.
    pub labels: Option<Labels>,
    /// The file as it was, for the keys that are not listed here; empty for a model made in code.
    pub original: Map<String, Value>,
}

/// How positions enter.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// A table that is added to the embedding; the first position is in row `offset`.
    Learned {
        /// Rows before the first position.
        offset: usize,
    },
    /// Queries and keys are turned.
    Rotary(Rope),
}

/// Rotary positions (Su et al. 2021, <https://arxiv.org/abs/2104.09864>).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// How frequencies are changed for long texts.
    pub scaling: RopeScaling,
    /// The base in blocks with a window, where it is another one; their frequencies are not scaled.
    pub local_theta: Option<f64>,
    /// Blocks whose queries and keys are not turned.
    pub unturned: Vec<bool>,
}

/// A window of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The furthest distance that a token sees, to either side.
    pub distance: usize,
    /// Which blocks have it; all, if none is listed.
    pub blocks: Vec<bool>,
}

/// How rotary frequencies are changed for texts that are longer than those of the pre-training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// They are not.
    None,
    /// All are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// They depend on lengths above the longest of the pre-training, which is the longest here.
    Dynamic {
        /// The factor.
        factor: f64,
    },
    /// Llama 3: three bands of wavelengths, with a smooth one in the middle.
    Llama3 {
        /// The factor of long wavelengths.
        factor: f64,
        /// Where the band of long wavelengths begins.
        low: f64,
        /// Where the band of short wavelengths ends.
        high: f64,
        /// The longest text of the pre-training.
        original: f64,
    },
    /// YaRN (Peng et al. 2023, <https://arxiv.org/abs/2309.00071>).
    Yarn {
        /// The factor of long wavelengths.
        factor: f64,
        /// The longest text of the pre-training.
        original: f64,
        /// Turns in that text above which a frequency stays.
        fast: f64,
        /// Turns in that text below which a frequency is divided.
        slow: f64,
        /// What queries and keys are multiplied by.
        attention: f64,
    },
    /// `LongRoPE` (Ding et al. 2024, <https://arxiv.org/abs/2402.13753>).
    LongRope(LongRope),
}

/// Frequencies that are divided by factors of their own, by others in long texts than in short ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// The divisor of each frequency in a text of at most `original` tokens.
    pub short: Vec<f64>,
    /// The divisor of each frequency in a longer text.
    pub long: Vec<f64>,
    /// The longest text of the pre-training.
    pub original: usize,
    /// What queries and keys are multiplied by.
    pub attention: f64,
}

/// A norm and what is added to the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Which norm.
    pub kind: NormKind,
    /// Added to the variance, or to the mean square.
    pub epsilon: f64,
}

/// The kinds of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Layer norm with a weight and a bias.
    Layer,
    /// Layer norm with a weight.
    LayerUnbiased,
    /// RMS norm with a weight.
    Rms,
    /// RMS norm with a weight to which 1 is added: Gemma.
    RmsPlusOne,
}

/// Where norms stand in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlace {
    /// Over the sum of a half and what went past it: BERT.
    AfterResidual,
    /// In front of each half: LLaMA.
    Before,
    /// Behind each half, before it is added: OLMo 2.
    After,
    /// In front of each half and behind it: Gemma 2.
    Around,
}

/// The norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// Each head by itself, with one weight for all: Qwen 3.
    PerHead,
    /// All heads together: OLMo 2.
    Whole,
}

/// The feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// What is applied to the first projection.
    pub activation: Activation,
    /// Whether a second projection is multiplied with it.
    pub gated: bool,
}

/// Which projections of attention have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionBias {
    /// None.
    None,
    /// Those of queries, keys and values: Qwen 2.
    Qkv,
    /// That of the output: a `ViT` without `qkv_bias`.
    Output,
    /// All four.
    All,
}

/// What stands between the last block and a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifierHead {
    /// The layers between.
    pub layers: ClassifierLayers,
    /// Whether a sequence's classifier has a bias; one for tokens always has.
    pub bias: bool,
    /// Which rows of a sequence it reads.
    pub pooling: Pooling,
}

/// The layers in front of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifierLayers {
    /// None.
    None,
    /// A dense layer in front of a sequence's, and what is applied to it.
    Dense(Activation),
    /// What stands in front of the vocabulary, also in front of tokens' classifiers.
    Transform,
}

/// Which rows of a sequence its classifier reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first.
    First,
    /// The mean of all.
    Mean,
    /// The first, and beside it the mean of an image's patches: `DINOv2`.
    FirstAndPatches,
    /// The last.
    Last,
}

/// What stands between the last block and the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanguageHead {
    /// A dense layer and a norm, and what is applied between them.
    pub transform: Option<Activation>,
    /// Whether that dense layer has a bias.
    pub transform_bias: bool,
    /// Whether the vocabulary has a bias.
    pub bias: bool,
}

impl Config {
    /// Key and value heads of a block.
    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// The longest text whose tokens have the rotary positions of short ones, where long texts have others.
    pub fn longest_short_text(&self) -> Option<usize> {
        match &self.positions {
            Positions::Rotary(Rope { scaling: RopeScaling::LongRope(scaling), .. }) => {
                Some(scaling.original)
            }
            Positions::Rotary(_) | Positions::Learned { .. } => None,
        }
    }

    /// Width of a head.
    pub fn head_width(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Width of the token embedding.
    pub fn embedding_width(&self) -> usize {
        self.embedding_size.unwrap_or(self.hidden_size)
    }

    /// Width of what a sequence's classifier reads.
    pub(crate) fn classifier_width(&self) -> usize {
        match self.classifier.pooling {
            Pooling::FirstAndPatches => 2 * self.hidden_size,
            Pooling::First | Pooling::Mean | Pooling::Last => self.hidden_size,
        }
    }

    /// The same model for other images.
    pub fn with_image(self, image: ImageInput) -> Self {
        Self { max_position_embeddings: image.tokens(), image: Some(image), ..self }
    }

    /// The same model for images of another height and width.
    pub fn resized(self, height: usize, width: usize) -> Result<Self, ModelError> {
        let Some(image) = self.image else {
            let (what, found) = ("model for images of another size", "a model that reads text");
            return Err(ModelError::structure(what, &found, &"one that reads images"));
        };
        let config = self.with_image(ImageInput { height, width, ..image });
        config.check()?;
        Ok(config)
    }

    /// Whether a norm stands behind the last block.
    pub fn has_final_norm(&self) -> bool {
        self.norm_place != NormPlace::AfterResidual
    }
}

impl ClassifierHead {
    /// Whether a dense layer stands in front of a sequence's classifier.
    pub const fn has_dense(self) -> bool {
        matches!(self.layers, ClassifierLayers::Dense(_))
    }
}

impl Window {
    /// Whether a block has it.
    pub(crate) fn is_of(&self, block: usize) -> bool {
        self.blocks.is_empty() || self.blocks.get(block).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_size_is_for_models_of_images_and_for_whole_patches() {
        let refused = |config: Config| config.resized(30, 30).unwrap_err().to_string();
        assert!(refused(Config::bert()).contains("found a model that reads text"));
        assert!(refused(Config::vit()).contains("image_size: found"), "{}", refused(Config::vit()));
        assert_eq!(Config::vit().resized(64, 32).unwrap().max_position_embeddings, 9);
    }
}
