//! Learning which of two answers is preferred: DPO and IPO with adapters.
//!
//! The reference is the same model with its adapters off, so there is no second copy of any weight. The loss
//! of a pair depends on four log-likelihoods and on nothing else, so its gradient is that of a cross-entropy
//! whose two sequences count what the loss's derivative says:
//! ```text
//! loss(h)   h = (log p(c) - log p_ref(c)) - (log p(r) - log p_ref(r))
//! d loss = loss'(h) d log p(c) - loss'(h) d log p(r)
//!        = sum over the answers' tokens of weight * d cross-entropy,   weight: -loss'(h) for c, loss'(h) for r
//! ```
//! Hidden states are computed once and recorded; likelihoods are read from them, and only then is it known
//! what each sequence counts. [`PreferenceLoss`] has the losses.

use std::collections::BTreeMap;

use fedra_compute::{Device, LossWeights, Params, RowWeights, Tape, Tensor, Value, Weights};
use fedra_data::{Encoded, Target};
use fedra_engine::{PreferenceForm, PreferenceLoss};
use fedra_model::{Model, Reading, Targets, Weighted};

use crate::error::{ClientError, Result};
use crate::labelled_batch::LabelledBatch;

/// Losses and derivatives of pairs, and the likelihoods of the reference that were computed so far.
#[derive(Clone, Debug)]
pub(crate) struct PreferenceObjective {
    loss: PreferenceLoss,
    reference: Model,
    /// By the number of the example.
    known: BTreeMap<u64, Likelihoods>,
}

/// Of the chosen answer and of the rejected one: log-likelihoods, or their means over tokens.
type Likelihoods = [f64; 2];

/// What a model makes of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JudgedPair {
    /// How much likelier than its reference it finds the chosen answer, less the same of the rejected one.
    pub margin: f64,
    /// The loss.
    pub loss: f64,
    /// Its derivative by the margin.
    pub slope: f64,
}

impl PreferenceObjective {
    /// For a model with adapters.
    pub fn new(model: &Model, loss: PreferenceLoss) -> Result<Self> {
        if model.adapters().is_none() {
            let expected = "a model with adapters: without them it is its own reference";
            return Err(ClientError::targets("a preference", expected));
        }
        Ok(Self { loss, reference: model.without_adapters()?, known: BTreeMap::new() })
    }

    /// Judges the pairs of a batch from the hidden states that the last block has left. `names` tell the examples
    /// apart, so that what the reference says to one is computed once.
    pub fn judge(
        &mut self,
        (model, device, params): (&Model, &Device, &Params),
        (question, names): (&LabelledBatch, &[u64]),
        hidden: &Tensor,
    ) -> Result<Vec<JudgedPair>> {
        let found = self.likelihoods((model, device), params.frozen(), question, hidden)?;
        let is_known = |name: &u64| self.known.contains_key(name);
        if !names.iter().all(is_known) {
            let mut tape = Tape::new(device);
            let (batch, weights) = (&question.batch, params.frozen());
            let hidden = self.reference.embed(&mut tape, weights, batch)?;
            let blocks = 0..self.reference.blocks();
            let packing = batch.packing();
            let hidden = self.reference.run_blocks(
                &mut tape,
                weights,
                hidden,
                packing,
                blocks,
                &Reading::All,
            )?;
            let given = (&self.reference, device);
            let said = self.likelihoods(given, weights, question, &hidden.tensor)?;
            self.known.extend(names.iter().copied().zip(said));
        }
        let judged = |(name, found): (&u64, Likelihoods)| {
            let reference = self.known[name];
            let ratio = |answer: usize| found[answer] - reference[answer];
            judge(&self.loss, ratio(0) - ratio(1))
        };
        Ok(names.iter().zip(found).map(judged).collect())
    }

    /// The value whose gradient is that of the mean loss over so many pairs.
    pub fn slope(
        &self,
        (tape, model): (&mut Tape, &Model),
        weights: Weights<'_>,
        (question, judged): (&LabelledBatch, &[JudgedPair]),
        (hidden, divisor): (&Value, f64),
    ) -> Result<Value> {
        let lengths = question.batch.packing().lengths();
        let told = question.targets_by_sequence();
        let mut rows = Vec::with_capacity(question.batch.packing().tokens());
        for (sequence, (&length, &told)) in lengths.iter().zip(&told).enumerate() {
            let slope = judged[sequence / 2].slope;
            let signed = if sequence % 2 == 0 { -slope } else { slope };
            let each = signed / self.tokens(told);
            rows.extend(std::iter::repeat_n(each as f32, length));
        }
        let counted = LossWeights { rows: RowWeights::PerRow(&rows), divisor, ..LossWeights::SUM };
        let asked = Weighted { targets: question.targets(), weights: counted };
        Ok(model.head_loss(tape, weights, hidden, asked)?)
    }

