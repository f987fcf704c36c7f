//! Prefix-greedy search: for each position, which next token reproduces the noised state best.
//!
//! A causal decoder's state depends on its own token and those before it. So whoever has the weights
//! below the cut finds the first token by trying all, then the second given the first, and so on:
//!
//! ```text
//! token t = argmax over v of  log p(row t | state of v behind the tokens found so far)
//!                           + log p(v | the tokens found so far)       with a language prior
//! ```
//! A candidate costs one row, because the prefix is in a cache. Observations that agree on the
//! prefix found so far share its candidates: a grid of noise levels costs little more than one.

use std::collections::BTreeMap;

use fedra_model::KeyValueCache;

use crate::decoder::Decoder;
use crate::error::Result;
use crate::observation::Observation;

/// A search through the vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The attacker's model: its first blocks stand for the client's.
    pub decoder: Decoder<'a>,
    /// How many blocks are below the cut.
    pub first: usize,
    /// A public language model, whose expectations of the next token count; without one the state alone
    /// decides.
    pub prior: Option<Decoder<'a>>,
    /// The tokens at the start of every line that everybody knows.
    pub known: &'a [u32],
}

/// Candidates for every position of one observation; none means all tokens.
pub type Shortlists = Option<Vec<Vec<u32>>>;

/// Observations with the same line and the same tokens found so far.
struct Branch {
    tokens: Vec<u32>,
    lower: KeyValueCache,
    /// The prior's cache, and what it expects next.
    language: Option<(KeyValueCache, Vec<f32>)>,
    observations: Vec<usize>,
}

impl Search<'_> {
    /// The tokens of each observation, known ones included.
    ///
    /// There are as many shortlists as observations. `progress` is told the position and how many
    /// there are.
    pub fn recover(
        &self,
        observations: &[Observation],
        shortlists: &[Shortlists],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Vec<u32>>> {
        let longest = observations.iter().map(Observation::len).max().unwrap_or(0);
        let mut found = vec![Vec::new(); observations.len()];
        let mut branches = self.begin(observations, longest)?;
        for position in self.known.len()..longest {
            progress(position, longest);
            let mut next = Vec::new();
            for branch in branches {
                let (ended, going): (Vec<usize>, Vec<usize>) = (branch.observations.iter())
                    .partition(|&&number| observations[number].len() <= position);
                for number in ended {
                    found[number].clone_from(&branch.tokens);
                }
                if !going.is_empty() {
                    let branch = Branch { observations: going, ..branch };
                    next.extend(self.step(&branch, (observations, shortlists), position)?);
                }
            }
            branches = next;
            self.advance(&mut branches)?;
        }
        for branch in branches {
            for number in branch.observations {
                found[number].clone_from(&branch.tokens);
            }
        }
        Ok(found)
    }

    /// A branch for each line, behind the tokens that everybody knows.
    fn begin(&self, observations: &[Observation], longest: usize) -> Result<Vec<Branch>> {
        let mut lines: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, observation) in observations.iter().enumerate() {
            lines.entry(observation.line).or_default().push(number);
        }
        let mut branches = Vec::new();
        for observations in lines.into_values() {
            let cache = |decoder: Decoder<'_>| decoder.cache(0..decoder.model.blocks(), longest);
            let language = self.prior.map(cache).transpose()?.map(|cache| (cache, Vec::new()));
            let lower = self.decoder.cache(0..self.first, longest)?;
            branches.push(Branch { tokens: Vec::new(), lower, language, observations });
        }
        for &token in self.known {
            for branch in &mut branches {
                branch.tokens.push(token);
            }
            self.advance(&mut branches)?;
        }
        Ok(branches)
    }

    /// Chooses the next token for each observation of a branch; a branch for each choice.
    fn step(
        &self,
        branch: &Branch,
        (observations, shortlists): (&[Observation], &[Shortlists]),
        position: usize,
    ) -> Result<Vec<Branch>> {
        let width = self.decoder.width();
        let candidates = self.candidates(&branch.observations, shortlists, position);
        let states = self.decoder.next_states(&branch.lower, &candidates)?;
        let expected = branch.language.as_ref().map_or(&[][..], |(_, expected)| &expected[..]);
        let mut chosen: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for &number in &branch.observations {
            let mut best = (f64::NEG_INFINITY, candidates.first().copied().unwrap_or(0));
            for (&token, state) in candidates.iter().zip(states.chunks_exact(width)) {
                let prior = expected.get(token as usize).copied().map_or(0.0, f64::from);
                let score = observations[number].log_likelihood(position, state) + prior;
                if score > best.0 {
                    best = (score, token);
                }
            }
            chosen.entry(best.1).or_default().push(number);
        }
        let branches = chosen.into_iter().map(|(token, observations)| {
            let tokens = branch.tokens.iter().copied().chain([token]).collect();
            let (lower, language) = (branch.lower.clone(), branch.language.clone());
            Branch { tokens, lower, language, observations }
        });
        Ok(branches.collect())
    }

    /// All that any of these observations may have at a position, ascending.
    fn candidates(
        &self,
        numbers: &[usize],
        shortlists: &[Shortlists],
        position: usize,
    ) -> Vec<u32> {
        let mut all = Vec::new();
        for &number in numbers {
            match shortlists.get(number).and_then(Option::as_ref) {
                None => return (0..self.decoder.vocabulary() as u32).collect(),
                Some(lists) => all.extend_from_slice(&lists[position]),
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Reads each branch's last token.
    fn advance(&self, branches: &mut [Branch]) -> Result<()> {
        if branches.is_empty() {
            return Ok(());
        }
        let last: Vec<u32> =
            branches.iter().filter_map(|branch| branch.tokens.last().copied()).collect();
        let mut caches: Vec<_> = branches.iter_mut().map(|branch| &mut branch.lower).collect();
        self.decoder.read(&mut caches, &last)?;
        let Some(decoder) = self.prior else { return Ok(()) };
        let mut language: Vec<_> =
            branches.iter_mut().filter_map(|branch| branch.language.as_mut()).collect();
        let mut caches: Vec<_> = language.iter_mut().map(|(cache, _)| cache).collect();
        let expected = decoder.next_tokens(decoder.read(&mut caches, &last)?)?;
        for ((_, own), row) in language.iter_mut().zip(expected.chunks(decoder.vocabulary())) {
            *own = row.to_vec();
        }
        Ok(())
    }
}
