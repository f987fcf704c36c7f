//! A LLaMA in a file: its configuration, and its tensors under the names of a folder.
//!
//! The file's rotary positions turn neighbouring rows of a query or key head, a folder's turn rows
//! half a head apart. So the rows of both projections are put back into the folder's order:
//!
//! ```text
//! file    0a 0b 1a 1b 2a 2b ..      (pair j: rows 2j and 2j + 1 of a head)
//! folder  0a 1a 2a .. 0b 1b 2b ..   (pair j: rows j and j + half)
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use fedra_plan::{Layer, ParamId, Part, Role};
use serde_json::{Map, json};

use super::reader::Reader;
use crate::error::ModelError;
use crate::family::ClassKind;
use crate::hf::tensors::{Info, Tensors};
use crate::hf::{Architecture, Config, Dtype};

/// The embedding, whose first dimension is the vocabulary.
const TOKENS: &str = "token_embd.weight";
/// The output vocabulary; a file without one shares the embedding.
const OUTPUT: &str = "output.weight";

/// What a file says the model is, checked as a `config.json` is.
pub(super) fn config(reader: &Reader) -> Result<Config, ModelError> {
    let metadata = reader.metadata();
    let text = |key| metadata.text(key);
    if text("general.architecture")? != Some("llama") {
        return Err(metadata.refuse("general.architecture", "\"llama\""));
    }
    if text("general.type")?.is_some_and(|kind| kind != "model") {
        return Err(metadata.refuse("general.type", "\"model\""));
    }
    refuse_others(reader)?;
    let count = |key: &str| -> Result<u64, ModelError> {
        let found = metadata.count(key)?;
        found.ok_or_else(|| metadata.refuse(key, "a whole number"))
    };
    let (width, heads) = (count("llama.embedding_length")?, count("llama.attention.head_count")?);
    let epsilon = metadata.number("llama.attention.layer_norm_rms_epsilon")?;
    let Some((_, tokens)) = reader.info(TOKENS) else {
        let expected = "a token embedding";
        return Err(ModelError::tensor(reader.path(), TOKENS, "no such tensor", expected));
    };
    let mut object = Map::new();
    for (key, value) in [
        ("model_type", json!("llama")),
        ("vocab_size", json!(tokens[0])),
        ("hidden_size", json!(width)),
        ("num_hidden_layers", json!(count("llama.block_count")?)),
        ("num_attention_heads", json!(heads)),
        ("num_key_value_heads", json!(metadata.count("llama.attention.head_count_kv")?)),
        ("head_dim", json!(metadata.count("llama.attention.key_length")?)),
        ("intermediate_size", json!(count("llama.feed_forward_length")?)),
        ("max_position_embeddings", json!(count("llama.context_length")?)),
        ("rms_norm_eps", json!(epsilon)),
        ("rope_theta", json!(metadata.number("llama.rope.freq_base")?)),
        ("tie_word_embeddings", json!(reader.info(OUTPUT).is_none())),
        ("bos_token_id", json!(metadata.count("tokenizer.ggml.bos_token_id")?)),
        ("eos_token_id", json!(metadata.count("tokenizer.ggml.eos_token_id")?)),
        ("pad_token_id", json!(metadata.count("tokenizer.ggml.padding_token_id")?)),
    ] {
        object.insert(key.into(), value);
    }
    if epsilon.is_none() {
        let key = "llama.attention.layer_norm_rms_epsilon";
        return Err(metadata.refuse(key, "a number"));
    }
    let config = Config::parse(reader.path(), json!(object).to_string().as_bytes())?;
    let head_dim = config.head_width() as u64;
    for key in ["llama.rope.dimension_count", "llama.attention.value_length"] {
        if metadata.count(key)?.is_some_and(|found| found != head_dim) {
            return Err(metadata.refuse(key, format!("{head_dim}, the width of a head")));
        }
    }
    Ok(config)
}

/// Refuses what would need other code than a plain LLaMA's.
fn refuse_others(reader: &Reader) -> Result<(), ModelError> {
    let metadata = reader.metadata();
    let scaling = metadata.text("llama.rope.scaling.type")?;
    if scaling.is_some_and(|kind| kind != "none") {
        let expected = "\"none\": plain rotary positions";
        return Err(metadata.refuse("llama.rope.scaling.type", expected));
    }
    if metadata.count("llama.expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(metadata.refuse("llama.expert_count", "0: one feed-forward layer per block"));
    }
    if metadata.count("llama.attention.sliding_window")?.is_some_and(|window| window > 0) {
        let expected = "nothing: attention over the whole text";
        return Err(metadata.refuse("llama.attention.sliding_window", expected));
    }
    match reader
        .names()
        .find(|name| name.starts_with("rope_factors") || *name == "rope_freqs.weight")
    {
        None => Ok(()),
        Some(name) => {
            let found = "factors of scaled rotary positions";
            Err(ModelError::tensor(reader.path(), name, found, "plain rotary positions"))
        }
    }
}