    /// What the likelihood of an answer of so many tokens is divided by.
    fn tokens(&self, told: u64) -> f64 {
        match self.loss.loss {
            PreferenceForm::Dpo => 1.0,
            PreferenceForm::Ipo => told.max(1) as f64,
        }
    }

    fn likelihoods(
        &self,
        (model, device): (&Model, &Device),
        weights: Weights<'_>,
        question: &LabelledBatch,
        hidden: &Tensor,
    ) -> Result<Vec<Likelihoods>> {
        let Targets::Classes(told) = question.targets() else {
            return Err(ClientError::targets("labels", "the next tokens of two answers"));
        };
        let mut tape = Tape::new(device);
        let packing = question.batch.packing();
        let mut all = Vec::with_capacity(packing.sequences());
        for (start, &length) in packing.starts().zip(packing.lengths()) {
            let rows = (start..start + length).filter(|&row| told[row].is_some());
            let rows: Vec<u32> = rows.map(|row| row as u32).collect();
            if rows.is_empty() {
                let expected = "two answers with a token each";
                return Err(ClientError::targets("an answer without a token", expected));
            }
            let own: Vec<Option<u32>> = rows.iter().map(|&row| told[row as usize]).collect();
            let read = tape.rows(&tape.constant(hidden.clone()), &rows)?;
            let asked = Weighted { targets: Targets::Classes(&own), weights: LossWeights::SUM };
            let loss = model.head_loss(&mut tape, weights, &read, asked)?;
            all.push(-f64::from(loss.tensor.item()) / self.tokens(own.len() as u64));
        }
        Ok(all.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
    }
}

/// Refuses examples of which one is no pair of answers.
pub(crate) fn check_pairs(examples: &[Encoded]) -> Result<()> {
    let is_pair = |example: &Encoded| matches!(example.target, Target::Preference(_));
    if examples.iter().all(is_pair) {
        return Ok(());
    }
    Err(ClientError::targets("an example without two answers", "pairs, of which one is preferred"))
}

/// The loss of a pair and its derivative.
fn judge(rule: &PreferenceLoss, margin: f64) -> JudgedPair {
    let PreferenceLoss { beta, label_smoothing, .. } = *rule;
    let (loss, slope) = match rule.loss {
        PreferenceForm::Dpo => {
            let reward = beta * margin;
            let loss =
                (1.0 - label_smoothing) * softplus(-reward) + label_smoothing * softplus(reward);
            let slope =
                (label_smoothing - 1.0) * sigmoid(-reward) + label_smoothing * sigmoid(reward);
            (loss, beta * slope)
        }
        PreferenceForm::Ipo => {
            let left = margin - 0.5 / beta;
            (left * left, 2.0 * left)
        }
    };
    JudgedPair { margin, loss, slope }
}

/// `-log sigmoid(-x)`
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_loss_is_its_derivative() {
        for loss in [PreferenceForm::Dpo, PreferenceForm::Ipo] {
            for (beta, label_smoothing) in [(0.1, 0.0), (0.5, 0.2), (2.0, 0.0)] {
                let smoothing = if loss == PreferenceForm::Dpo { label_smoothing } else { 0.0 };
                let rule = PreferenceLoss { loss, beta, label_smoothing: smoothing };
                for margin in [-40.0, -1.5, 0.0, 0.3, 900.0] {
                    let step = 1e-4;
                    let at = |margin| judge(&rule, margin).loss;
                    let found = (at(margin + step) - at(margin - step)) / (2.0 * step);
                    let slope = judge(&rule, margin).slope;
                    assert!(
                        (found - slope).abs() < 1e-6 * slope.abs().max(1.0),
                        "{rule:?} {margin}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_pair_that_nothing_tells_apart_costs_log_two() {
        let found = judge(&PreferenceLoss::default(), 0.0);
        assert!((found.loss - 2.0_f64.ln()).abs() < 1e-15);
        assert!((found.slope + 0.05).abs() < 1e-15);
    }
}
