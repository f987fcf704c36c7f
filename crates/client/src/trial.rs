//! What training does to a client's loss, measured on a sample of its own examples.
//!
//! The loss that training reports is a mean over steps in which the model changes, so it says
//! little about what the steps achieved. Here the same examples are asked before and after.

use fedra_compute::{Device, Params, Tape};
use fedra_data::Encoded;
use fedra_engine::Order;
use fedra_model::Model;
use fedra_wire::Measured;

use crate::error::Result;
use crate::prober::chunks;
use crate::question::Question;
use crate::sample::sample;

/// A sample and the loss on it before training.
pub(crate) struct Trial<'a> {
    model: &'a Model,
    device: &'a Device,
    sample: Vec<Encoded>,
    before: f64,
}

impl<'a> Trial<'a> {
    /// Asks before training, if the order wants to know.
    pub fn begin(
        order: &Order,
        (model, device): (&'a Model, &'a Device),
        examples: &[Encoded],
        params: &Params,
    ) -> Result<Option<Self>> {
        let Some(most) = order.work.trial else { return Ok(None) };
        let sample = sample(examples, most as usize, order.seed.of("trial"));
        let mut trial = Self { model, device, sample, before: 0.0 };
        trial.before = trial.loss(params)?;
        Ok(Some(trial))
    }

    /// Asks again after training; the encoded share by which the loss fell.
    pub fn end(&self, order: &Order, params: &Params) -> Result<Vec<u8>> {
        let after = self.loss(params)?;
        // A sample without a label to get wrong has no loss to lose.
        let drop = if self.before > 0.0 { (self.before - after) / self.before } else { 0.0 };
        let (round, client) = (order.round, order.client);
        Ok(Measured { round, client, scores: vec![drop as f32] }.encode()?)
    }

    /// The mean loss over the sample.
    fn loss(&self, params: &Params) -> Result<f64> {
        let (mut sum, mut seen) = (0.0, 0.0);
        for chosen in chunks(self.sample.len()) {
            let question = Question::gather(self.model, &self.sample, &chosen)?;
            if question.targets_counted() == 0 {
                continue;
            }
            let mut tape = Tape::new(self.device);
            let weights = params.frozen();
            let loss = self.model.loss(&mut tape, weights, &question.batch, question.targets())?;
            sum += f64::from(loss.tensor.item()) * chosen.len() as f64;
            seen += chosen.len() as f64;
        }
        Ok(if seen > 0.0 { sum / seen } else { 0.0 })
    }
}
