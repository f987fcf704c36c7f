//! The configuration of a BERT encoder (Devlin et al. 2019, <https://arxiv.org/abs/1810.04805>), in
//! the names of `config.json`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields::{Fields, INITIALIZER_RANGE, is_usual_range, limit, written};
use super::labels::Labels;
use crate::error::ModelError;

/// A BERT encoder with absolute positions and the exact GELU. Any other kind is refused when read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BertConfig {
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Attention heads per block; divides the width.
    pub num_attention_heads: usize,
    /// Width inside the feed-forward layer.
    pub intermediate_size: usize,
    /// Rows of the position embedding.
    pub max_position_embeddings: usize,
    /// Rows of the segment embedding; zero for a model that has none.
    pub type_vocab_size: usize,
    /// Added to the variance in every layer norm.
    pub layer_norm_eps: f64,
    /// Standard deviation of weights that are drawn anew beside those of a folder.
    #[serde(skip_serializing_if = "is_usual_range")]
    pub initializer_range: f64,
    /// The token that fills short rows.
    pub pad_token_id: Option<u32>,
    /// Names of the classes.
    #[serde(skip)]
    pub labels: Option<Labels>,
    /// The file as it was, for the keys not listed here; empty for a model made in code.
    #[serde(skip)]
    pub original: Map<String, Value>,
}

/// BERT-base, uncased.
impl Default for BertConfig {
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            layer_norm_eps: 1e-12,
            initializer_range: INITIALIZER_RANGE,
            pad_token_id: Some(0),
            labels: None,
            original: Map::new(),
        }
    }
}

impl BertConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ModelError> {
        fields.one_of("hidden_act", &["gelu", "gelu_python"])?;
        fields.only("position_embedding_type", "absolute")?;
        fields.must_be_false("is_decoder")?;
        fields.must_be_false("add_cross_attention")?;
        if fields.object("pruned_heads")?.is_some_and(|heads| !heads.is_empty()) {
            return Err(fields.refuse("pruned_heads", "all heads present"));
        }
        if !fields.flag_or("tie_word_embeddings", true)? {
            return Err(fields.refuse("tie_word_embeddings", "true"));
        }
        fields.refuse_quantised()?;

        let hidden_size = fields.size("hidden_size", 1..=limit::WIDTH)?;
        let num_attention_heads = fields.size("num_attention_heads", 1..=limit::HEADS)?;
        if !hidden_size.is_multiple_of(num_attention_heads) {
            let expected = format!("a divisor of hidden_size, which is {hidden_size}");
            return Err(fields.refuse("num_attention_heads", expected));
        }
        let vocab_size = fields.size("vocab_size", 1..=limit::VOCABULARY)?;
        let standard = Self::default();
        Ok(Self {
            vocab_size,
            hidden_size,
            num_hidden_layers: fields.size("num_hidden_layers", 1..=limit::BLOCKS)?,
            num_attention_heads,
            intermediate_size: fields.size("intermediate_size", 1..=limit::WIDTH)?,
            max_position_embeddings: fields
                .size("max_position_embeddings", 1..=limit::POSITIONS)?,
            type_vocab_size: fields.size_or(
                "type_vocab_size",
                0..=limit::SEGMENTS,
                standard.type_vocab_size,
            )?,
            layer_norm_eps: fields.positive_or("layer_norm_eps", standard.layer_norm_eps)?,
            initializer_range: fields.positive_or("initializer_range", INITIALIZER_RANGE)?,
            pad_token_id: fields.padding_or(standard.pad_token_id, vocab_size)?,
            labels: Labels::read(fields)?,
            original: fields.object.clone(),
        })
    }

    pub(super) fn to_json(&self) -> Map<String, Value> {
        let mut object = written(self);
        object.insert("model_type".into(), json!("bert"));
        object.insert("hidden_act".into(), json!("gelu"));
        object.insert("position_embedding_type".into(), json!("absolute"));
        object
    }
}
