//! Private steps: batches by Poisson sampling, gradients clipped example by example, noise on their sum.
//!
//! What [`PrivateSteps`] orders, on tensors. Every draw comes from the client's secret key, at a place that no
//! other draw has: purpose, step, parameter. The same task with the same key gives the same bits. An example's
//! draws are its own ([`BatchSampler`]), so under one key an example more or less changes no other's.
//!
//! A batch that came out larger than usual is worked through in parts of the usual size, so memory is that of
//! a plain step. An example without a label, one whose gradient is no number, and a batch without
//! examples contribute nothing; the noise is there all the same.

use std::collections::BTreeMap;

use fedra_compute::{ClipFactors, Clipping, Gradients, Params, SecretKey, Tape, Tensor};
use fedra_engine::{ClipRule, LayerNoise, PrivateSteps, StepNoise};
use fedra_plan::{Layer, Scope};

use crate::batch_sampler::BatchSampler;
use crate::dropout::RoundDropout;
use crate::error::{ClientError, Result};
use crate::labelled_batch::LabelledBatch;
use crate::objective::Objective;
use crate::trainer::{RoundMemory, TrainTask, Trainer};

/// The share of examples that an adaptive norm leaves as they are.
const WITHIN: f64 = 0.5;
/// How fast it moves.
const PACE: f64 = 0.2;
/// How far it may get from where it began: a signal that noise drowns must not carry it away.
const MOST: f64 = 1e3;

/// One client's private steps of one round.
pub(crate) struct PrivateTraining {
    steps: PrivateSteps,
    key: SecretKey,
    sampler: BatchSampler,
    dropout: RoundDropout,
    objective: Objective,
    /// The mean size of a batch.
    mean: f64,
    /// The norm of the next step.
    clip: f64,
    taken: u32,
    layers: BTreeMap<Layer, LayerNoise>,
}

impl PrivateTraining {
    /// Before the first step, where steps are private.
    pub(crate) fn of(
        task: &TrainTask<'_>,
        objective: &Objective,
        (params, dropout): (&Params, RoundDropout),
    ) -> Result<Option<Self>> {
        let Some(steps) = task.work.private else { return Ok(None) };
        let Some(key) = task.key else {
            let reason = format!("{}: private steps need a secret key", task.client);
            return Err(ClientError::privacy(reason));
        };
        let examples = task.examples.len() as u64;
        let mean = steps.mean_batch(task.work.step_batch(), examples) as f64;
        let cap = steps.cap.map(|cap| (cap * mean).ceil() as usize);
        let rate = steps.rate(task.work.step_batch(), examples);
        let sampler = BatchSampler::new(task.examples, key, (rate, cap));
        let mut layers: BTreeMap<Layer, LayerNoise> = BTreeMap::new();
        for id in task.scope {
            let (layer, (rows, cols)) = (id.layer, params.get(id)?.shape());
            let none = LayerNoise { layer, numbers: 0, released: 0.0, noise: 0.0 };
            layers.entry(layer).or_insert(none).numbers += (rows * cols) as u64;
        }
        let (key, clip, objective) = (key.clone(), steps.clip, objective.clone());
        Ok(Some(Self { steps, key, sampler, dropout, objective, mean, clip, taken: 0, layers }))
    }

    /// The noised mean gradient of the next batch, whose examples join each by a coin of its own, up to the cap.
    pub(crate) fn gradients(
        &mut self,
        trainer: &Trainer<'_>,
        params: &Params,
        task: &TrainTask<'_>,
        memory: &mut RoundMemory,
    ) -> Result<Gradients> {
        let batch = self.sampler.batch(self.taken);
        let clipping = self.clipping(task.scope);
        let (mut sum, mut within) = (Gradients::default(), 0.0);
        for part in batch.chunks(task.work.batch.max(1) as usize) {
            let (gradients, factors) =
                self.part(trainer, params, (task, part), &clipping, memory)?;
            within += part.len() as f64 - outside(&factors, &self.layers) as f64;
            sum.add(gradients)?;
        }
        let step = u64::from(self.taken);
        let noise = self.steps.gradient_noise();
        let noise = noise.map_err(ClientError::privacy)?;
        let deviation = noise.get() * self.clip / self.mean;
        sum.cover(params, task.scope)?;
        sum.add_noise(deviation as f32, &self.key.of("noise").with(step))?;
        for (id, gradient) in sum.iter() {
            if let Some(layer) = self.layers.get_mut(&id.layer) {
                layer.released += gradient.values().sum_of_squares();
            }
        }
        for layer in self.layers.values_mut() {
            layer.noise += layer.numbers as f64 * deviation * deviation;
        }
        self.adapt(within - batch.len() as f64 / 2.0);
        self.taken += 1;
        Ok(sum)
    }

