//! One step of plain training: the batches that its gradient is summed from, and their common divisor.
//!
//! A step of several batches is the step of one batch with all their examples, up to the rounding of sums:
//! the loss is one mean over all targets of the step (what `transformers` calls `num_items_in_batch`). No more
//! than one batch is in memory at a time, beside the sum of gradients.

use std::ops::Range;

use fedra_compute::{Gradients, Params};
use fedra_model::Model;
use fedra_plan::Plan;
use fedra_seed::Seed;

use crate::dropout::RoundDropout;
use crate::error::Result;
use crate::labelled_batch::LabelledBatch;
use crate::objective::Objective;
use crate::split::{ClientSegments, CutStep, StepDivisor, StepPart};
use crate::trainer::TrainTask;

/// The batches of a step.
pub(crate) struct Step<'a> {
    pub objective: &'a Objective,
    pub dropout: RoundDropout,
    batches: Vec<(LabelledBatch, Vec<u64>)>,
}

/// One of them.
pub(crate) struct Part<'a> {
    pub question: &'a LabelledBatch,
    /// Names each example.
    pub names: &'a [u64],
    /// The places of its examples among those of the step.
    pub places: Range<usize>,
    /// Batches behind it.
    pub follow: usize,
}

impl<'a> Step<'a> {
    /// The chosen examples in batches of the work's size; images that change draw under this seed.
    pub fn gather(
        (model, task): (&Model, &TrainTask<'_>),
        (objective, dropout): (&'a Objective, RoundDropout),
        (chosen, draws): (&[usize], Seed),
    ) -> Result<Self> {
        let batch = |chosen: &[usize]| {
            let names = chosen.iter().map(|&index| index as u64).collect();
            Ok((LabelledBatch::gather_drawn(model, (task.examples, chosen), Some(draws))?, names))
        };
        let batches = chosen.chunks(task.work.batch.max(1) as usize).map(batch);
        Ok(Self { objective, dropout, batches: batches.collect::<Result<_>>()? })
    }

    /// The same without batches that have no target, unless all of them count; `None` if none is left.
    pub fn labelled(mut self, all: bool) -> Option<Self> {
        self.batches.retain(|(question, _)| all || question.targets_counted() > 0);
        (!self.batches.is_empty()).then_some(self)
    }

    /// What the sums over all batches are divided by.
    pub fn divisor(&self) -> StepDivisor {
        let questions = || self.batches.iter().map(|(question, _)| question);
        StepDivisor {
            targets: questions().map(|question| self.objective.divisor(question)).sum(),
            sequences: questions().map(|question| question.batch.packing().examples()).sum(),
        }
    }

    /// Its batches in order.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let mut end = 0;
        self.batches.iter().enumerate().map(move |(number, (question, names))| {
            let first = end;
            end += question.batch.packing().examples();
            let follow = self.batches.len() - number - 1;
            Part { question, names, places: first..end, follow }
        })
    }

    /// The loss and the gradients where the middle is elsewhere. The norm that is clipped is that of both
    /// sides together, so the server is told by what it scales its own.
    pub fn cut(
        &self,
        given: (&Params, &Plan),
        ends: &mut ClientSegments<'_>,
        (number, clip): (u32, Option<f32>),
    ) -> Result<(Option<f32>, Gradients)> {
        let (mut loss_sum, mut sum, mut squares) = (None, Gradients::default(), 0.0);
        for part in self.parts() {
            let dropout = self.dropout.of(number, part.places.clone());
            let (loss, dropout) = ((self.objective, self.divisor()), dropout.as_ref());
            let Part { question, names: examples, follow, .. } = part;
            let CutStep { loss, gradients, elsewhere } =
                ends.learn(given, StepPart { question, examples, loss, dropout, follow })?;
            loss_sum = loss.map(|loss| loss + loss_sum.unwrap_or(0.0));
            if loss_sum.is_some_and(|loss: f32| !loss.is_finite()) {
                return Ok((loss_sum, Gradients::default()));
            }
            squares = elsewhere;
            sum.add(gradients)?;
        }
        let Some(norm) = clip else { return Ok((loss_sum, sum)) };
        let all = (sum.sum_of_squares() + squares).sqrt();
        let factor = (f64::from(norm) / all).min(1.0);
        if factor < 1.0 {
            sum.scale(factor as f32);
        }
        if !given.1.gradient_crossings().is_empty() {
            ends.scale_step(factor)?;
        }
        Ok((loss_sum, sum))
    }
}
