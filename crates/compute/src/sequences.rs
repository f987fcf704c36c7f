//! Where sequences begin among the rows of a value.
//!
//! Sequences are packed end to end, so a value is rows and nothing more. A weight per sequence, and
//! later a gradient per sequence, need to know which rows belong together; each operation hands
//! that on with its result.

use std::ops::Range;
use std::sync::Arc;

/// The rows of each sequence, in order. Cheap to clone.
///
/// ```
/// # use fedra_compute::Sequences;
/// let sequences = Sequences::of_lengths(&[3, 2]);
/// assert_eq!(sequences.ranges().collect::<Vec<_>>(), [0..3, 3..5]);
/// assert_eq!(sequences.spread(&[0.5, 2.0]), [0.5, 0.5, 0.5, 2.0, 2.0]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences(Arc<[usize]>);

impl Sequences {
    /// Sequences of these lengths, one after another.
    pub fn of_lengths(lengths: &[usize]) -> Self {
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.0.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of all sequences together.
    pub fn rows(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }

    /// The rows of each sequence.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        self.0.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// The sequences of a selection of rows; `None` unless the selection keeps their order.
    pub fn picked(&self, rows: &[u32]) -> Option<Self> {
        let mut rest = rows;
        let lengths: Vec<usize> = self
            .ranges()
            .map(|range| {
                let here = rest.iter().take_while(|row| range.contains(&(**row as usize))).count();
                rest = &rest[here..];
                here
            })
            .collect();
        rest.is_empty().then(|| Self::of_lengths(&lengths))
    }

    /// A number for each row from a number for each sequence.
    pub fn spread(&self, numbers: &[f32]) -> Vec<f32> {
        let mut all = Vec::with_capacity(self.rows());
        for (range, number) in self.ranges().zip(numbers) {
            all.resize(range.end, *number);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_rows_stay_with_their_sequence_and_a_mixed_selection_has_none() {
        let sequences = Sequences::of_lengths(&[3, 1, 2]);
        assert_eq!((sequences.len(), sequences.rows()), (3, 6));
        let picked = sequences.picked(&[2, 0, 4, 5]).unwrap();
        assert_eq!(picked, Sequences::of_lengths(&[2, 0, 2]));
        assert_eq!(sequences.picked(&[4, 0]), None);
        assert_eq!(sequences.picked(&[6]), None);
    }
}