/// The tensors of a file under the names and in the row order of a folder.
#[derive(Debug)]
pub(crate) struct LlamaTensors {
    reader: Reader,
    /// By name in a folder.
    places: BTreeMap<String, Place>,
}

#[derive(Debug)]
struct Place {
    /// The name in the file.
    name: String,
    rows: RowOrder,
}

/// How the rows of a tensor stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowOrder {
    /// As in a folder.
    Same,
    /// In heads of this many rows, rotary pairs side by side.
    Interleaved(usize),
}

impl LlamaTensors {
    /// Gives every tensor of the file its name in a folder.
    pub(super) fn new(reader: Reader, config: &Config) -> Result<Self, ModelError> {
        let head_dim = config.head_width();
        let kind = ClassKind::Language;
        let class = Architecture { family: config.family, kind };
        let mut places = BTreeMap::new();
        for name in reader.names() {
            let Some(id) = parameter(name) else {
                let expected = "a tensor of a LLaMA model without biases";
                return Err(ModelError::tensor(reader.path(), name, "an unknown name", expected));
            };
            let is_turned = matches!(id.role, Role::Query | Role::Key);
            let rows = if is_turned { RowOrder::Interleaved(head_dim) } else { RowOrder::Same };
            let known = class.tensor_name(id);
            let known = known.expect("each role of the table is a decoder's");
            places.insert(known, Place { name: name.to_owned(), rows });
        }
        Ok(Self { reader, places })
    }
}

impl Tensors for LlamaTensors {
    fn path(&self) -> &Path {
        self.reader.path()
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.places.keys().map(String::as_str))
    }

    fn info(&self, name: &str) -> Option<Info<'_>> {
        let (_, shape) = self.reader.info(&self.places.get(name)?.name)?;
        Some(Info { dtype: Dtype::F32, shape })
    }

    fn read_f32(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let Some(Place { name, rows }) = self.places.get(name) else {
            let expected = "one of the file's tensors";
            return Err(ModelError::tensor(self.path(), name, "no such tensor", expected));
        };
        let values = self.reader.read_f32(name)?;
        let shape = self.reader.info(name).map(|(_, shape)| shape).unwrap_or_default();
        match (rows, shape) {
            (RowOrder::Interleaved(head), &[count, width]) if count.is_multiple_of(*head) => {
                Ok(half_split(&values, width, *head))
            }
            // A projection of another shape is refused by whoever asked for it.
            (RowOrder::Same | RowOrder::Interleaved(_), _) => Ok(values),
        }
    }
}

/// The parameter that a tensor of the file is.
fn parameter(name: &str) -> Option<ParamId> {
    let module = name.strip_suffix(".weight")?;
    let weight = |site, role| Some(ParamId::new(site, role, Part::Weight));
    match module {
        "token_embd" => return weight(Layer::Embedding, Role::Token),
        "output_norm" => return weight(Layer::Head, Role::FinalNorm),
        "output" => return weight(Layer::Head, Role::Vocabulary),
        _ => {}
    }
    let (number, module) = module.strip_prefix("blk.")?.split_once('.')?;
    let block: u16 = number.parse().ok().filter(|block: &u16| block.to_string() == number)?;
    let role = match module {
        "attn_norm" => Role::AttentionNorm,
        "attn_q" => Role::Query,
        "attn_k" => Role::Key,
        "attn_v" => Role::Value,
        "attn_output" => Role::Output,
        "ffn_norm" => Role::MlpNorm,
        "ffn_gate" => Role::Gate,
        "ffn_up" => Role::Up,
        "ffn_down" => Role::Down,
        _ => return None,
    };
    weight(Layer::Block(block), role)
}

/// Rows of `width` values, in heads of `head` rows, from rotary pairs side by side to pairs half a
/// head apart.
fn half_split(values: &[f32], width: usize, head: usize) -> Vec<f32> {
    let mut sorted = Vec::with_capacity(values.len());
    for head_rows in values.chunks_exact(width * head) {
        for side in 0..2 {
            for pair in 0..head / 2 {
                sorted.extend_from_slice(&head_rows[(2 * pair + side) * width..][..width]);
            }
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotary_pairs_move_half_a_head_apart() {
        let rows: Vec<f32> = (0..16).map(|n| n as f32).collect();
        let expected = [0., 1., 4., 5., 2., 3., 6., 7., 8., 9., 12., 13., 10., 11., 14., 15.];
        assert_eq!(half_split(&rows, 2, 4), expected);
    }

    #[test]
    fn names_are_the_files_own_and_nothing_else() {
        let query = ParamId::new(Layer::Block(7), Role::Query, Part::Weight);
        assert_eq!(parameter("blk.7.attn_q.weight"), Some(query));
        for other in ["blk.07.attn_q.weight", "blk.7.attn_q.bias", "blk.7.ffn_gate_inp.weight", ""]
        {
            assert_eq!(parameter(other), None, "{other}");
        }
    }
}
