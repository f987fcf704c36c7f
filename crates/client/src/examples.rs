//! A client's examples as tokens, and what truncation took from them.
//!
//! A sequence that is too long loses its last words, and a model that never saw a word says nothing
//! about it. The labels of lost words are kept here, so that a score counts them as missed instead
//! of forgetting that they existed.
//!
//! A clone shares the numbers: a fleet and whoever prepared its data hold them once.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedra_data::{
    DataError, EncodeRows, Encoded, EncodedText, Example, Labels, LastAnswer, Target,
};
use fedra_engine::PreferenceLoss;
use fedra_seed::Seed;

use crate::writing::Writing;

/// Encoded examples in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples(Arc<Parts>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Parts {
    encoded: Vec<Encoded>,
    /// The labels of the words that an example lost, where labels are given word by word and it
    /// lost some.
    cut: BTreeMap<usize, Vec<u32>>,
    /// The last answers of conversations that a model also writes, by the place of the conversation.
    last_answers: BTreeMap<usize, LastAnswer>,
    /// How a model writes text in answer to them, where it does.
    writing: Option<Writing>,
    /// How pairs of answers are judged, where they are pairs.
    preference: Option<PreferenceLoss>,
}

impl Examples {
    /// Encodes examples.
    pub fn encode<'e>(
        encoder: &dyn EncodeRows,
        examples: impl IntoIterator<Item = &'e Example>,
    ) -> Result<Self, DataError> {
        let mut encoded = Vec::new();
        for example in examples {
            encoded.push((example, encoder.encode(example)?));
        }
        Ok(Self::gathered(encoded))
    }

    /// The sequences of examples, each beside the example that they were made of.
    pub(crate) fn gathered<'e>(
        encoded: impl IntoIterator<Item = (&'e Example, Vec<Encoded>)>,
    ) -> Self {
        let mut all = Parts::default();
        for (example, encoded) in encoded {
            for encoded in encoded {
                if let (Labels::PerWord(tags), 1..) = (&example.labels, encoded.dropped) {
                    let lost = tags[tags.len() - encoded.dropped..].to_vec();
                    all.cut.insert(all.encoded.len(), lost);
                }
                all.encoded.push(encoded);
            }
        }
        all.encoded.shrink_to_fit();
        Self(Arc::new(all))
    }

    /// The sequences.
    pub fn encoded(&self) -> &[Encoded] {
        &self.0.encoded
    }

    /// Tokens of the longest sequence.
    pub(crate) fn longest(&self) -> usize {
        self.encoded().iter().map(|example| example.ids.len()).max().unwrap_or(0)
    }

    /// The labels of the words that an example lost.
    pub fn cut(&self, example: usize) -> &[u32] {
        self.0.cut.get(&example).map_or(&[], Vec::as_slice)
    }

    /// The same examples, to be answered in text.
    #[must_use]
    pub fn with_writing(mut self, writing: Writing) -> Self {
        Arc::make_mut(&mut self.0).writing = Some(writing);
        self
    }

    /// The same conversations, of which those at these places are also answered in text.
    #[must_use]
    pub fn with_last_answers(mut self, answers: BTreeMap<usize, LastAnswer>) -> Self {
        Arc::make_mut(&mut self.0).last_answers = answers;
        self
    }

    /// What is read before a text is written in answer to an example, and what the text should be; `None` where
    /// none is written.
    pub fn asked(&self, example: usize) -> Option<(&[u32], &str)> {
        let Encoded { ids, target, .. } = &self.encoded()[example];
        if let Target::Text(EncodedText { prompt, reference }) = target {
            return Some((&ids[..*prompt], reference));
        }
        let LastAnswer { prompt, reference } = self.0.last_answers.get(&example)?;
        Some((prompt, reference))
    }

    /// How a model writes text in answer to them, where it does.
    pub fn writing(&self) -> Option<&Writing> {
        self.0.writing.as_ref()
    }

    /// The same examples, which are pairs of answers and judged by this loss.
    #[must_use]
    pub fn with_preference(mut self, loss: PreferenceLoss) -> Self {
        Arc::make_mut(&mut self.0).preference = Some(loss);
        self
    }

    /// How pairs of answers are judged, if they are pairs.
    pub fn preference(&self) -> Option<PreferenceLoss> {
        self.0.preference
    }

    /// Those for which there is a `true`, in their order; without one, an example is not kept.
    #[must_use]
    pub fn kept(&self, keep: &[bool]) -> Self {
        let Parts { writing, preference, .. } = &*self.0;
        let (writing, preference) = (writing.clone(), *preference);
        let mut kept = Parts { writing, preference, ..Parts::default() };
        for (place, encoded) in self.0.encoded.iter().enumerate() {
            if keep.get(place) == Some(&true) {
                if let Some(lost) = self.0.cut.get(&place) {
                    kept.cut.insert(kept.encoded.len(), lost.clone());
                }
                if let Some(answer) = self.0.last_answers.get(&place) {
                    kept.last_answers.insert(kept.encoded.len(), answer.clone());
                }
                kept.encoded.push(encoded.clone());
            }
        }
        Self(Arc::new(kept))
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.0.encoded.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.encoded.is_empty()
    }

    /// These and then the others.
    pub fn extend_from(&mut self, others: &Self) {
        let mine = Arc::make_mut(&mut self.0);
        let before = mine.encoded.len();
        mine.encoded.extend_from_slice(&others.0.encoded);
        let lost = others.0.cut.iter().map(|(example, cut)| (before + example, cut.clone()));
        mine.cut.extend(lost);
        let answers = others.0.last_answers.iter();
        mine.last_answers.extend(answers.map(|(place, answer)| (before + place, answer.clone())));
        mine.writing = mine.writing.take().or_else(|| others.0.writing.clone());
        mine.preference = mine.preference.or(others.0.preference);
    }
}

/// A random sample of so many examples, their places in order: the part that is looked at to measure
/// something.
pub(crate) fn sample(examples: usize, most: usize, seed: Seed) -> Vec<usize> {
    let mut order: Vec<usize> = (0..examples).collect();
    seed.generator().shuffle(&mut order);
    order.truncate(most);
    order.sort_unstable();
    order
}

/// Examples that lost no word.
impl FromIterator<Encoded> for Examples {
    fn from_iter<I: IntoIterator<Item = Encoded>>(encoded: I) -> Self {
        let encoded = encoded.into_iter().collect();
        Self(Arc::new(Parts { encoded, ..Parts::default() }))
    }
}
