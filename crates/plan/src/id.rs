//! The name of a parameter: where it sits, what it does there, and which piece of it is meant.
//!
//! An id is three small enums, not a string, so that it is the same on every machine, copies for
//! free and sorts in the order of the forward pass. Its text form is `block.3.query.weight`.
//!
//! ```
//! use fedra_plan::{ParamId, Part, Role, Layer};
//!
//! let id: ParamId = "block.3.query.weight".parse()?;
//! assert_eq!(id, ParamId::new(Layer::Block(3), Role::Query, Part::Weight));
//! assert!(id < "head.classifier.bias".parse()?);
//! # Ok::<(), fedra_plan::PlanError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::role::{Part, Role};
use crate::text::{Unreadable, serde_as_text};

/// The identity of one parameter tensor; ordered by layer, then role, then part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamId {
    /// Where in the model it sits.
    pub layer: Layer,
    /// What it does there.
    pub role: Role,
    /// Which piece of it is meant.
    pub part: Part,
}

impl ParamId {
    /// Names the given part of the given role at the given layer.
    pub const fn new(layer: Layer, role: Role, part: Part) -> Self {
        Self { layer, role, part }
    }
}

/// A place along the forward pass; the order of layers is the order of that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Everything before the first block.
    Embedding,
    /// One Transformer block, counted from zero.
    Block(u16),
    /// Everything after the last block.
    Head,
}

impl Layer {
    /// The block number, where the layer is a block.
    pub const fn block(self) -> Option<u16> {
        match self {
            Self::Block(number) => Some(number),
            Self::Embedding | Self::Head => None,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => formatter.write_str("embedding"),
            Self::Block(number) => write!(formatter, "block.{number}"),
            Self::Head => formatter.write_str("head"),
        }
    }
}

impl FromStr for Layer {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let layer = match text {
            "embedding" => Some(Self::Embedding),
            "head" => Some(Self::Head),
            other => other.strip_prefix("block.").and_then(block_number).map(Self::Block),
        };
        layer.ok_or_else(|| Unreadable::new("layer", text, "embedding, block.N or head"))
    }
}

impl fmt::Display for ParamId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.layer, self.role, self.part)
    }
}

impl FromStr for ParamId {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        // From the right, because a layer may itself hold a dot.
        let mut pieces = text.rsplitn(3, '.');
        let (Some(part), Some(role), Some(layer)) = (pieces.next(), pieces.next(), pieces.next())
        else {
            let expected = "layer.role.part such as block.3.query.weight";
            return Err(Unreadable::new("parameter", text, expected));
        };
        Ok(Self::new(layer.parse()?, role.parse()?, part.parse()?))
    }
}

serde_as_text!(Layer, ParamId);

/// Reads a block number in its one canonical spelling: no sign, no leading zero.
fn block_number(digits: &str) -> Option<u16> {
    let number: u16 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: ParamId) {
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!(expected.to_string(), text);
    }

    #[test]
    fn ids_read_and_print_as_dotted_text() {
        check("embedding.token.weight", ParamId::new(Layer::Embedding, Role::Token, Part::Weight));
        check("block.0.query.lora_a", ParamId::new(Layer::Block(0), Role::Query, Part::LoraA));
        check(
            "block.65535.mlp_norm.bias",
            ParamId::new(Layer::Block(u16::MAX), Role::MlpNorm, Part::Bias),
        );
        check("head.classifier.bias", ParamId::new(Layer::Head, Role::Classifier, Part::Bias));
    }

    #[test]
    fn every_other_spelling_is_refused() {
        for text in [
            "",
            "query.weight",
            "block.query.weight",
            "block.03.query.weight",
            "block.+3.query.weight",
            "block.65536.query.weight",
            "Head.classifier.bias",
            "head.classifier.bias ",
            "head.classifier.bias.bias",
            "head..bias",
        ] {
            assert!(text.parse::<ParamId>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn layers_sort_in_forward_order() {
        let forward =
            [Layer::Embedding, Layer::Block(0), Layer::Block(2), Layer::Block(10), Layer::Head];
        assert!(forward.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn an_id_is_a_string_in_json_also_as_a_map_key() {
        let id = ParamId::new(Layer::Block(3), Role::Query, Part::Weight);
        let map = BTreeMap::from([(id, 1)]);
        let text = serde_json::to_string(&map).expect("a string is a legal key");
        assert_eq!(text, r#"{"block.3.query.weight":1}"#);
        let back: BTreeMap<ParamId, i32> = serde_json::from_str(&text).expect("just written");
        assert_eq!(back, map);
    }
}
