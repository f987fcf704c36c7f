//! Which of several answers a language model finds likeliest after a prompt.
//!
//! ```text
//! log p(answer | prompt) = sum over its tokens t of log p(answer_t | prompt, answer_<t)
//! ```
//! All answers of an example are in one batch. An answer's last token is told and never read, and
//! answers that begin alike are read from one sequence, so answers of one token cost the prompt
//! alone. Logits are made only for rows that tell a token of an answer, a few at a time.

use std::collections::BTreeMap;

use fedra_compute::{Tape, Value, Weights};
use fedra_data::{Encoded, EncodedChoice, Target};
use fedra_model::{Batch, Model, Reading};

use crate::error::{ClientError, Result};
use fedra_model::log_sum_exp;

/// Logits held at once, in floats (16 MiB), as for a loss over a vocabulary.
const HELD: usize = 1 << 22;

/// The prompts and answers of some examples.
#[derive(Clone, Debug)]
pub(crate) struct ChoiceBatch {
    /// The tokens.
    pub batch: Batch,
    /// The example of each sequence, by its place among the chosen.
    pub owners: Vec<usize>,
    /// The rows that tell a token of some answer, ascending.
    rows: Vec<u32>,
    examples: Vec<Asked>,
}

/// One example's answers.
#[derive(Clone, Debug)]
struct Asked {
    label: u32,
    candidates: Vec<Told>,
}

/// One answer.
#[derive(Clone, Debug)]
struct Told {
    label: u32,
    length: f64,
    /// Each token with the row that tells it, as a place in the rows.
    tokens: Vec<(usize, u32)>,
}

/// What the model says to one example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Guess {
    /// The label of the answer that it finds likeliest, the first of equals.
    pub label: u32,
    /// The log-likelihood of the right answer.
    pub right: f64,
    /// The tokens of the right answer.
    pub tokens: u64,
}

impl ChoiceBatch {
    /// The chosen examples.
    pub fn gather(encoded: &[Encoded], chosen: &[usize]) -> Result<Self> {
        let (mut ids, mut lengths, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        let mut examples = Vec::with_capacity(chosen.len());
        let mut rows = BTreeMap::new();
        for (place, &index) in chosen.iter().enumerate() {
            let Encoded { ids: whole, target: Target::Choice(choice), .. } = &encoded[index] else {
                let (found, expected) = ("an example without answers", "answers to choose from");
                return Err(ClientError::targets(found, expected));
            };
            let EncodedChoice { prompt, label, candidates } = choice;
            let carriers = choice.carriers();
            let mut starts = BTreeMap::new();
            for &carrier in &carriers {
                starts.entry(carrier).or_insert_with(|| {
                    let start = ids.len();
                    let answer = &candidates[carrier].ids;
                    ids.extend_from_slice(&whole[..*prompt]);
                    ids.extend_from_slice(&answer[..answer.len() - 1]);
                    lengths.push(ids.len() - start);
                    owners.push(place);
                    start
                });
            }
            let told = candidates.iter().zip(&carriers).map(|(candidate, carrier)| {
                let first = starts[carrier] + prompt - 1;
                let tokens = candidate.ids.iter().enumerate().map(|(place, &token)| {
                    let row = (first + place) as u32;
                    rows.insert(row, 0);
                    (row as usize, token)
                });
                let length = f64::from(candidate.length);
                Told { label: candidate.label, length, tokens: tokens.collect() }
            });
            examples.push(Asked { label: *label, candidates: told.collect() });
        }
        for (place, number) in rows.values_mut().enumerate() {
            *number = place;
        }
        for candidate in examples.iter_mut().flat_map(|asked| &mut asked.candidates) {
            for (row, _) in &mut candidate.tokens {
                *row = rows[&(*row as u32)];
            }
        }
        let rows = rows.into_keys().collect();
        Ok(Self { batch: Batch::packed(ids, lengths)?, owners, rows, examples })
    }

    /// What the model says to each example, from the hidden states in front of block `first` on.
    pub fn guess(
        &self,
        (model, tape): (&Model, &mut Tape),
        weights: Weights<'_>,
        (hidden, first): (Value, usize),
    ) -> Result<Vec<Guess>> {
        let range = first..model.blocks();
        let packing = self.batch.packing();
        let hidden = model.run_blocks(tape, weights, hidden, packing, range, &Reading::All)?;
        // For each row, the tokens that it tells some answer of.
        let mut asked: Vec<Vec<(u32, f64)>> = vec![Vec::new(); self.rows.len()];
        for candidate in self.examples.iter().flat_map(|asked| &asked.candidates) {
            for &(row, token) in &candidate.tokens {
                asked[row].push((token, 0.0));
            }
        }
        let words = model.config().vocab_size.max(1);
        let step = (HELD / words).clamp(16, 1024);
        for (rows, asked) in self.rows.chunks(step).zip(asked.chunks_mut(step)) {
            let read = tape.rows(&hidden, rows)?;
            let logits = model.head_logits(tape, weights, &read)?.tensor;
            let numbers = logits.to_host();
            for (row, asked) in numbers.chunks_exact(logits.cols()).zip(asked) {
                let all = log_sum_exp(row);
                for (token, told) in asked {
                    let Some(logit) = row.get(*token as usize) else {
                        let expected = format!("below {words}");
                        return Err(ClientError::targets(format!("token {token}"), expected));
                    };
                    *told = f64::from(*logit) - all;
                }
            }
        }
        let likelihood = |told: &Told| {
            let of = |&(row, token): &(usize, u32)| {
                asked[row].iter().find(|(other, _)| *other == token).map_or(0.0, |(_, told)| *told)
            };
            told.tokens.iter().map(of).sum::<f64>()
        };
        Ok(self.examples.iter().map(|asked| asked.guess(likelihood)).collect())
    }
}

impl Asked {
    fn guess(&self, likelihood: impl Fn(&Told) -> f64) -> Guess {
        let mut guess = Guess { label: self.label, right: 0.0, tokens: 0 };
        let mut best = f64::NEG_INFINITY;
        for candidate in &self.candidates {
            let whole = likelihood(candidate);
            if candidate.label == self.label {
                (guess.right, guess.tokens) = (whole, candidate.tokens.len() as u64);
            }
            if whole / candidate.length > best {
                best = whole / candidate.length;
                guess.label = candidate.label;
            }
        }
        guess
    }
}
