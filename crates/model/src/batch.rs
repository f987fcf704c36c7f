//! Token ids of several sequences, one after another, without padding.

use crate::error::ModelError;
use fedra_compute::Span;

/// A packed batch: `ids` of all sequences end to end, and how long each one is.
///
/// ```
/// # use fedra_model::Batch;
/// let batch = Batch::new(&[&[101, 7592, 102][..], &[101, 102]])?;
/// assert_eq!(batch.tokens(), 5);
/// assert_eq!(batch.positions(), [0, 1, 2, 0, 1]);
/// # Ok::<(), fedra_model::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    ids: Vec<u32>,
    segments: Vec<u32>,
    lengths: Vec<usize>,
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
        let refuse = |what, found: String, expected: &str| {
            Err(ModelError::Batch { what, found, expected: expected.into() })
        };
        if lengths.is_empty() {
            return refuse("number of sequences", "0".into(), "at least 1");
        }
        if let Some(empty) = lengths.iter().position(|&length| length == 0) {
            return refuse("length of sequence", format!("0 (number {empty})"), "at least 1");
        }
        let total = lengths.iter().fold(0usize, |sum, &length| sum.saturating_add(length));
        if total != ids.len() {
            let expected = format!("{total}, the sum of the lengths");
            return refuse("number of ids", ids.len().to_string(), &expected);
        }
        let segments = vec![0; ids.len()];
        Ok(Self { ids, segments, lengths })
    }

    /// Takes a rectangle of ids and its mask of ones and zeros, and drops the padding.
    ///
    /// Every row must be its tokens first and its padding after.
    pub fn unpadded(ids: &[u32], mask: &[u8], length: usize) -> Result<Self, ModelError> {
        if length == 0 || ids.len() != mask.len() || !ids.len().is_multiple_of(length) {
            let found = format!("{} ids, {} mask values, rows of {length}", ids.len(), mask.len());
            let expected = "whole rows with one mask value per id".into();
            return Err(ModelError::Batch { what: "padded rectangle", found, expected });
        }
        let mut sequences = Vec::new();
        for (row, (ids, mask)) in ids.chunks(length).zip(mask.chunks(length)).enumerate() {
            let kept = mask.iter().take_while(|&&one| one == 1).count();
            if mask[kept..].iter().any(|&zero| zero != 0) {
                let found = format!("{mask:?} in row {row}");
                let expected = "ones, then zeros".into();
                return Err(ModelError::Batch { what: "mask", found, expected });
            }
            sequences.push(&ids[..kept]);
        }
        Self::new(&sequences)
    }

    /// Says which segment each token is in (sentence A or B).
    pub fn with_segments(mut self, segments: Vec<u32>) -> Result<Self, ModelError> {
        if segments.len() != self.ids.len() {
            let (found, expected) = (segments.len().to_string(), self.ids.len().to_string());
            return Err(ModelError::Batch { what: "number of segments", found, expected });
        }
        self.segments = segments;
        Ok(self)
    }

    /// All ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The segment of each token.
    pub fn segments(&self) -> &[u32] {
        &self.segments
    }

    /// The length of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.lengths.len()
    }

    /// Where each sequence starts.
    pub fn starts(&self) -> impl Iterator<Item = usize> {
        self.lengths.iter().scan(0, |next, length| {
            let start = *next;
            *next += length;
            Some(start)
        })
    }

    /// Each token's place in its sequence.
    pub fn positions(&self) -> Vec<u32> {
        self.lengths.iter().flat_map(|&length| 0..length as u32).collect()
    }

    /// The row of each sequence's first token.
    pub fn first_rows(&self) -> Vec<u32> {
        self.starts().map(|start| start as u32).collect()
    }

    /// The row of each sequence's last token.
    pub fn last_rows(&self) -> Vec<u32> {
        self.starts()
            .zip(&self.lengths)
            .map(|(start, length)| (start + length - 1) as u32)
            .collect()
    }

    /// For each token the one that follows it in its sequence: what a language model predicts.
    pub fn next_tokens(&self) -> Vec<Option<u32>> {
        let mut next = Vec::with_capacity(self.ids.len());
        for (start, &length) in self.starts().zip(&self.lengths) {
            next.extend(self.ids[start + 1..start + length].iter().copied().map(Some));
            next.push(None);
        }
        next
    }

    /// Every token a query.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let span = |(start, &length): (usize, &usize)| {
            let rows = start..start + length;
            Span { queries: rows.clone(), keys: rows, offset: 0 }
        };
        self.starts().zip(&self.lengths).map(span).collect()
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
                let (found, expected) = ("0".into(), "at least 1".into());
                return Err(ModelError::Batch { what, found, expected });
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
    fn a_mask_and_its_unpadded_batch_describe_the_same_tokens() {
        let batch = Batch::unpadded(&[5, 6, 0, 7, 0, 0], &[1, 1, 0, 1, 0, 0], 3).unwrap();
        assert_eq!(batch, Batch::new(&[&[5, 6][..], &[7]]).unwrap());
    }

    #[test]
    fn a_mask_with_a_hole_is_refused() {
        let error = Batch::unpadded(&[5, 6, 7], &[1, 0, 1], 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "batch: mask is [1, 0, 1] in row 0, expected ones, then zeros"
        );
    }

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

    #[test]
    fn next_tokens_never_cross_from_one_sequence_into_another() {
        let batch = Batch::new(&[&[1, 2, 3][..], &[4], &[5, 6]]).unwrap();
        let expected = [Some(2), Some(3), None, None, Some(6), None];
        assert_eq!(batch.next_tokens(), expected);
    }
}
