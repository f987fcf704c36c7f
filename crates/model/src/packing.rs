//! How sequences lie in rows: how long each one is, and at which position it begins.
//!
//! Blocks run on this and on hidden states alone. Token ids belong to the embedding, so whoever holds
//! the middle of a cut model, or continues from a cache, needs none.

use crate::error::ModelError;
use fedra_compute::{Sequences, Span};

/// Lengths of packed sequences, and the position of each one's first row.
///
/// ```
/// # use fedra_model::Packing;
/// let packing = Packing::new(vec![3, 1])?.with_offsets(vec![0, 7])?;
/// assert_eq!(packing.positions(), [0, 1, 2, 7]);
/// # Ok::<(), fedra_model::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    lengths: Vec<usize>,
    offsets: Vec<usize>,
    /// Sequences that make one example.
    together: usize,
}

impl Packing {
    /// Sequences of these lengths, each from position zero on.
    pub fn new(lengths: Vec<usize>) -> Result<Self, ModelError> {
        if lengths.is_empty() {
            return Err(ModelError::batch("number of sequences", &0, &"at least 1"));
        }
        if let Some(empty) = lengths.iter().position(|&length| length == 0) {
            let found = format!("0 (number {empty})");
            return Err(ModelError::batch("length of sequence", &found, &"at least 1"));
        }
        let tokens = lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length));
        if tokens.is_none() {
            let (found, expected) = ("more than can be counted", "what memory holds");
            return Err(ModelError::batch("number of tokens", &found, &expected));
        }
        let offsets = vec![0; lengths.len()];
        Ok(Self { lengths, offsets, together: 1 })
    }

    /// The same sequences, of which each two make one example: a tape that tells examples apart, or drops by
    /// example, takes both for one. Attention stays within each.
    pub fn in_pairs(self) -> Result<Self, ModelError> {
        if !self.lengths.len().is_multiple_of(2) {
            return Err(ModelError::batch("number of sequences", &self.lengths.len(), &"pairs"));
        }
        Ok(Self { together: 2, ..self })
    }

    /// The same sequences, continued from these positions: the number of tokens before each.
    pub fn with_offsets(self, offsets: Vec<usize>) -> Result<Self, ModelError> {
        if offsets.len() != self.lengths.len() {
            let (found, expected) = (offsets.len(), self.lengths.len());
            return Err(ModelError::batch("number of offsets", &found, &expected));
        }
        Ok(Self { offsets, ..self })
    }

    /// The length of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The position of each sequence's first row.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.lengths.len()
    }

    /// Number of examples: of sequences, or of [pairs](Self::in_pairs) of them.
    pub fn examples(&self) -> usize {
        self.lengths.len() / self.together
    }

    /// Where each example begins, for a tape.
    pub fn boundaries(&self) -> Sequences {
        if self.together == 1 {
            return Sequences::of_lengths(&self.lengths);
        }
        let lengths = self.lengths.chunks(self.together).map(|together| together.iter().sum());
        Sequences::of_lengths(&lengths.collect::<Vec<_>>())
    }

    /// The row in which each sequence starts.
    pub fn starts(&self) -> impl Iterator<Item = usize> {
        self.lengths.iter().scan(0, |next, length| {
            let start = *next;
            *next += length;
            Some(start)
        })
    }

    /// Each row's place in its sequence.
    pub fn positions(&self) -> Vec<u32> {
        let places = |(&length, &offset): (&usize, &usize)| offset as u32..(offset + length) as u32;
        self.lengths.iter().zip(&self.offsets).flat_map(places).collect()
    }

    /// The row of each sequence's first token.
    pub fn first_rows(&self) -> Vec<u32> {
        self.starts().map(|start| start as u32).collect()
    }

    /// The row of each sequence's last token.
    pub fn last_rows(&self) -> Vec<u32> {
        let last = |(start, length): (usize, &usize)| (start + length - 1) as u32;
        self.starts().zip(&self.lengths).map(last).collect()
    }

    /// Every row a query over the rows of its sequence.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let span = |(start, &length): (usize, &usize)| {
            let rows = start..start + length;
            Span { queries: rows.clone(), keys: rows, offset: 0 }
        };
        self.starts().zip(&self.lengths).map(span).collect()
    }

    /// Every row a query over all that its sequence's cache holds once these rows are in it.
    pub(crate) fn cached_spans(&self) -> Vec<Span> {
        let span = |((start, &length), &offset): ((usize, &usize), &usize)| Span {
            queries: start..start + length,
            keys: 0..offset + length,
            offset,
        };
        self.starts().zip(&self.lengths).zip(&self.offsets).map(span).collect()
    }

    /// Only the given rows are queries; they are ascending and every sequence has at least one.
    pub(crate) fn spans_of_rows(&self, rows: &[u32]) -> Result<Vec<Span>, ModelError> {
        let mut spans = Vec::with_capacity(self.lengths.len());
        let mut next = 0;
        for (start, &length) in self.starts().zip(&self.lengths) {
            let keys = start..start + length;
            let here =
                rows[next..].iter().take_while(|&&row| keys.contains(&(row as usize))).count();
            let Some(&first) = rows.get(next).filter(|_| here > 0) else {
                let what = "number of rows read from a sequence";
                return Err(ModelError::batch(what, &0, &"at least 1"));
            };
            let offset = first as usize - start;
            spans.push(Span { queries: next..next + here, keys, offset });
            next += here;
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packing_knows_rows_positions_and_what_a_cache_will_hold() {
        let packing = Packing::new(vec![2, 3]).unwrap().with_offsets(vec![5, 0]).unwrap();
        assert_eq!(packing.positions(), [5, 6, 0, 1, 2]);
        assert_eq!((packing.first_rows(), packing.last_rows()), (vec![0, 2], vec![1, 4]));
        let spans = packing.cached_spans();
        assert_eq!(spans[0], Span { queries: 0..2, keys: 0..7, offset: 5 });
        assert_eq!(spans[1], Span { queries: 2..5, keys: 0..3, offset: 0 });
    }

    #[test]
    fn lengths_that_cannot_be_and_a_wrong_number_of_offsets_are_refused() {
        let error = Packing::new(vec![2]).unwrap().with_offsets(vec![]).unwrap_err();
        assert_eq!(error.to_string(), "batch: number of offsets is 0, expected 1");
        assert!(Packing::new(vec![usize::MAX, 2]).is_err());
    }
}
