//! Which parameters a model has, and the shape of each.
//!
//! Two machines that hold the same layout mean the same thing by a position in a message, so the
//! digest of the layout goes into every message and a mismatch is the first error a client sees.
//! The digest covers the layout's printed text, so anyone can recompute it with `sha256sum`.

use std::collections::BTreeMap;
use std::fmt;

use crate::digest::Digest;
use crate::error::PlanError;
use crate::id::{Layer, ParamId};
use crate::role::Part;
use crate::shape::Shape;

/// An ordered map from parameter to shape, with its blocks numbered from zero without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    shapes: BTreeMap<ParamId, Shape>,
    elements: usize,
    blocks: u16,
    digest: Digest,
}

impl Layout {
    /// Collects the parameters, in whatever order they come.
    ///
    /// Refuses duplicates, empty shapes, more elements than a `usize` counts, and gaps in the
    /// block numbers.
    pub fn new(parameters: impl IntoIterator<Item = (ParamId, Shape)>) -> Result<Self, PlanError> {
        let mut shapes = BTreeMap::new();
        let mut elements = 0_usize;
        for (id, shape) in parameters {
            if shape.dims().contains(&0) {
                let expected = "every dimension to be at least 1";
                return Err(PlanError::unusable(format!("{id} has shape {shape}"), expected));
            }
            let more = shape.checked_elements().and_then(|count| elements.checked_add(count));
            elements = more.ok_or_else(|| {
                let expected = format!("at most {} elements in all", usize::MAX);
                PlanError::unusable(format!("{id} has shape {shape}"), expected)
            })?;
            if shapes.insert(id, shape).is_some() {
                let found = format!("{id} is listed twice in the layout");
                return Err(PlanError::unusable(found, "once"));
            }
        }
        let blocks = count_blocks(shapes.keys().map(|id| id.layer))?;
        let digest = Digest::of(text_of(&shapes).as_bytes());
        Ok(Self { shapes, elements, blocks, digest })
    }

    /// The same model with low-rank adapters of at most this rank.
    #[must_use]
    pub fn with_rank(&self, rank: usize) -> Self {
        let narrow = |id: ParamId, shape: &Shape| match (id.part, shape.dims()) {
            (Part::LoraA, &[rows, columns]) => Shape::matrix(rows.min(rank), columns),
            (Part::LoraB, &[rows, columns]) => Shape::matrix(rows, columns.min(rank)),
            (Part::Weight | Part::Bias | Part::LoraA | Part::LoraB | Part::Magnitude, _) => *shape,
        };
        let shapes: BTreeMap<ParamId, Shape> =
            self.iter().map(|(id, shape)| (id, narrow(id, shape))).collect();
        let elements = shapes.values().map(Shape::elements).sum();
        let digest = Digest::of(text_of(&shapes).as_bytes());
        Self { shapes, elements, blocks: self.blocks, digest }
    }

    /// The rank of its low-rank adapters, if it has any.
    pub fn rank(&self) -> Option<usize> {
        let (_, shape) = self.iter().find(|(id, _)| id.part == Part::LoraA)?;
        shape.dims().first().copied()
    }

    /// The shape of a parameter, if the model has it.
    pub fn get(&self, id: ParamId) -> Option<&Shape> {
        self.shapes.get(&id)
    }

    /// Whether the model has the parameter.
    pub fn contains(&self, id: ParamId) -> bool {
        self.shapes.contains_key(&id)
    }

    /// Parameters and shapes in id order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ParamId, &Shape)> {
        self.shapes.iter().map(|(id, shape)| (*id, shape))
    }

    /// Parameters in id order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = ParamId> {
        self.shapes.keys().copied()
    }

    /// The number of parameters, that is, of tensors.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether there is no parameter at all.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// The number of elements over all parameters.
    pub const fn elements(&self) -> usize {
        self.elements
    }

    /// The number of Transformer blocks.
    pub const fn blocks(&self) -> u16 {
        self.blocks
    }

    /// The SHA-256 of the layout as printed: equal exactly when the layouts are equal.
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

/// One line a parameter, `block.0.query.weight [384, 384]`, in id order.
impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&text_of(&self.shapes))
    }
}

