//! The shape of one parameter: a vector or a matrix.
//!
//! Transformer parameters have rank 1 or 2, so a shape is two numbers that copy, not a heap list.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One or two dimensions; written `[384]` or `[384, 1536]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<usize>", try_from = "Vec<usize>")]
pub struct Shape {
    rank: usize,
    // A vector keeps 1 in the unused place, so that the product is the element count.
    dims: [usize; 2],
}

impl Shape {
    /// The shape of a vector.
    pub const fn vector(length: usize) -> Self {
        Self { rank: 1, dims: [length, 1] }
    }

    /// The shape of a matrix.
    pub const fn matrix(rows: usize, columns: usize) -> Self {
        Self { rank: 2, dims: [rows, columns] }
    }

    /// The shape with the given dimensions; refuses any rank but 1 and 2.
    pub const fn new(dims: &[usize]) -> Result<Self, WrongRank> {
        match *dims {
            [length] => Ok(Self::vector(length)),
            [rows, columns] => Ok(Self::matrix(rows, columns)),
            _ => Err(WrongRank { found: dims.len() }),
        }
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The number of elements; saturates, and a layout refuses a shape that comes this far.
    pub const fn elements(&self) -> usize {
        self.dims[0].saturating_mul(self.dims[1])
    }

    /// The number of elements, unless it does not fit.
    pub(crate) const fn checked_elements(&self) -> Option<usize> {
        self.dims[0].checked_mul(self.dims[1])
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl TryFrom<Vec<usize>> for Shape {
    type Error = WrongRank;

    fn try_from(dims: Vec<usize>) -> Result<Self, WrongRank> {
        Self::new(&dims)
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Self {
        shape.dims().to_vec()
    }
}

/// A shape has too few or too many dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a shape of rank {found} was found, expected rank 1 or 2")]
pub struct WrongRank {
    /// Number of dimensions found.
    pub found: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_prints_as_its_list_of_dimensions() {
        assert_eq!(Shape::matrix(384, 1536).to_string(), "[384, 1536]");
        assert_eq!(Shape::vector(384).to_string(), "[384]");
    }

    #[test]
    fn a_vector_differs_from_the_matrix_of_one_column() {
        assert_ne!(Shape::vector(3), Shape::matrix(3, 1));
        assert_eq!(Shape::vector(3).elements(), Shape::matrix(3, 1).elements());
    }

    #[test]
    fn only_ranks_one_and_two_are_accepted() {
        assert_eq!(Shape::new(&[2, 3]), Ok(Shape::matrix(2, 3)));
        assert_eq!(Shape::new(&[]), Err(WrongRank { found: 0 }));
        assert!(serde_json::from_str::<Shape>("[2, 3, 4]").is_err());
    }

    #[test]
    fn a_shape_is_a_list_in_json() {
        let text = serde_json::to_string(&Shape::matrix(2, 3)).expect("a list");
        assert_eq!(text, "[2,3]");
        assert_eq!(
            serde_json::from_str::<Shape>(&text).expect("just written"),
            Shape::matrix(2, 3)
        );
    }
}
