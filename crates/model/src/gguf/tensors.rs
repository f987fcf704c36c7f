//! The tensors of a file under the names and in the layout of a folder.
//!
//! One table has the names of all architectures; which of them a family knows is in its own table. Values differ in
//! three ways: some files have the rows of query and key heads in another order (below), Gemma's norms are stored
//! with the 1 added that a folder leaves to the model, and GPT-2's projections are not transposed.
//!
//! ```text
//! interleaved  0a 0b 1a 1b 2a 2b ..      (pair j: rows 2j and 2j + 1 of a head)
//! folder       0a 1a 2a .. 0b 1b 2b ..   (pair j: rows j and j + half)
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use fedra_compute::{Quantisation, QuantisedMatrix};
use fedra_plan::{Layer, ParamId, Part, Role};

use super::architecture::{Architecture, Positions};
use super::reader::Reader;
use super::rope::is_of_positions;
use crate::config::NormKind;
use crate::error::ModelError;
use crate::family::{ClassKind, is_norm};
use crate::hf::checkpoint::transpose;
use crate::hf::tensors::{Info, Tensors};
use crate::hf::{Architecture as Class, Config, Dtype};

/// The modules outside of blocks.
const OUTSIDE: [(&str, Layer, Role); 4] = [
    ("token_embd", Layer::Embedding, Role::Token),
    ("position_embd", Layer::Embedding, Role::Position),
    ("output_norm", Layer::Head, Role::FinalNorm),
    ("output", Layer::Head, Role::Vocabulary),
];

/// The modules of a block, with the roles that lie one after the other in their rows.
const BLOCK: [(&str, &[Role]); 15] = [
    ("attn_norm", &[Role::AttentionNorm]),
    ("attn_q", &[Role::Query]),
    ("attn_k", &[Role::Key]),
    ("attn_v", &[Role::Value]),
    ("attn_qkv", &[Role::Query, Role::Key, Role::Value]),
    ("attn_output", &[Role::Output]),
    ("attn_q_norm", &[Role::QueryNorm]),
    ("attn_k_norm", &[Role::KeyNorm]),
    ("post_attention_norm", &[Role::AttentionOutputNorm]),
    ("ffn_norm", &[Role::MlpNorm]),
    ("ffn_gate", &[Role::Gate]),
    ("ffn_up", &[Role::Up]),
    // The same name where a family stores both together.
    ("ffn_up", &[Role::Gate, Role::Up]),
    ("ffn_down", &[Role::Down]),
    ("post_ffw_norm", &[Role::MlpOutputNorm]),
];

/// The tensors of a file under the names and in the layout of a folder.
#[derive(Debug)]
pub(crate) struct DecoderTensors {
    reader: Reader,
    /// By name in a folder.
    places: BTreeMap<String, Place>,
}

#[derive(Debug)]
struct Place {
    /// The name in the file.
    name: String,
    /// The shape in a folder.
    shape: Vec<usize>,
    change: Change,
}

/// What is done to the values of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// Rows in heads of this many are put from pairs side by side to pairs half a head apart.
    Deinterleave(usize),
    /// The 1 of a norm's weight is taken off.
    SubtractOne,
    /// Inputs become rows.
    Transpose,
}

impl DecoderTensors {
    /// Gives every tensor of the file its name in a folder.
    pub(super) fn new(
        reader: Reader,
        config: &Config,
        architecture: &Architecture,
    ) -> Result<Self, ModelError> {
        let class = Class { family: config.family, kind: ClassKind::Language };
        let mut places = BTreeMap::new();
        for name in reader.names().filter(|name| !is_of_positions(name)) {
            let id = parameter(name, class);
            let Some((id, known)) = id.and_then(|id| Some((id, class.tensor_name(id)?))) else {
                let expected = format!("a tensor of a {} model", config.family.name);
                return Err(ModelError::tensor(reader.path(), name, "an unknown name", expected));
            };
            let is_turned = matches!(id.role, Role::Query | Role::Key);
            let change = if is_turned && architecture.positions == Positions::Interleaved {
                Change::Deinterleave(config.head_width())
            } else if is_norm(id.role) && config.norm.kind == NormKind::RmsPlusOne {
                Change::SubtractOne
            } else if class.is_transposed(id) {
                Change::Transpose
            } else {
                Change::None
            };
            let mut shape = reader.info(name).map(|(_, shape)| shape.to_vec()).unwrap_or_default();
            if change == Change::Transpose {
                shape.reverse();
            }
            places.insert(known, Place { name: name.to_owned(), shape, change });
        }
        Ok(Self { reader, places })
    }
}

