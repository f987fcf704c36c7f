//! A client's examples as tokens, and what truncation took from them.
//!
//! A sequence that is too long loses its last words, and a model that never saw a word says nothing
//! about it. The labels of lost words are kept here, so that a score counts them as missed instead
//! of forgetting that they existed.

use fedra_data::{DataError, Encoded, Encoder, Example, Labels};

/// Encoded examples in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examples {
    encoded: Vec<Encoded>,
    /// The labels of the words that each example lost, where labels are given word by word.
    cut: Vec<Vec<u32>>,
}

impl Examples {
    /// Encodes examples.
    pub fn encode<'e>(
        encoder: &Encoder<'_>,
        examples: impl IntoIterator<Item = &'e Example>,
    ) -> Result<Self, DataError> {
        let mut all = Self::default();
        for example in examples {
            for encoded in encoder.encode(example)? {
                all.cut.push(match &example.labels {
                    Labels::PerWord(tags) => tags[tags.len() - encoded.dropped..].to_vec(),
                    Labels::One(_) | Labels::Many(_) | Labels::Absent => Vec::new(),
                });
                all.encoded.push(encoded);
            }
        }
        Ok(all)
    }

    /// The sequences.
    pub fn encoded(&self) -> &[Encoded] {
        &self.encoded
    }

    /// The labels of the words that an example lost.
    pub fn cut(&self, example: usize) -> &[u32] {
        &self.cut[example]
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.encoded.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// These and then the others.
    pub fn extend_from(&mut self, others: &Self) {
        self.encoded.extend_from_slice(&others.encoded);
        self.cut.extend_from_slice(&others.cut);
    }
}
