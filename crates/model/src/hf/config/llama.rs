//! The configuration of a LLaMA decoder (Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>),
//! in the names of `config.json`.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::fields::{Fields, INITIALIZER_RANGE, is_usual_range, limit, written};
use super::labels::Labels;
use crate::error::ModelError;

/// What rotary positions use unless the file says otherwise.
const ROPE_THETA: f64 = 10_000.0;

/// A LLaMA decoder with plain rotary positions, SwiGLU and no biases. Any other kind is refused
/// when read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LlamaConfig {
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Query heads per block.
    pub num_attention_heads: usize,
    /// Key and value heads per block; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of one head; even, because rotary positions turn pairs.
    pub head_dim: usize,
    /// Width inside the feed-forward layer.
    pub intermediate_size: usize,
    /// Longest sequence the model was made for.
    pub max_position_embeddings: usize,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Whether the output vocabulary shares the weight of the token embedding.
    pub tie_word_embeddings: bool,
    /// Standard deviation of weights that are drawn anew beside those of a folder.
    #[serde(skip_serializing_if = "is_usual_range")]
    pub initializer_range: f64,
    /// The token that fills short rows.
    pub pad_token_id: Option<u32>,
    /// The token that begins a text.
    pub bos_token_id: Option<u32>,
    /// The tokens that end a text.
    #[serde(rename = "eos_token_id", serialize_with = "one_or_several")]
    pub eos_token_ids: Vec<u32>,
    /// Names of the classes.
    #[serde(skip)]
    pub labels: Option<Labels>,
    /// The file as it was, for the keys not listed here; empty for a model made in code.
    #[serde(skip)]
    pub original: Map<String, Value>,
}

/// LLaMA 2 with 7 billion parameters.
impl Default for LlamaConfig {
    fn default() -> Self {
        Self {
            vocab_size: 32000,
            hidden_size: 4096,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: 32,
            head_dim: 128,
            intermediate_size: 11008,
            max_position_embeddings: 4096,
            rms_norm_eps: 1e-5,
            rope_theta: ROPE_THETA,
            tie_word_embeddings: false,
            initializer_range: INITIALIZER_RANGE,
            pad_token_id: None,
            bos_token_id: Some(1),
            eos_token_ids: vec![2],
            labels: None,
            original: Map::new(),
        }
    }
}

impl LlamaConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ModelError> {
        fields.one_of("hidden_act", &["silu", "swish"])?;
        fields.must_be_false("attention_bias")?;
        fields.must_be_false("mlp_bias")?;
        fields.refuse_quantised()?;

        let hidden_size = fields.size("hidden_size", 1..=limit::WIDTH)?;
        let num_attention_heads = fields.size("num_attention_heads", 1..=limit::HEADS)?;
        let num_key_value_heads =
            fields.size_or("num_key_value_heads", 1..=limit::HEADS, num_attention_heads)?;
        if !num_attention_heads.is_multiple_of(num_key_value_heads) {
            let expected = format!("a divisor of num_attention_heads, {num_attention_heads}");
            return Err(fields.refuse("num_key_value_heads", expected));
        }
        if fields.get("head_dim").is_none() && !hidden_size.is_multiple_of(num_attention_heads) {
            let expected = format!("a divisor of hidden_size, which is {hidden_size}");
            return Err(fields.refuse("num_attention_heads", expected));
        }
        let head_dim =
            fields.size_or("head_dim", 1..=limit::WIDTH, hidden_size / num_attention_heads)?;
        if !head_dim.is_multiple_of(2) || head_dim * num_attention_heads > limit::WIDTH {
            let expected = format!("an even width whose heads have at most {}", limit::WIDTH);
            return Err(fields.refuse("head_dim", format!("{expected}, not {head_dim}")));
        }
        let vocab_size = fields.size("vocab_size", 1..=limit::VOCABULARY)?;
        Ok(Self {
            vocab_size,
            hidden_size,
            num_hidden_layers: fields.size("num_hidden_layers", 1..=limit::BLOCKS)?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            intermediate_size: fields.size("intermediate_size", 1..=limit::WIDTH)?,
            max_position_embeddings: fields
                .size("max_position_embeddings", 1..=limit::POSITIONS)?,
            // What the library means by its absence, which is not what any published model has.
            rms_norm_eps: fields.positive_or("rms_norm_eps", 1e-6)?,
            rope_theta: rope_theta(fields)?,
            tie_word_embeddings: fields.flag_or("tie_word_embeddings", false)?,
            initializer_range: fields.positive_or("initializer_range", INITIALIZER_RANGE)?,
            pad_token_id: fields.padding_or(None, vocab_size)?,
            bos_token_id: fields.token_or("bos_token_id", Some(1))?,
            eos_token_ids: fields.tokens_or("eos_token_id", Some(2))?,
            labels: Labels::read(fields)?,
            original: fields.object.clone(),
        })
    }

    pub(super) fn to_json(&self) -> Map<String, Value> {
        let mut object = written(self);
        object.insert("model_type".into(), json!("llama"));
        object.insert("hidden_act".into(), json!("silu"));
        object.insert("attention_bias".into(), json!(false));
        object.insert("mlp_bias".into(), json!(false));
        let rope = json!({ "rope_theta": self.rope_theta, "rope_type": "default" });
        object.insert("rope_parameters".into(), rope);
        object
    }
}

/// The library writes one token as a number, and several as a list.
fn one_or_several<S: Serializer>(tokens: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    match tokens {
        [] => serializer.serialize_none(),
        [one] => one.serialize(serializer),
        several => several.serialize(serializer),
    }
}

/// The base of plain rotary positions, from where either generation of the library keeps it.
fn rope_theta(fields: &Fields<'_>) -> Result<f64, ModelError> {
    let mut theta = fields.get("rope_theta").map(|_| fields.positive_or("rope_theta", 0.0));
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(object) = fields.object(key)? else { continue };
        let within = format!("{key}.");
        let nested = Fields { path: fields.path, object, within: &within };
        nested.only("rope_type", "default")?;
        nested.only("type", "default")?;
        if nested.positive_or("partial_rotary_factor", 1.0)? != 1.0 {
            return Err(nested.refuse("partial_rotary_factor", "1"));
        }
        if nested.get("rope_theta").is_none() {
            continue;
        }
        let found = nested.positive_or("rope_theta", 0.0)?;
        if let Some(outer) = theta.transpose()?
            && outer != found
        {
            return Err(nested.refuse("rope_theta", format!("{outer}, as said elsewhere")));
        }
        theta = Some(Ok(found));
    }
    theta.unwrap_or(Ok(ROPE_THETA))
}