impl Tensors for DecoderTensors {
    fn path(&self) -> &Path {
        self.reader.path()
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.places.keys().map(String::as_str))
    }

    fn info(&self, name: &str) -> Option<Info<'_>> {
        let place = self.places.get(name)?;
        Some(Info { dtype: Dtype::F32, shape: &place.shape })
    }

    fn read_f32(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let Some(Place { name, shape, change }) = self.places.get(name) else {
            let expected = "one of the file's tensors";
            return Err(ModelError::tensor(self.path(), name, "no such tensor", expected));
        };
        let mut values = self.reader.read_f32(name)?;
        // A tensor of another shape is refused by whoever asked for it.
        match (*change, shape[..].first()) {
            (Change::Deinterleave(head), Some(rows)) if rows.is_multiple_of(head) => {
                values = deinterleave(&values, values.len() / rows, head);
            }
            (Change::SubtractOne, _) => values.iter_mut().for_each(|value| *value -= 1.0),
            (Change::Transpose, Some(inputs)) => values = transpose(&values, *inputs),
            (Change::None | Change::Deinterleave(_) | Change::Transpose, _) => {}
        }
        Ok(values)
    }

    fn read_quantised(
        &self,
        name: &str,
        most: Quantisation,
    ) -> Result<Option<QuantisedMatrix>, ModelError> {
        let Some(Place { name, change, .. }) = self.places.get(name) else { return Ok(None) };
        let read = || self.reader.read_quantised(name, most);
        Ok(match *change {
            Change::None => read()?,
            Change::Deinterleave(head) => read()?.and_then(|matrix| {
                let rows = matrix.shape().0;
                let place = |row: usize| row - row % head + place_in_head(row % head, head);
                rows.is_multiple_of(head).then(|| matrix.rows_in_order((0..rows).map(place)))
            }),
            // Blocks run along inputs, which would become rows; a norm is no matrix.
            Change::Transpose | Change::SubtractOne => None,
        })
    }
}

/// The first parameter in a tensor of the file, where the class has a tensor of the same parameters.
fn parameter(name: &str, class: Class) -> Option<ParamId> {
    let (module, part) = match name.rsplit_once('.')? {
        (module, "weight") => (module, Part::Weight),
        (module, "bias") => (module, Part::Bias),
        _ => return None,
    };
    let is_named = |id: &ParamId, roles: &[Role]| {
        let together = class.stored_with(*id);
        together.iter().map(|id| id.role).eq(roles.iter().copied())
    };
    if let Some((_, layer, role)) = OUTSIDE.iter().find(|(known, ..)| *known == module) {
        return Some(ParamId::new(*layer, *role, part)).filter(|id| is_named(id, &[*role]));
    }
    let (number, module) = module.strip_prefix("blk.")?.split_once('.')?;
    let block: u16 = number.parse().ok().filter(|block: &u16| block.to_string() == number)?;
    let known = BLOCK.iter().filter(|(known, _)| *known == module);
    known
        .map(|(_, roles)| (ParamId::new(Layer::Block(block), roles[0], part), roles))
        .find_map(|(id, roles)| is_named(&id, roles).then_some(id))
}

/// Rows of `width` values, in heads of `head` rows, from rotary pairs side by side to pairs half a
/// head apart.
fn deinterleave(values: &[f32], width: usize, head: usize) -> Vec<f32> {
    let mut sorted = Vec::with_capacity(values.len());
    for head_rows in values.chunks_exact(width * head) {
        for row in 0..head {
            sorted.extend_from_slice(&head_rows[place_in_head(row, head) * width..][..width]);
        }
    }
    sorted
}

/// Where a row of a head lies whose rotary pairs are side by side.
fn place_in_head(row: usize, head: usize) -> usize {
    let (side, pair) = (row / (head / 2).max(1), row % (head / 2).max(1));
    2 * pair + side
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotary_pairs_move_half_a_head_apart() {
        let rows: Vec<f32> = (0..16).map(|n| n as f32).collect();
        let expected = [0., 1., 4., 5., 2., 3., 6., 7., 8., 9., 12., 13., 10., 11., 14., 15.];
        assert_eq!(deinterleave(&rows, 2, 4), expected);
    }

    #[test]
    fn names_are_the_files_own_and_nothing_else() {
        let class = |name: &str| Class::parse(name).unwrap();
        let id = |role, part| Some(ParamId::new(Layer::Block(7), role, part));
        let llama = class("LlamaForCausalLM");
        assert_eq!(parameter("blk.7.attn_q.weight", llama), id(Role::Query, Part::Weight));
        assert_eq!(parameter("blk.7.attn_q.bias", llama), id(Role::Query, Part::Bias));
        for other in [
            "blk.07.attn_q.weight",
            "blk.7.attn_q.scale",
            "blk.7.attn_qkv.weight",
            "blk.7.attn_q_norm.weight",
            "blk.7.ffn_gate_inp.weight",
            "position_embd.weight",
            "",
        ] {
            assert_eq!(parameter(other, llama), None, "{other}");
        }
        let phi = class("Phi3ForCausalLM");
        assert_eq!(parameter("blk.7.attn_qkv.weight", phi), id(Role::Query, Part::Weight));
        assert_eq!(parameter("blk.7.ffn_up.weight", phi), id(Role::Gate, Part::Weight));
        assert_eq!(parameter("blk.7.attn_q.weight", phi), None);
        let gpt2 = class("GPT2LMHeadModel");
        assert_eq!(parameter("blk.7.ffn_up.bias", gpt2), id(Role::Up, Part::Bias));
        assert_eq!(parameter("blk.7.ffn_gate.weight", gpt2), None);
    }
}
