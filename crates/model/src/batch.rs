//! Token ids of several sequences, one after another, without padding.

use crate::error::ModelError;
use crate::packing::Packing;

/// A packed batch: `ids` of all sequences end to end, and how long each one is.
///
/// ```
/// # use fedra_model::Batch;
/// let batch = Batch::new(&[&[101, 7592, 102][..], &[101, 102]])?;
/// assert_eq!(batch.packing().tokens(), 5);
/// assert_eq!(batch.packing().positions(), [0, 1, 2, 0, 1]);
/// # Ok::<(), fedra_model::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    ids: Vec<u32>,
    segments: Vec<u32>,
    packing: Packing,
}

impl Batch {
    /// Packs sequences; all tokens are in segment 0.
    pub fn new<S: AsRef<[u32]>>(sequences: &[S]) -> Result<Self, ModelError> {
        let ids: Vec<u32> = sequences.iter().flat_map(S::as_ref).copied().collect();
        let lengths = sequences.iter().map(|ids| ids.as_ref().len()).collect();
        Self::packed(ids, lengths)
    }

    /// Takes ids that are packed already.
    pub fn packed(ids: Vec<u32>, lengths: Vec<usize>) -> Result<Self, ModelError> {
        let packing = Packing::new(lengths)?;
        if packing.tokens() != ids.len() {
            let expected = format!("{}, the sum of the lengths", packing.tokens());
            return Err(ModelError::batch("number of ids", &ids.len(), &expected));
        }
        let segments = vec![0; ids.len()];
        Ok(Self { ids, segments, packing })
    }

    /// Says which segment each token is in (sentence A or B).
    pub fn with_segments(mut self, segments: Vec<u32>) -> Result<Self, ModelError> {
        if segments.len() != self.ids.len() {
            let (found, expected) = (segments.len(), self.ids.len());
            return Err(ModelError::batch("number of segments", &found, &expected));
        }
        self.segments = segments;
        Ok(self)
    }

    /// Says how many tokens came before each sequence's first: they are in its cache.
    pub fn continuing(self, offsets: Vec<usize>) -> Result<Self, ModelError> {
        Ok(Self { packing: self.packing.with_offsets(offsets)?, ..self })
    }

    /// How the sequences lie in the rows: all that blocks need to know.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// All ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The segment of each token.
    pub fn segments(&self) -> &[u32] {
        &self.segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_batch_and_an_empty_sequence_are_refused() {
        let none: [&[u32]; 0] = [];
        let error = Batch::new(&none).unwrap_err();
        assert_eq!(error.to_string(), "batch: number of sequences is 0, expected at least 1");
        let error = Batch::new(&[&[1][..], &[]]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "batch: length of sequence is 0 (number 1), expected at least 1"
        );
    }
}
