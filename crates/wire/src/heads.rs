//! Where the heads of attention lie in a parameter.
//!
//! A head owns rows of the query, key and value projections, with their biases, and columns of the
//! output projection. Where query heads share a key and value head, the group counts as one head.
//! A parameter that belongs to no head, or does not divide by their number, is whole.

use std::ops::Range;

use fedra_plan::{Layer, ParamId, Part, Role, Shape};

/// The slices of a parameter that belong to each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSlices {
    /// How many heads there are.
    /// How many heads there are.
    pub heads: usize,
    /// In how many pieces a head's slice comes.
    pieces: usize,
    /// Elements of a piece.
    length: usize,
}

impl HeadSlices {
    /// The slices of a parameter of a model with so many heads; `None` if it is whole.
    pub fn of(id: ParamId, shape: Shape, heads: u16) -> Option<Self> {
        let heads = usize::from(heads);
        let pieces = match (id.role, id.part, shape.dims()) {
            (Role::Query | Role::Key | Role::Value, Part::Weight | Part::Bias, [rows, ..]) => {
                (heads > 0 && rows % heads == 0).then_some(1)
            }
            (Role::Output, Part::Weight, [rows, columns]) => {
                (heads > 0 && columns % heads == 0).then_some(*rows)
            }
            (_, Part::Weight | Part::Bias | Part::LoraA | Part::LoraB | Part::Magnitude, _) => None,
        };
        let inside = matches!(id.layer, Layer::Block(_));
        let pieces = pieces.filter(|pieces| inside && *pieces > 0)?;
        Some(Self { heads, pieces, length: shape.elements() / heads / pieces })
    }

    /// The places of a head's elements, in order.
    pub fn places(self, head: usize) -> impl Iterator<Item = Range<usize>> {
        let first = move |piece| (piece * self.heads + head) * self.length;
        (0..self.pieces).map(move |piece| first(piece)..first(piece) + self.length)
    }

    /// The sum of squares of each head's elements.
    pub(crate) fn squares(self, values: &[f32]) -> Vec<f64> {
        let square = |value: &f32| f64::from(*value) * f64::from(*value);
        let of = |head| self.places(head).flat_map(|places| &values[places]).map(square).sum();
        (0..self.heads).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(role: Role, part: Part, shape: Shape, head: usize) -> Option<Vec<usize>> {
        let slices = HeadSlices::of(ParamId::new(Layer::Block(1), role, part), shape, 2)?;
        Some(slices.places(head).flatten().collect())
    }

    #[test]
    fn heads_own_rows_of_projections_and_columns_of_the_output() {
        let matrix = Shape::matrix(4, 3);
        assert_eq!(places(Role::Key, Part::Weight, matrix, 1), Some(vec![6, 7, 8, 9, 10, 11]));
        assert_eq!(places(Role::Value, Part::Bias, Shape::vector(4), 0), Some(vec![0, 1]));
        let output = Shape::matrix(3, 4);
        assert_eq!(places(Role::Output, Part::Weight, output, 1), Some(vec![2, 3, 6, 7, 10, 11]));
    }

    #[test]
    fn what_belongs_to_no_head_is_whole() {
        assert_eq!(places(Role::Output, Part::Bias, Shape::vector(4), 0), None);
        assert_eq!(places(Role::Up, Part::Weight, Shape::matrix(4, 4), 0), None);
        assert_eq!(places(Role::Query, Part::LoraB, Shape::matrix(4, 2), 0), None);
        // Three rows do not divide by two heads.
        assert_eq!(places(Role::Query, Part::Weight, Shape::matrix(3, 4), 0), None);
    }
}