/// The canonical text: what is printed and what is hashed.
fn text_of(shapes: &BTreeMap<ParamId, Shape>) -> String {
    let lines: Vec<String> = shapes.iter().map(|(id, shape)| format!("{id} {shape}\n")).collect();
    lines.concat()
}

/// Counts the blocks among layers that come in forward order.
fn count_blocks(layers: impl Iterator<Item = Layer>) -> Result<u16, PlanError> {
    let mut count = 0_u16;
    for found in layers.filter_map(Layer::block) {
        // A block's second and later parameters carry the number just counted.
        if Some(found) == count.checked_sub(1) {
            continue;
        }
        if found != count {
            let found = format!("the layout has block {found} but no block {count}");
            return Err(PlanError::unusable(found, "blocks 0, 1, 2, ..."));
        }
        count = count.checked_add(1).ok_or_else(|| {
            PlanError::unusable("the layout has 65536 blocks", format!("at most {}", u16::MAX))
        })?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(lines: &[(&str, &[usize])]) -> Result<Layout, PlanError> {
        Layout::new(lines.iter().map(|(id, dims)| {
            (id.parse().expect("a legal id"), Shape::new(dims).expect("a legal shape"))
        }))
    }

    const QUERY: &str = "block.0.query.weight";
    const KEY: &str = "block.0.key.weight";

    #[test]
    fn a_layout_counts_tensors_elements_and_blocks() {
        let layout = layout(&[
            ("head.classifier.bias", &[3]),
            ("block.1.query.weight", &[2, 2]),
            (QUERY, &[2, 2]),
            (KEY, &[2, 2]),
            ("embedding.token.weight", &[5, 2]),
        ])
        .expect("legal");
        assert_eq!((layout.len(), layout.elements(), layout.blocks()), (5, 25, 2));
        assert_eq!(
            layout.to_string(),
            "embedding.token.weight [5, 2]\nblock.0.query.weight [2, 2]\n\
             block.0.key.weight [2, 2]\nblock.1.query.weight [2, 2]\nhead.classifier.bias [3]\n"
        );
    }

    #[track_caller]
    fn check_refused(lines: &[(&str, &[usize])], expected: &str) {
        assert_eq!(layout(lines).expect_err("illegal").to_string(), expected);
    }

    #[test]
    fn an_illegal_layout_is_refused() {
        check_refused(
            &[(QUERY, &[2, 2]), (QUERY, &[2, 2])],
            "block.0.query.weight is listed twice in the layout, expected once",
        );
        check_refused(
            &[(QUERY, &[2, 0])],
            "block.0.query.weight has shape [2, 0], expected every dimension to be at least 1",
        );
        check_refused(
            &[(QUERY, &[1]), ("block.3.query.weight", &[1])],
            "the layout has block 3 but no block 1, expected blocks 0, 1, 2, ...",
        );
        check_refused(
            &[("block.1.query.weight", &[1])],
            "the layout has block 1 but no block 0, expected blocks 0, 1, 2, ...",
        );
    }

    #[test]
    fn more_elements_than_a_machine_word_counts_are_refused() {
        assert!(layout(&[(QUERY, &[usize::MAX])]).is_ok());
        assert!(layout(&[(QUERY, &[usize::MAX]), (KEY, &[1])]).is_err());
        assert!(layout(&[(QUERY, &[usize::MAX, 2])]).is_err());
    }

    #[test]
    fn more_blocks_than_the_count_can_say_are_refused() {
        let blocks = |last: u16| {
            (0..=last).map(|number| {
                let id = ParamId::new(Layer::Block(number), crate::Role::Query, Part::Weight);
                (id, Shape::vector(1))
            })
        };
        assert_eq!(Layout::new(blocks(u16::MAX - 1)).map(|layout| layout.blocks()), Ok(u16::MAX));
        assert!(Layout::new(blocks(u16::MAX)).is_err());
    }

    #[test]
    fn the_digest_is_the_sha256_of_the_printed_layout() {
        let layout = layout(&[(QUERY, &[2, 2])]).expect("legal");
        assert_eq!(layout.digest(), Digest::of(b"block.0.query.weight [2, 2]\n"));
    }
}
