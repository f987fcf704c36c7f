//! The steps of a client in a round: batches, gradients, what a local rule adds, the optimiser.
//!
//! Plain steps, private ones and those of a cut model differ in how a batch's gradients are found, and in
//! nothing that follows.

use fedra_compute::{ComputeError, Device, Gradients, Params, Precision, Tape, Tensor};
use fedra_data::{Encoded, Target, epoch};
use fedra_engine::{ClassWeights, MomentsLife, StepPlace};
use fedra_model::{ModelError, PrefixCache};
use fedra_plan::{Cut, Layout, Plan, Scope};
use fedra_wire::{Header, ParamValues, encode_in_place};

use crate::convert::to_values;
use crate::correction::Correction;
use crate::device_failure::{DeviceFailure, StepSize};
use crate::dropout::RoundDropout;
use crate::error::{ClientError, Result};
use crate::meter::Meter;
use crate::moments;
use crate::objective::Objective;
use crate::preference::{PreferenceObjective, check_pairs};
use crate::private_training::PrivateTraining;
use crate::split::ClientSegments;
use crate::step::Step;
use crate::trainer::{Course, RoundMemory, TrainResult, TrainTask, Trainer, optimiser};

impl Trainer<'_> {
    /// Trains `params` in place. On an error they are left half-trained: train a clone.
    pub fn train(&self, params: &mut Params, task: &TrainTask<'_>) -> Result<TrainResult> {
        let start = params.clone();
        let course = self.train_cut(params, task, (None, &Meter::unwatched()))?;
        let difference = |id| {
            let change = params.get(id)?.minus(start.get(id)?)?;
            Ok((id, change.to_host().into_owned()))
        };
        let change = task.scope.iter().map(difference).collect::<Result<_>>()?;
        Ok(TrainResult { change, course })
    }

    /// The same where the middle of the model may be elsewhere, and without taking the change: the plan
    /// then says who trains what, and the scope is the client's part of it.
    pub(crate) fn train_cut(
        &self,
        params: &mut Params,
        task: &TrainTask<'_>,
        elsewhere: (Option<(&Plan, &mut ClientSegments<'_>)>, &Meter<'_>),
    ) -> Result<Course> {
        self.steps(params, task, elsewhere).map_err(|error| self.in_training(error, task))
    }

    /// The same error, with what a GPU was doing where it is one of a GPU.
    fn in_training(&self, error: ClientError, task: &TrainTask<'_>) -> ClientError {
        let ClientError::Model(ModelError::Compute(ComputeError::Device(source))) = error else {
            return error;
        };
        let layout = self.model.layout();
        let step = StepSize {
            sequences: task.examples.len().min(task.work.batch as usize),
            tokens: task.examples.iter().map(|example| example.ids.len()).max().unwrap_or(0),
            blocks: self.model.blocks(),
            parameters: layout.elements(),
            learning: task.scope.elements(layout),
            precision: match self.device {
                Device::Cuda(cuda) => cuda.precision(),
                Device::Cpu(_) | Device::Meta(_) => Precision::F32,
            },
        };
        let client = task.client.to_owned();
        ClientError::Device(Box::new(DeviceFailure { client, step, source }))
    }

    fn steps(
        &self,
        params: &mut Params,
        task: &TrainTask<'_>,
        (mut cut, meter): (Option<(&Plan, &mut ClientSegments<'_>)>, &Meter<'_>),
    ) -> Result<Course> {
        let nothing = |what| ClientError::nothing(task.client, what);
        if task.scope.is_empty() && cut.is_none() {
            return Err(nothing("parameter to train"));
        }
        if task.examples.is_empty() || task.work.batch == 0 {
            return Err(nothing("example to train on"));
        }
        let plan = Plan::new(self.model.layout(), task.scope.clone(), Cut::none())?;
        let prefix = if cut.is_none() { self.cache_for(&plan, task) } else { None };
        let preference = self.preference(task, cut.is_some())?;
        let mut memory = RoundMemory { prefix, preference };
        let mut optimiser = optimiser(self.device, task.work)?;
        if let Some(kept) = task.moments {
            moments::given_to(&mut optimiser, kept, (params, task.scope, self.device))?;
        }
        let mut gathered = match task.correction {
            Correction::Variates { .. } => Some(self.zeros(params, task.scope)?),
            Correction::Nothing | Correction::Proximal { .. } | Correction::Dynamic { .. } => None,
        };
        let correction = task.correction.placed(self.device, (params, task.scope))?;
        let accounted = cut.as_ref().is_some_and(|(_, ends)| ends.are_accounted());
        refuse_balance(task, accounted)?;
        let objective = Objective::of(task.work, task.labels, task.examples)?;
        let dropout = {
            let plan = cut.as_ref().map_or(&plan, |(whole, _)| *whole);
            RoundDropout::new(task.work, task.seed, plan)
        };

        let start = params.clone();
        let mut private = PrivateTraining::of(task, &objective, (&*params, dropout))?;
        let limit = task.work.steps(task.examples.len() as u64);
        let (mut steps, mut loss_sum, mut seen) = (0_u32, 0.0, 0_u64);
        let mut plain = order(task);
        loop {
            let mut gradients = if let Some(private) = &mut private {
                if u64::from(steps) == limit {
                    break;
                }
                meter.check()?;
                let mut gradients = private.gradients(self, params, task, &mut memory)?;
                steps += 1;
                if let Some(norm) = task.work.clip {
                    gradients.clip(norm);
                }
                gradients
            } else {
                let Some((epoch, chosen)) = plain.next() else { break };
                meter.check()?;
                let draws = task.seed.of("augment").with(epoch);
                // What has no label is left out, unless that would tell that it has none.
                let step =
                    Step::gather((self.model, task), (&objective, dropout), (&chosen, draws))?;
                let Some(step) = step.labelled(accounted) else {
                    meter.advance(1);
                    continue;
                };
                let number = steps;
                steps += 1;
                let (found, gradients) = if let Some((plan, ends)) = &mut cut {
                    step.cut((params, plan), ends, (number, task.work.clip))?
                } else {
                    let (found, gradients) =
                        self.whole_step(params, (task, number), &step, &mut memory)?;
                    (Some(found), gradients)
                };
                if let Some(found) = found.filter(|found| !found.is_finite()) {
                    let client = task.client.to_owned();
                    return Err(ClientError::NotFinite { client, step: steps, found });
                }
                if let Some(found) = found {
                    loss_sum += f64::from(found) * chosen.len() as f64;
                    seen += chosen.len() as u64;
                }
                gradients
            };
            if let Some(sum) = &mut gathered {
                add(sum, &gradients)?;
            }
            correction.apply(&mut gradients, (params, &start))?;
            let place = StepPlace { round: task.round, step: steps - 1, steps: limit };
            optimiser.schedule(task.work.schedule.factor(place))?;
            optimiser.step(params, &gradients)?;
            meter.advance(1);
        }
        if steps == 0 {
            return Err(nothing("labelled example to train on"));
        }
        let mean_gradient = gathered.map(|mut sum| {
            sum.iter_mut().for_each(|(_, sum)| sum.divide(steps as f32));
            to_values(&sum)
        });
        let (loss, noise) = match private {
            None => ((seen > 0).then(|| loss_sum / seen as f64), None),
            Some(private) => (None, Some(private.told())),
        };
        let moments = match task.work.moments {
            MomentsLife::Fresh => None,
            MomentsLife::Kept => Some(moments::taken_from(&optimiser)),
        };
        Ok(Course { mean_gradient, moments, steps, loss, noise })
    }

    /// A zero for every number of the scope.
    fn zeros(&self, params: &Params, scope: &Scope) -> Result<Params> {
        let zeros = |id| {
            let (rows, cols) = params.get(id)?.shape();
            Ok((id, Tensor::zeros(self.device, rows, cols)))
        };
        scope.iter().map(zeros).collect()
    }

    /// A cache, where it can save work: something is frozen in front, and examples come again.
    /// Images that change from one epoch to the next have no prefix to keep.
    fn cache_for(&self, plan: &Plan, task: &TrainTask<'_>) -> Option<PrefixCache> {
        let blocks = plan.frozen_prefix()?;
        let changes = |example: &Encoded| example.pixels.as_ref()?.augment();
        let is_fixed = task.examples.iter().find_map(changes).is_none();
        let worth = task.work.epochs > 1 && self.cache.0 > 0 && is_fixed;
        worth.then(|| PrefixCache::new(usize::from(blocks), self.cache.0 as usize))
    }

    /// How pairs of answers are learned, where the examples are pairs.
    fn preference(
        &self,
        task: &TrainTask<'_>,
        is_cut: bool,
    ) -> Result<Option<PreferenceObjective>> {
        let Some(loss) = task.work.preference else {
            let is_pair = |example: &Encoded| matches!(example.target, Target::Preference(_));
            if task.examples.iter().any(is_pair) {
                return Err(ClientError::targets(
                    "pairs of answers",
                    "work with a loss of preferences",
                ));
            }
            return Ok(None);
        };
        check_pairs(task.examples)?;
        if is_cut {
            let reason = "preferences: a cut model is not trained on pairs of answers, train it where it is whole";
            return Err(ClientError::peer(reason));
        }
        PreferenceObjective::new(self.model, loss).map(Some)
    }

    /// The loss of a step and its gradients, clipped; no gradients where the loss is no number.
    fn whole_step(
        &self,
        params: &Params,
        (task, number): (&TrainTask<'_>, u32),
        step: &Step<'_>,
        memory: &mut RoundMemory,
    ) -> Result<(f32, Gradients)> {
        let (mut loss_sum, mut sum) = (0.0, Gradients::default());
        for part in step.parts() {
            let drops = step.dropout.of(number, part.places.clone());
            let mut tape = Tape::new(self.device).with_dropout(drops);
            let targets = step.objective.part(part.question, step.divisor().targets);
            let asked = (part.question, targets, part.names);
            let loss = self.loss(&mut tape, (params, task.scope), asked, memory)?;
            let gradients = tape.backward(&[(&loss.value, Tensor::scalar(self.device, 1.0))])?;
            // Behind the backward pass: a GPU would wait for it to be asked while the loss is read.
            loss_sum += loss.item();
            if !loss_sum.is_finite() {
                return Ok((loss_sum, Gradients::default()));
            }
            sum.add(gradients)?;
        }
        if let Some(norm) = task.work.clip {
            sum.clip(norm);
        }
        Ok((loss_sum, sum))
    }
}

/// Refuses balanced class weights where noise hides single examples.
fn refuse_balance(task: &TrainTask<'_>, accounted: bool) -> Result<()> {
    let is_balanced = task.work.class_weights == Some(ClassWeights::Balanced);
    if !is_balanced || !(accounted || task.work.private.is_some()) {
        return Ok(());
    }
    let reason = "found balanced class weights, expected none or a table: the weight of an example would depend \
                  on the labels of others";
    Err(ClientError::privacy(format!("{}: {reason}", task.client)))
}

/// The examples of each step of all epochs, each with the number of its epoch, no more steps than the work
/// allows.
fn order(task: &TrainTask<'_>) -> impl Iterator<Item = (u64, Vec<usize>)> {
    let lengths: Vec<usize> = task.examples.iter().map(|example| example.ids.len()).collect();
    let (seed, size) = (task.seed.of("order"), task.work.step_batch() as usize);
    let limit = task.work.max_steps.map_or(usize::MAX, |steps| steps as usize);
    let epochs = 0..u64::from(task.work.epochs);
    let batches = move |number: u64| {
        let batches = epoch(&lengths, size, seed.with(number).0);
        batches.into_iter().map(move |batch| (number, batch))
    };
    epochs.flat_map(batches).take(limit)
}

/// Adds a step's gradients to those before it.
fn add(sum: &mut Params, gradients: &Gradients) -> Result<()> {
    for (id, sum) in sum.iter_mut() {
        if let Some(gradient) = gradients.get(id) {
            gradient.add_to(sum)?;
        }
    }
    Ok(())
}

/// What a part has become less what it was. Each parameter is let go once its difference is taken: nobody
/// needs what was learnt and its change in memory at once.
pub(crate) fn change_out_of(
    (mut now, start): (Params, &Params),
    part: &Scope,
    device: &Device,
) -> Result<ParamValues> {
    // Nor gradients and moments.
    device.rest();
    let taken = |id| {
        // In its place: a difference of its own would take the largest parameter's memory once more.
        now.get_mut(id)?.add_scaled(-1.0, start.get(id)?)?;
        let change = now.get(id)?.to_host().into_owned();
        drop(now.remove(id));
        device.rest();
        Ok((id, change))
    };
    part.iter().map(taken).collect()
}

/// The same as a payload, in which each difference is written once: nobody needs a change and its bytes in memory at
/// once either.
pub(crate) fn change_in_place(
    (mut now, start): (Params, &Params),
    (layout, header): (&Layout, &Header),
    part: &Scope,
    device: &Device,
) -> Result<Vec<u8>> {
    device.rest();
    encode_in_place((layout, header), part, |id, into| {
        let difference = now.get_mut(id)?;
        difference.add_scaled(-1.0, start.get(id)?)?;
        difference.copy_bytes_to(into)?;
        drop(now.remove(id));
        device.rest();
        Ok(())
    })
}
