//! Shapes with names: small ones to start from, known ones to measure with.

use crate::config::Config;

/// A shape by name; its weights are fresh, not pretrained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// A 4-block encoder of width 128.
    Tiny,
    /// The 6-block encoder of `MiniLM`, width 384.
    MiniLm,
    /// BERT-base: 12 blocks of width 768.
    BertBase,
    /// `SmolLM2-135M`: a 30-block decoder of width 576 with 3 key heads.
    SmolLm2,
    /// A 16-block decoder of width 2048, as Llama 3.2 with a billion parameters.
    Llama1B,
    /// `LLaMA2-7B`: a 32-block decoder of width 4096 with a head of its own.
    Llama2,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 6] =
        [Self::Tiny, Self::MiniLm, Self::BertBase, Self::SmolLm2, Self::Llama1B, Self::Llama2];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::MiniLm => "minilm",
            Self::BertBase => "bert-base",
            Self::SmolLm2 => "smollm2",
            Self::Llama1B => "llama-1b",
            Self::Llama2 => "llama2-7b",
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
            Self::SmolLm2 => decoder(30, 576, (9, 3), 1536, 49152),
            Self::Llama1B => decoder(16, 2048, (32, 8), 8192, 128_256),
            Self::Llama2 => Config::llama(),
        }
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
