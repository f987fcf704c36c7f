//! Shapes with names: small ones to start from, known ones to measure with.

use crate::config::Config;
use crate::image_input::ImageInput;

/// A shape by name; its weights are fresh, not pretrained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// A 4-block encoder of width 128.
    Tiny,
    /// The 6-block encoder of `MiniLM`, width 384.
    MiniLm,
    /// BERT-base: 12 blocks of width 768.
    BertBase,
    /// A 2-block decoder of width 64, for vocabularies that are grown.
    TinyDecoder,
    /// `SmolLM2-135M`: a 30-block decoder of width 576 with 3 key heads.
    SmolLm2,
    /// A 16-block decoder of width 2048, as Llama 3.2 with a billion parameters.
    Llama1B,
    /// `LLaMA2-7B`: a 32-block decoder of width 4096 with a head of its own.
    Llama2,
    /// `ModernBERT-base`: a 22-block encoder of width 768 with windows in two of three blocks.
    ModernBertBase,
    /// A 4-block `ViT` of width 64 for grey images of 28 x 28 pixels in patches of 7.
    VitTiny,
    /// A Vision Transformer of 6 blocks of width 192 for grey images of 28 x 28 pixels in patches of 4.
    VitMini,
    /// `ViT-S`: 12 blocks of width 384 for colour images of 224 x 224 pixels in patches of 16.
    VitSmall,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 11] = [
        Self::Tiny,
        Self::MiniLm,
        Self::BertBase,
        Self::TinyDecoder,
        Self::SmolLm2,
        Self::Llama1B,
        Self::Llama2,
        Self::ModernBertBase,
        Self::VitTiny,
        Self::VitMini,
        Self::VitSmall,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::MiniLm => "minilm",
            Self::BertBase => "bert-base",
            Self::TinyDecoder => "tiny-decoder",
            Self::SmolLm2 => "smollm2",
            Self::Llama1B => "llama-1b",
            Self::Llama2 => "llama2-7b",
            Self::ModernBertBase => "modernbert-base",
            Self::VitTiny => "vit-tiny",
            Self::VitMini => "vit-mini",
            Self::VitSmall => "vit-s",
        }
    }

    /// The preset with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Its configuration.
    pub fn config(self) -> Config {
        match self {
            Self::Tiny => encoder(4, 128, 4, 4096),
            Self::MiniLm => encoder(6, 384, 12, 30522),
            Self::BertBase => encoder(12, 768, 12, 30522),
            // A vocabulary that is grown begins and ends texts with these.
            Self::TinyDecoder => Config {
                bos_token_id: Some(2),
                eos_token_ids: vec![3],
                ..decoder(2, 64, (4, 2), 192, 4096)
            },
            Self::SmolLm2 => decoder(30, 576, (9, 3), 1536, 49152),
            Self::Llama1B => decoder(16, 2048, (32, 8), 8192, 128_256),
            Self::Llama2 => Config::llama(),
            // A vocabulary that is grown has its padding in front.
            Self::ModernBertBase => Config { pad_token_id: Some(0), ..Config::modernbert() },
            Self::VitTiny => images(4, 64, 4, ImageInput::new((28, 28), 7, 1)),
            Self::VitMini => images(6, 192, 3, ImageInput::new((28, 28), 4, 1)),
            Self::VitSmall => images(12, 384, 6, ImageInput::new((224, 224), 16, 3)),
        }
    }
}

fn images(blocks: usize, width: usize, heads: usize, image: ImageInput) -> Config {
    Config {
        hidden_size: width,
        num_hidden_layers: blocks,
        num_attention_heads: heads,
        intermediate_size: 4 * width,
        ..Config::vit().with_image(image)
    }
}

fn encoder(blocks: usize, width: usize, heads: usize, words: usize) -> Config {
    Config {
        vocab_size: words,
        hidden_size: width,
        num_hidden_layers: blocks,
        num_attention_heads: heads,
        intermediate_size: 4 * width,
        ..Config::bert()
    }
}

fn decoder(
    blocks: usize,
    width: usize,
    (heads, kv_heads): (usize, usize),
    inner: usize,
    words: usize,
) -> Config {
    Config {
        vocab_size: words,
        hidden_size: width,
        num_hidden_layers: blocks,
        num_attention_heads: heads,
        num_key_value_heads: Some(kv_heads),
        intermediate_size: inner,
        max_position_embeddings: 2048,
        tie_word_embeddings: true,
        ..Config::llama()
    }
}
