//! What a model says about texts that nobody has labelled.
//!
//! Texts are cut into tokens side by side, sequences of like length share a batch of bounded tokens,
//! and batches run side by side. Answers come in the order of texts, and their numbers depend neither
//! on batches nor on threads. A text that cannot be cut is an error of its own and spoils no other.

use fedra_compute::{Device, Params, Tape};
use fedra_data::{
    Body, DataError, Encoder, ImageEncoder, Pixels, TokenSequence, Tokenizer, WordPlace,
    WordWindows,
};
use fedra_model::{Batch, Head, Model};

use crate::error::{ClientError, Result};
use crate::evaluator::evaluation_batches;
use crate::ordered_jobs::{by_batch, collected};
use fedra_model::rows_of_each;

/// Texts that are cut in one job; a job costs some microseconds, a text tens of them.
const TEXTS_AT_ONCE: usize = 32;

/// Applies a model with a classification head.
#[derive(Clone, Copy)]
pub struct Predictor<'a> {
    /// The structure.
    pub model: &'a Model,
    /// The numbers.
    pub params: &'a Params,
    /// Who computes.
    pub device: &'a Device,
    /// What makes sequences of rows.
    pub input: ModelInput<'a>,
    /// Tokens in a batch; a longer sequence is a batch of its own.
    pub tokens: usize,
}

/// What makes sequences of rows, by what the model reads.
#[derive(Clone, Copy)]
pub enum ModelInput<'a> {
    /// Texts are cut.
    Texts {
        /// What cuts them.
        tokenizer: &'a Tokenizer,
        /// Most tokens of a sequence.
        longest: usize,
    },
    /// Images are resized and normalised.
    Images(ImageEncoder<'a>),
}

/// What one sequence is: ids, types, and pixels where it is an image.
type Sequence<'a> = (&'a [u32], &'a [u32], Option<&'a Pixels>);

/// The head's numbers for one text or image.
#[derive(Clone, Debug, PartialEq)]
pub enum Logits {
    /// One for each class.
    OfText {
        /// In the order of the head's outputs.
        logits: Vec<f32>,
        /// How many pieces of the text were cut away and not seen.
        dropped: usize,
    },
    /// One for each class and word.
    OfWords {
        /// Where the words stand.
        words: Vec<WordPlace>,
        /// A row for each word, end to end.
        logits: Vec<f32>,
    },
}

/// A text as sequences.
enum Cut {
    Whole(TokenSequence),
    Words(WordWindows),
}

impl Predictor<'_> {
    /// What the head says to each text.
    pub fn logits(&self, texts: &[Body]) -> Result<Vec<Result<Logits, DataError>>> {
        let Some(classes) = self.model.head().classes() else {
            let (found, expected) = ("a model without classes", "a head that classifies");
            return Err(ClientError::targets(found, expected));
        };
        let cuts = self.cut(texts)?;
        let mut sequences: Vec<Sequence<'_>> = Vec::new();
        for cut in cuts.iter().flatten() {
            match cut {
                Cut::Whole(whole) => {
                    sequences.push((&whole.ids, &whole.types, whole.pixels.as_ref()));
                }
                Cut::Words(words) => {
                    let windows = words.windows.iter();
                    sequences
                        .extend(windows.map(|window| (&window.ids[..], &window.types[..], None)));
                }
            }
        }
        let mut answers = self.rows(&sequences)?.into_iter();
        let mut join = |cut: Cut| match cut {
            Cut::Whole(TokenSequence { dropped, .. }) => {
                Logits::OfText { logits: answers.next().unwrap_or_default(), dropped }
            }
            Cut::Words(WordWindows { words, windows }) => {
                let mut logits = Vec::with_capacity(words.len() * classes);
                for (window, rows) in windows.iter().zip(answers.by_ref()) {
                    for place in &window.answers {
                        logits.extend_from_slice(&rows[place * classes..][..classes]);
                    }
                }
                Logits::OfWords { words, logits }
            }
        };
        Ok(cuts.into_iter().map(|cut| cut.map(&mut join)).collect())
    }

    /// Cuts texts, many at a time.
    fn cut(&self, texts: &[Body]) -> Result<Vec<Result<Cut, DataError>>> {
        let (tokenizer, longest) = match &self.input {
            ModelInput::Texts { tokenizer, longest } => (tokenizer, *longest),
            ModelInput::Images(images) => {
                return side_by_side(texts, &|image| images.sequence(image).map(Cut::Whole));
            }
        };
        let encoder = Encoder::new(tokenizer, longest)?;
        side_by_side(texts, &|text| match self.model.head() {
            Head::Tokens { .. } => encoder.word_windows(text).map(Cut::Words),
            Head::Sequence { .. } | Head::Bare | Head::Language => {
                encoder.sequence(text).map(Cut::Whole)
            }
        })
    }

    /// The rows of logits of each sequence, end to end.
    fn rows(&self, sequences: &[Sequence<'_>]) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = sequences.iter().map(|(ids, ..)| ids.len()).collect();
        let batches = evaluation_batches(&lengths, self.tokens);
        by_batch(&batches, |chosen| self.batch_rows(sequences, chosen))
    }

    fn batch_rows(&self, sequences: &[Sequence<'_>], chosen: &[usize]) -> Result<Vec<Vec<f32>>> {
        let ids: Vec<&[u32]> = chosen.iter().map(|&place| sequences[place].0).collect();
        let mut batch = Batch::new(&ids)?;
        if chosen.iter().any(|&place| !sequences[place].1.is_empty()) {
            let segments = chosen.iter().flat_map(|&place| {
                let (ids, types, _) = sequences[place];
                (0..ids.len()).map(|token| types.get(token).copied().unwrap_or(0))
            });
            batch = batch.with_segments(segments.collect())?;
        }
        let mut pixels = Vec::new();
        for image in chosen.iter().filter_map(|&place| sequences[place].2) {
            image.extend(&mut pixels);
        }
        if !pixels.is_empty() {
            batch = batch.with_pixels(pixels)?;
        }
        let mut tape = Tape::new(self.device);
        let logits = self.model.logits(&mut tape, self.params.frozen(), &batch)?.tensor;
        let rows = chosen.iter().map(|&place| match self.model.head() {
            Head::Sequence { .. } => 1,
            Head::Tokens { .. } | Head::Bare | Head::Language => sequences[place].0.len(),
        });
        Ok(rows_of_each(&logits, rows))
    }
}

/// What each row becomes, many at a time.
fn side_by_side(
    rows: &[Body],
    one: &(dyn Fn(&Body) -> Result<Cut, DataError> + Sync),
) -> Result<Vec<Result<Cut, DataError>>> {
    let parts: Vec<&[Body]> = rows.chunks(TEXTS_AT_ONCE).collect();
    let cut = |number: usize| Ok::<Vec<_>, ClientError>(parts[number].iter().map(one).collect());
    Ok(collected(parts.len(), cut)?.into_iter().flatten().collect())
}