    /// What may be told of all steps.
    pub(crate) fn told(self) -> StepNoise {
        let steps = f64::from(self.taken.max(1));
        let mean = |layer: LayerNoise| LayerNoise {
            released: layer.released / steps,
            noise: layer.noise / steps,
            ..layer
        };
        let adapts = self.steps.clipping == ClipRule::Adaptive;
        StepNoise {
            layers: self.layers.into_values().map(mean).collect(),
            clip: adapts.then_some(self.clip),
        }
    }

    /// The clipped sum of some examples over the mean size of a batch.
    fn part(
        &self,
        trainer: &Trainer<'_>,
        params: &Params,
        (task, part): (&TrainTask<'_>, &[usize]),
        clipping: &Clipping,
        memory: &mut RoundMemory,
    ) -> Result<(Gradients, ClipFactors)> {
        let draws = Some(task.seed.of("augment").with(u64::from(self.taken)));
        let question = LabelledBatch::gather_drawn(trainer.model, (task.examples, part), draws)?;
        let by_sequence = question.weights_by_sequence();
        let targets = self.objective.part_by_sequence(&question, &by_sequence, 1.0);
        let names: Vec<u64> = part.iter().map(|&example| example as u64).collect();
        // What is dropped of an example is its own affair, as its draws are.
        let seed = |&example: &usize| self.sampler.seed(example, self.taken);
        let drops = self.dropout.drawn(|| part.iter().map(seed).collect());
        let boundaries = question.batch.packing().boundaries();
        let mut tape = Tape::by_example(trainer.device, &boundaries).with_dropout(drops);
        let asked = (&question, targets, names.as_slice());
        let loss = trainer.loss(&mut tape, (params, task.scope), asked, memory)?.value;
        let seed = Tensor::scalar(trainer.device, 1.0);
        let gradients = tape.backward_by_example(&[(&loss, seed)])?;
        let factors = clipping.factors(&gradients);
        let share = (1.0 / self.mean) as f32;
        let sum = gradients.weighted_sum(|layer, example| share * factors.at(layer, example));
        Ok((sum, factors))
    }

    fn clipping(&self, scope: &Scope) -> Clipping {
        match self.steps.clipping {
            ClipRule::Flat | ClipRule::Adaptive => Clipping::Flat(self.clip),
            ClipRule::PerBlock => {
                let each = self.clip / (self.layers.len().max(1) as f64).sqrt();
                Clipping::PerLayer(scope.iter().map(|id| (id.layer, each)).collect())
            }
        }
    }

    /// Moves an adaptive norm by the noised count of examples within it, each counted from -1/2 to 1/2.
    fn adapt(&mut self, count: f64) {
        if self.steps.clipping != ClipRule::Adaptive {
            return;
        }
        let mut noised = [count as f32];
        let deviation = ClipRule::COUNT_NOISE * self.steps.noise.get();
        let key = self.key.of("count").with(u64::from(self.taken));
        key.add_normal(&mut noised, 0, deviation as f32);
        let share = (f64::from(noised[0]) / self.mean + 0.5).clamp(0.0, 1.0);
        let range = self.steps.clip / MOST..=self.steps.clip * MOST;
        let clip = self.clip * (-PACE * (share - WITHIN)).exp();
        self.clip = clip.clamp(*range.start(), *range.end());
    }
}

/// Examples whose gradient was made smaller, or is no number.
fn outside(factors: &ClipFactors, layers: &BTreeMap<Layer, LayerNoise>) -> usize {
    let clipped = layers.keys().map(|layer| factors.clipped(*layer)).max().unwrap_or(0);
    clipped + factors.not_finite()
}
