//! Text that the attacker has anyway, and what can be guessed from it without any state.

use fedra_client::highest;

use crate::decoder::Decoder;
use crate::error::{AuditError, Result};

/// Sequences of public tokens and how often each token occurs.
#[derive(Clone, Debug)]
pub struct PublicText {
    pub(crate) sequences: Vec<Vec<u32>>,
    /// Tokens at the start of every sequence that say nothing.
    pub(crate) known: usize,
    counts: Vec<u64>,
    /// Tokens in all.
    pub total: u64,
}

impl PublicText {
    /// Counts the tokens behind the first `known` of each sequence.
    pub fn new(sequences: Vec<Vec<u32>>, known: usize, vocabulary: usize) -> Result<Self> {
        let mut counts = vec![0; vocabulary];
        for &token in sequences.iter().flat_map(|sequence| sequence.iter().skip(known)) {
            let Some(count) = counts.get_mut(token as usize) else {
                let expected = format!("less than {vocabulary}, the rows of the embedding");
                return Err(AuditError::setting("token of the public text", token, expected));
            };
            *count += 1;
        }
        let total = counts.iter().sum();
        if total == 0 {
            return Err(AuditError::setting("public text", "no token", "at least one"));
        }
        Ok(Self { sequences, known, counts, total })
    }

    /// A token's share of the text.
    pub fn share(&self, token: u32) -> f64 {
        self.counts.get(token as usize).map_or(0.0, |&count| count as f64 / self.total as f64)
    }

    /// The commonest token: the best guess without any knowledge of the line.
    pub fn commonest(&self) -> u32 {
        let best = self.counts.iter().enumerate().rev().max_by_key(|(_, count)| **count);
        best.map_or(0, |(token, _)| token as u32)
    }

    /// The logarithm of each token's share, half an occurrence added to all.
    pub fn log_prior(&self) -> Vec<f32> {
        let total = self.total as f64 + 0.5 * self.counts.len() as f64;
        self.counts.iter().map(|&count| ((count as f64 + 0.5) / total).ln() as f32).collect()
    }

    /// What a language model says to each token of a line, given the *true* tokens before it. No
    /// attacker has those, so this is more than can be guessed without a state.
    pub fn language_guess(&self, decoder: Decoder<'_>, line: &[u32]) -> Result<Vec<u32>> {
        let logits = decoder.logits(line)?;
        let said = logits.to_host();
        let said = said.chunks_exact(logits.cols()).map(highest);
        // Nothing stands before the first token.
        let guesses: Vec<u32> = [self.commonest()].into_iter().chain(said).collect();
        Ok(guesses[self.known.min(line.len())..line.len()].to_vec())
    }
}
