//! A linear inverter from a noised state to its token, in closed form.
//!
//! The attacker runs public text through the weights that it has and models the states of a token as
//! a Gaussian. The means follow the token's embedding by ridge regression, so that tokens which the
//! public text lacks have one too, and move to the token's own mean with every occurrence. All tokens
//! share a covariance, to which the known variance of the noise is added:
//!
//! ```text
//! mean_v   = (sum of states of v + k (B e_v + b)) / (n_v + k)      B, b: ridge
//! log p(v | row) = row S^-1 mean_v - mean_v S^-1 mean_v / 2 + log p(v) + constant
//! ```
//! That is one row of weights and a bias for each token. The target is the token at the *same*
//! position; [`Target::Next`] is the usual mistake, kept as a control.

use fedra_client::{Perturbation, highest};
use fedra_compute::{Device, Tensor};
use fedra_plan::{Layer, ParamId, Part, Role};

use crate::decoder::Decoder;
use crate::error::{AuditError, Result};
use crate::product::{inverse, product, transposed};
use crate::public_text::PublicText;

/// How many occurrences the regression's mean is worth.
const PRIOR_OCCURRENCES: f32 = 4.0;
/// Of a matrix's mean diagonal, what is added to all of it.
const RIDGE: f64 = 1e-3;

/// Which token a state is to be turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one at its own position.
    Same,
    /// The one behind it: what a language model is trained for, and no inversion.
    Next,
}

/// Public states by their tokens: all that an inverter is fitted from.
#[derive(Debug)]
pub struct StateStatistics {
    /// A row for each token of the vocabulary.
    means: Tensor,
    /// Of states around the mean of their token.
    covariance: Vec<f64>,
    log_prior: Vec<f32>,
    /// Some of the states, to tell how much noise a row gets.
    sample: Vec<f32>,
    width: usize,
}

/// A fitted inverter.
#[derive(Clone, Debug)]
pub struct Inverter {
    weight: Tensor,
    bias: Tensor,
    width: usize,
}

impl StateStatistics {
    /// Runs public text through the attacker's first blocks. Where noise clips, states are clipped.
    pub fn gather(
        decoder: Decoder<'_>,
        first: usize,
        (text, target): (&PublicText, Target),
        perturbation: &Perturbation,
    ) -> Result<Self> {
        let (width, device) = (decoder.width(), decoder.device);
        let states = decoder.states(first, &text.sequences)?;
        let (mut rows, mut tokens) = (Vec::new(), Vec::new());
        for (sequence, states) in text.sequences.iter().zip(&states) {
            for (position, row) in states.chunks_exact(width).enumerate().skip(text.known) {
                let token = match target {
                    Target::Same => Some(&sequence[position]),
                    Target::Next => sequence.get(position + 1),
                };
                let Some(&token) = token else { continue };
                tokens.push(token);
                let (factor, _) = perturbation.measure(row);
                rows.extend(row.iter().map(|number| factor * number));
            }
        }
        if tokens.is_empty() {
            return Err(AuditError::setting("public text", "no token", "at least one"));
        }
        let mut counts = vec![0_u32; decoder.vocabulary()];
        for &token in &tokens {
            counts[token as usize] += 1;
        }
        let means = means(decoder, (&rows, &tokens, &counts))?;
        let covariance = covariance(device, &means, (&rows, &tokens, &counts))?;
        let log_prior = text.log_prior();
        rows.truncate(4096 * width);
        Ok(Self { means, covariance, log_prior, sample: rows, width })
    }

    /// The inverter for rows that are the mean of so many draws of this noise.
    pub fn inverter(&self, perturbation: &Perturbation, draws: u32) -> Result<Inverter> {
        let width = self.width;
        let variances =
            self.sample.chunks_exact(width).map(|row| perturbation.measure(row).1.powi(2));
        let rows = (self.sample.len() / width) as f64;
        let noise = variances.sum::<f64>() / rows / f64::from(draws.max(1));
        let mut covariance = self.covariance.clone();
        let scale = (0..width).map(|place| covariance[place * (width + 1)]).sum::<f64>();
        for place in 0..width {
            covariance[place * (width + 1)] += noise + RIDGE * scale / width as f64;
        }
        let precision: Vec<f32> =
            inverse(&covariance, width)?.into_iter().map(|number| number as f32).collect();
        let device = self.means.device();
        let precision = Tensor::from_slice(&device, width, width, &precision)?;
        let weight = product(self.means.clone(), precision, None)?;
        let (weights, means) = (weight.to_host(), self.means.to_host());
        let pairs = weights.chunks_exact(width).zip(means.chunks_exact(width));
        let bias: Vec<f32> = pairs
            .zip(&self.log_prior)
            .map(|((weight, mean), prior)| {
                let energy: f64 = weight.iter().zip(mean).map(|(w, m)| f64::from(w * m)).sum();
                (f64::from(*prior) - 0.5 * energy) as f32
            })
            .collect();
        let bias = Tensor::from_slice(&device, 1, bias.len(), &bias)?;
        drop((weights, means));
        Ok(Inverter { weight, bias, width })
    }
}

