//! One client's round, from the order to the encoded answer.
//!
//! A worker only reads: the shared model, the client's examples, the state it has kept so far. What
//! would change, the answer and the state to keep if the answer is taken, comes back as a value, so
//! a client that fails or is refused is as if it had never been asked.

use fedra_compute::{Device, Params};
use fedra_data::LabelSet;
use fedra_engine::{ClientInfo, ClientState, LocalRule, Reply, TrainRequest};
use fedra_model::Model;
use fedra_plan::{ByteCount, Layout};
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, ParamValues, decode, encode};

use crate::convert::{copied, overwrite};
use crate::correction::Correction;
use crate::error::Result;
use crate::examples::Examples;
use crate::heads::Dropped;
use crate::prober::Prober;
use crate::trainer::{TrainResult, TrainTask, Trainer};

/// What every client of a fleet has in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker<'a> {
    /// The structure that the client trains; it may lack the upper blocks of the shared one.
    pub model: &'a Model,
    /// Of the shared model: what payloads are about.
    pub layout: &'a Layout,
    pub device: &'a Device,
    /// The shared model with this round's downloads written on it.
    pub shared: &'a Params,
    pub cache: ByteCount,
    pub labels: &'a LabelSet,
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientContext<'a> {
    pub info: &'a ClientInfo,
    pub train: &'a Examples,
    pub state: &'a ClientState,
}

impl Worker<'_> {
    /// Carries out an order; the state is the client's new one.
    pub fn carry_out(
        &self,
        context: ClientContext<'_>,
        order: &TrainRequest,
    ) -> Result<(Reply, ClientState)> {
        let begun = std::time::Instant::now();
        let mut params = self.params_of(context.state)?;
        let server = self.server_variate(order)?;
        let task = TrainTask {
            client: &context.info.name,
            examples: context.train.encoded(),
            scope: order.plan.learns(),
            work: &order.work,
            correction: correction(order.work.local, &context.state.correction, &server),
            seed: order.seed,
        };
        let trainer = Trainer { model: self.model, device: self.device, cache: self.cache };
        let prober = Prober { model: self.model, device: self.device, labels: self.labels };
        let dropped = Dropped::choose(order, prober, context.train.encoded(), &params)?;
        let learnt = trainer.train(&mut params, &task)?;

        let header = Header {
            kind: Kind::Change,
            encoding: order.work.encoding,
            round: order.round,
            client: order.client,
            examples: context.info.examples,
            steps: learnt.steps,
            loss: learnt.loss as f32,
        };
        let mut state = ClientState::empty(order.client);
        state.personal = context.state.personal.clone();
        state.personal.absorb(copied(&params, order.plan.keeps())?);
        let (next, variate) = next_correction(order, context.state, &learnt);
        state.correction = next;
        let correction = match variate.filter(|_| order.correction.is_some()) {
            None => None,
            Some(change) => {
                let header = Header { kind: Kind::Variate, encoding: Encoding::F32, ..header };
                Some(encode(self.layout, &header, &change, None)?)
            }
        };

        let uploads = order.uploads();
        let sent = |(id, _): &(_, Vec<f32>)| uploads.contains(*id);
        let mut change: ParamValues = learnt.change.into_iter().filter(sent).collect();
        if let Some(dropped) = dropped {
            dropped.drop_from(&mut change, self.layout);
        }
        state.attention = context.state.attention.clone();
        state.residual = context.state.residual.clone();
        let payload = encode(self.layout, &header, &change, Some(&mut state.residual))?;
        Ok((Reply { payload, correction, seconds: begun.elapsed().as_secs_f64() }, state))
    }

    /// The shared model with what is the client's own in its place. Copies nothing else.
    pub fn params_of(&self, state: &ClientState) -> Result<Params> {
        let mut params = self.shared.clone();
        overwrite(&mut params, &state.personal)?;
        Ok(params)
    }

    fn server_variate(&self, order: &TrainRequest) -> Result<ParamValues> {
        let Some(bytes) = &order.correction else { return Ok(ParamValues::new()) };
        let expected = Expectation {
            layout: self.layout,
            kind: Kind::Variate,
            encoding: Encoding::F32,
            round: order.round,
            client: ClientId::SERVER,
            scope: Some(&order.uploads()),
        };
        Ok(decode(bytes, &expected)?.1)
    }
}

fn correction<'a>(
    rule: LocalRule,
    own: &'a ParamValues,
    server: &'a ParamValues,
) -> Correction<'a> {
    match rule {
        LocalRule::Plain => Correction::Nothing,
        LocalRule::Proximal { mu } => Correction::Proximal { mu },
        LocalRule::Scaffold => Correction::Variates { own, server },
        LocalRule::Dynamic { alpha } => Correction::Dynamic { alpha, memory: own },
    }
}

/// The correction of the rounds to come, and for SCAFFOLD how it changed.
///
/// What did not train keeps the correction it had. What is personal drifts nowhere from anybody, so
/// it has no variate.
fn next_correction(
    order: &TrainRequest,
    state: &ClientState,
    learnt: &TrainResult,
) -> (ParamValues, Option<ParamValues>) {
    let mut next = state.correction.clone();
    match order.work.local {
        LocalRule::Plain | LocalRule::Proximal { .. } => (next, None),
        LocalRule::Dynamic { alpha } => {
            for (id, change) in learnt.change.iter() {
                let memory = next.or_zeros(id, change.len());
                for (memory, change) in memory.iter_mut().zip(change) {
                    *memory -= alpha * change;
                }
            }
            (next, None)
        }
        LocalRule::Scaffold => {
            let uploads = order.uploads();
            let mean = learnt.mean_gradient.as_ref().map(|mean| mean.subset(&uploads));
            let mean = mean.unwrap_or_default();
            let mut change = mean.clone();
            for (id, change) in change.iter_mut() {
                for (change, own) in change.iter_mut().zip(next.get(id).unwrap_or_default()) {
                    *change -= own;
                }
            }
            next.absorb(mean);
            (next, Some(change))
        }
    }
}
