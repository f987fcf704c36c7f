//! Local training of one part of a model on one client's examples.
//!
//! What learns is a [`Scope`]; everything else is shared with whoever lent the parameters and is
//! never written, so it stays identical to the bit. When the scope leaves a frozen prefix and the
//! examples are seen more than once, the hidden states behind the prefix are kept, which changes
//! the time and no number.

use fedra_compute::{Device, Optimiser, Params, SecretKey, Tape, Value};
use fedra_data::{Encoded, LabelSet};
use fedra_engine::{Damped, OptimiserState, StepNoise, Work};
use fedra_model::{Model, PrefixCache, Reading, Weighted};
use fedra_plan::{ByteCount, Round, Scope};
use fedra_seed::Seed;
use fedra_wire::ParamValues;

use crate::correction::Correction;
use crate::error::Result;
use crate::labelled_batch::LabelledBatch;
use crate::preference::PreferenceObjective;

/// Trains any client of a model.
#[derive(Clone, Copy, Debug)]
pub struct Trainer<'a> {
    /// The structure.
    pub model: &'a Model,
    /// Who computes.
    pub device: &'a Device,
    /// Most that hidden states behind a frozen prefix may take; zero keeps none.
    pub cache: ByteCount,
}

/// What one client learns in one round.
#[derive(Clone, Copy, Debug)]
pub struct TrainTask<'a> {
    /// Whose name an error carries.
    pub client: &'a str,
    /// What is learnt from.
    pub examples: &'a [Encoded],
    /// The round, which says where in a schedule of the rate its steps are.
    pub round: Round,
    /// What learns.
    pub scope: &'a Scope,
    /// How long, in what steps and by which solver. Its local rule is not looked at here: the
    /// correction carries it out.
    pub work: &'a Work,
    /// The names of the answers, for weights of classes.
    pub labels: &'a LabelSet,
    /// What the optimiser remembers of the client's earlier rounds; it begins with nothing unless given.
    pub moments: Option<&'a OptimiserState>,
    /// What the local rule adds to gradients.
    pub correction: Correction<&'a ParamValues>,
    /// Where the order of examples comes from.
    pub seed: Seed,
    /// Where the draws of private steps come from; only for work that has some.
    pub key: Option<&'a SecretKey>,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainResult {
    /// The change of every parameter in the scope.
    pub change: ParamValues,
    /// What was seen on the way.
    pub course: Course,
}

/// What was seen in training.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The mean over steps of the gradient before its correction, for every parameter in the scope;
    /// only gathered for [`Correction::Variates`], whose next variate it is.
    pub mean_gradient: Option<ParamValues>,
    /// What the optimiser remembers of the scope at the end, where the work has it kept.
    pub moments: Option<OptimiserState>,
    /// Steps taken.
    pub steps: u32,
    /// Mean loss over the examples as they were seen; absent where steps are private, because it is what
    /// the examples say.
    pub loss: Option<f64>,
    /// Signal and noise of private steps.
    pub noise: Option<StepNoise>,
}

/// What a client's steps keep of what does not change during a round.
#[derive(Default)]
pub(crate) struct RoundMemory {
    /// Hidden states behind a frozen prefix.
    pub prefix: Option<PrefixCache>,
    /// How pairs of answers are judged, and what the reference said to them.
    pub preference: Option<PreferenceObjective>,
}

/// The loss of a batch.
pub(crate) struct BatchLoss {
    /// What has its gradient.
    pub value: Value,
    /// The number, where that is not the value's own.
    told: Option<f64>,
}

impl BatchLoss {
    /// The number.
    pub fn item(&self) -> f32 {
        self.told.map_or_else(|| self.value.tensor.item(), |told| told as f32)
    }
}

impl Trainer<'_> {
    /// The loss of a batch, from where the cache ends if there is one.
    pub(crate) fn loss(
        &self,
        tape: &mut Tape,
        (params, scope): (&Params, &Scope),
        (question, targets, names): (&LabelledBatch, Weighted<'_>, &[u64]),
        memory: &mut RoundMemory,
    ) -> Result<BatchLoss> {
        let (model, batch, weights) = (self.model, &question.batch, params.training(scope));
        let start = match &mut memory.prefix {
            None => (model.embed(tape, weights, batch)?, 0),
            Some(prefix) => {
                let names = question.names(names);
                (prefix.hidden(tape, (model, params), batch, &names)?, prefix.blocks())
            }
        };
        let Some(preference) = &mut memory.preference else {
            let value = model.loss_from(tape, weights, start, batch, targets)?;
            return Ok(BatchLoss { value, told: None });
        };
        let ((hidden, first), divisor) = (start, targets.weights.divisor);
        let range = first..model.blocks();
        let packing = batch.packing();
        let hidden = model.run_blocks(tape, weights, hidden, packing, range, &Reading::All)?;
        let given = (model, self.device, params);
        let judged = preference.judge(given, (question, names), &hidden.tensor)?;
        let asked = (question, judged.as_slice());
        let value = preference.slope((tape, model), weights, asked, (&hidden, divisor))?;
        let sum: f64 = judged.iter().map(|pair| pair.loss).sum();
        Ok(BatchLoss { value, told: Some(sum / divisor) })
    }
}

/// The optimiser of a round, before its first step.
pub(crate) fn optimiser(device: &Device, work: &Work) -> Result<Optimiser> {
    let mut optimiser = Optimiser::new(device, work.solver)?;
    if let Some(Damped { part, factor }) = &work.damped {
        optimiser.damp(part.clone(), *factor)?;
    }
    Ok(optimiser)
}