impl Inverter {
    /// The likeliest token of each row.
    pub fn guess(&self, rows: &[f32]) -> Result<Vec<u32>> {
        let mut all = Vec::new();
        self.each(rows, |scores| all.push(highest(scores)))?;
        Ok(all)
    }

    /// The likeliest tokens of each row, ascending by number.
    pub fn shortlists(&self, rows: &[f32], count: usize) -> Result<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        self.each(rows, |scores| {
            let mut tokens: Vec<u32> = (0..scores.len() as u32).collect();
            if count < tokens.len() {
                let by_score = |a: &u32, b: &u32| {
                    scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b))
                };
                tokens.select_nth_unstable_by(count, by_score);
                tokens.truncate(count);
                tokens.sort_unstable();
            }
            all.push(tokens);
        })?;
        Ok(all)
    }

    fn each(&self, rows: &[f32], mut each: impl FnMut(&[f32])) -> Result<()> {
        const ROWS: usize = 128; // whose scores of a whole vocabulary exist at a time
        let device = self.weight.device();
        for some in rows.chunks(ROWS * self.width) {
            let x = Tensor::from_slice(&device, some.len() / self.width, self.width, some)?;
            let scores = product(x, self.weight.clone(), Some(self.bias.clone()))?;
            scores.to_host().chunks_exact(scores.cols()).for_each(&mut each);
        }
        Ok(())
    }
}

/// The mean state of every token: its own, drawn to what its embedding predicts.
fn means(decoder: Decoder<'_>, (rows, tokens, counts): (&[f32], &[u32], &[u32])) -> Result<Tensor> {
    let (width, device) = (decoder.width(), decoder.device);
    let vocabulary = counts.len();
    let mut sums = vec![0.0_f32; vocabulary * width];
    for (row, &token) in rows.chunks_exact(width).zip(tokens) {
        let sum = &mut sums[token as usize * width..][..width];
        sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
    }
    let id = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
    let table = decoder.params.get(id)?;
    let (wide, values) = (table.cols() + 1, table.to_host());
    let with_one = |row: &[f32], factor: f32, into: &mut Vec<f32>| {
        into.extend(row.iter().map(|number| factor * number).chain([factor]));
    };
    let (mut scaled, mut plain, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    let mut every = Vec::with_capacity(vocabulary * wide);
    for (token, (embedding, &count)) in values.chunks_exact(wide - 1).zip(counts).enumerate() {
        with_one(embedding, 1.0, &mut every);
        if count > 0 {
            with_one(embedding, (count as f32).sqrt(), &mut scaled);
            with_one(embedding, 1.0, &mut plain);
            seen.extend_from_slice(&sums[token * width..][..width]);
        }
    }
    let scaled = transposed(device, &scaled, wide)?;
    let gram = product(scaled.clone(), scaled, None)?;
    let mut gram: Vec<f64> = gram.to_host().iter().map(|number| f64::from(*number)).collect();
    let diagonal = (0..wide).map(|place| gram[place * (wide + 1)]).sum::<f64>() / wide as f64;
    (0..wide).for_each(|place| gram[place * (wide + 1)] += RIDGE * diagonal);
    let inverse: Vec<f32> = inverse(&gram, wide)?.into_iter().map(|number| number as f32).collect();
    let inverse = Tensor::from_slice(device, wide, wide, &inverse)?;
    // [width, wide] of the states against the embeddings, then the map itself.
    let cross =
        product(transposed(device, &seen, width)?, transposed(device, &plain, wide)?, None)?;
    let map = product(cross, inverse, None)?;
    let predicted = product(Tensor::from_slice(device, vocabulary, wide, &every)?, map, None)?;
    for ((sum, mean), &count) in
        sums.chunks_exact_mut(width).zip(predicted.to_host().chunks_exact(width)).zip(counts)
    {
        for (sum, mean) in sum.iter_mut().zip(mean) {
            *sum = (*sum + PRIOR_OCCURRENCES * mean) / (count as f32 + PRIOR_OCCURRENCES);
        }
    }
    Ok(Tensor::from_slice(device, vocabulary, width, &sums)?)
}

/// The covariance of states around the mean that their token would have without them.
fn covariance(
    device: &Device,
    means: &Tensor,
    (rows, tokens, counts): (&[f32], &[u32], &[u32]),
) -> Result<Vec<f64>> {
    let (width, values) = (means.cols(), means.to_host());
    let mut rest = rows.to_vec();
    for (row, &token) in rest.chunks_exact_mut(width).zip(tokens) {
        let weight = counts[token as usize] as f32 + PRIOR_OCCURRENCES;
        let left_out = weight / (weight - 1.0);
        let mean = &values[token as usize * width..][..width];
        row.iter_mut().zip(mean).for_each(|(row, mean)| *row = (*row - mean) * left_out);
    }
    let rest = transposed(device, &rest, width)?;
    let squares = product(rest.clone(), rest, None)?;
    let count = tokens.len() as f64;
    Ok(squares.to_host().iter().map(|number| f64::from(*number) / count).collect())
}
