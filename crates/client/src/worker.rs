//! One client's part in each step of the protocol: training, probing, attention, scoring.
//!
//! A worker only reads: the shared model as the client received it, the client's examples, the state
//! it has kept so far. What would change, the answer and the state to keep if the answer is taken,
//! comes back as a value, so a client that fails or is refused is as if it had never been asked.

use fedra_compute::{Device, Params, SecretKey};
use fedra_data::{Encoded, LabelSet, Task};
use fedra_engine::{
    Adaptation, AttentionRequest, ClientAttention, ClientInfo, ClientState, EvaluationRequest,
    Evidence, LocalRule, MomentsLife, OwnAnswers, ProbeRequest, Reply, RowPrivacy, Scored,
    SplitConfig, TrainRequest,
};
use fedra_model::Model;
use fedra_plan::{BlockScores, ByteCount, Digest, Layout, Plan, Round, Scope, Side};
use fedra_privacy::NoiseMultiplier;
use fedra_seed::Seed;
use fedra_wire::{Encoding, Expectation, Header, Kind, ParamValues, decode, encode_owned};

use crate::attention::{self, PATTERN_EXAMPLES};
use crate::convert::{copied, overwrite};
use crate::correction::Correction;
use crate::error::{ClientError, Result};
use crate::evaluator::Evaluator;
use crate::examples::sample;
use crate::heads::Dropped;
use crate::local_steps::{change_in_place, change_out_of};
use crate::meter::Meter;
use crate::prober::{Cut, Prober};
use crate::request_key::{Sources, sample_seed};
use crate::shards::Shard;
use crate::split::{ClientSegments, Connect, Purpose, RowNoise};
use crate::trainer::{TrainTask, Trainer};

/// Most that a client in training keeps of hidden states behind a frozen prefix.
pub const PREFIX_CACHE: ByteCount = ByteCount(256 << 20);

/// Tokens in a batch of an evaluation.
pub const EVALUATION_TOKENS: usize = 2048;

/// What an evaluation is to come back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Scores.
    Scores,
    /// Scores, and what was answered to each example.
    Answers,
}

/// One client and all that it works with, but for its state.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    pub info: &'a ClientInfo,
    pub shard: &'a Shard,
    /// What the examples ask, and the names of the answers.
    pub task: Task,
    pub labels: &'a LabelSet,
    /// The structure that the client trains; it may lack the upper blocks of the shared one.
    pub model: &'a Model,
    /// Of the shared model: what payloads are about.
    pub layout: &'a Layout,
    pub device: &'a Device,
    /// The shared model as it was received.
    pub shared: &'a Params,
    /// The way to the server's half, where the model is cut.
    pub connect: Option<&'a dyn Connect>,
    /// Where the noise of its rows at a cut starts; nobody else may know it.
    pub noise_seed: Seed,
    /// Where the draws of its private steps start; nobody else may know it.
    pub secret: &'a SecretKey,
    /// What its steps are counted on, and what tells it to stop.
    pub meter: &'a Meter<'a>,
}

impl Worker<'_> {
    /// Trains; the state is the client's new one.
    pub fn train(
        &self,
        state: &ClientState,
        request: &TrainRequest,
    ) -> Result<(Reply, ClientState)> {
        let begun = std::time::Instant::now();
        let mut params = self.params_of(state)?;
        let server = self.server_correction(request)?;
        let own = request.plan.trained_by(Side::Client);
        let kept = (request.work.moments == MomentsLife::Kept).then_some(&state.moments);
        let key = request.work.private.map(|_| {
            let input = self.sources(&params).of_training(request, kept);
            self.secret.of("examples").over(input.as_bytes())
        });
        let task = TrainTask {
            client: &self.info.name,
            examples: self.shard.train.encoded(),
            round: request.round,
            scope: &own,
            work: &request.work,
            labels: self.labels,
            moments: kept,
            correction: Correction::of(request.work.local, &state.correction, &server),
            seed: request.seed,
            key: key.as_ref(),
        };
        let dropped = Dropped::choose(
            request,
            (self.prober(), self.meter),
            self.shard.train.encoded(),
            &params,
        )?;
        let input = || self.sources(&params).of_training(request, kept);
        let way = (Purpose::Train(request.round), input);
        let mut ends = self.ends(request.split.as_deref(), &request.plan, way)?;
        let cut = ends.as_mut().map(|ends| (&request.plan, ends));
        let start = params.clone();
        let mut course = self.trainer().train_cut(&mut params, &task, (cut, self.meter))?;
        drop((ends, server));

        let header = Header {
            kind: Kind::Change,
            encoding: request.work.encoding,
            round: request.round,
            client: request.client,
            examples: self.info.examples,
            steps: course.steps,
            loss: course.loss.map(|loss| loss as f32),
        };
        let mut next = ClientState::empty(request.client);
        next.personal = state.personal.clone();
        next.moments = state.moments.clone();
        next.moments.absorb(course.moments.take().unwrap_or_default());
        next.personal.absorb(copied(&params, request.plan.keeps())?);
        next.attention = state.attention.clone();
        next.residual = state.residual.clone();
        let uploads = request.plan.uploads();
        let now = (params, &start);
        let is_plain = request.work.encoding == Encoding::F32
            && matches!(request.work.local, LocalRule::Plain | LocalRule::Proximal { .. })
            && dropped.is_none();
        let (payload, correction) = if is_plain {
            next.correction = state.correction.clone();
            // Nobody looks at the change before the server does, so it is written where it is to lie.
            let part = &own & &uploads;
            (change_in_place(now, (self.layout, &header), &part, self.device)?, None)
        } else {
            let mut change = change_out_of(now, &own, self.device)?;
            let mean = course.mean_gradient.take();
            let (own, change_of_own) = next_correction(request, state, (&change, mean));
            next.correction = own;
            let correction = change_of_own.filter(|_| request.correction.is_some()).map(|change| {
                let header = Header { kind: Kind::Variate, encoding: Encoding::F32, ..header };
                encode_owned(self.layout, &header, change, None)
            });
            change = change.into_iter().filter(|(id, _)| uploads.contains(*id)).collect();
            if let Some(dropped) = dropped {
                dropped.drop_from(&mut change, self.layout);
            }
            let residual = Some(&mut next.residual);
            (encode_owned(self.layout, &header, change, residual)?, correction.transpose()?)
        };
        let seconds = begun.elapsed().as_secs_f64();
        Ok((Reply { payload, correction, seconds, memory: None, noise: course.noise }, next))
    }

    /// Measures the blocks on a sample of the training examples.
    pub fn probe(&self, state: &ClientState, request: &ProbeRequest<'_>) -> Result<Evidence> {
        let params = self.params_of(state)?;
        // Under noise nobody else may know which examples are looked at: a sample that is drawn by their
        // number would otherwise be another one when one of them is missing.
        let seed = if request.noise.is_none() {
            request.seed
        } else {
            let input = self.sources(&params).of_probing(request, self.info.id);
            sample_seed(self.secret, &input)
        };
        let places = self.sampled(request.examples as usize, seed);
        let train = self.shard.train.encoded();
        let sample: Vec<Encoded> = places.iter().map(|&place| train[place].clone()).collect();
        let of_client = (self.info.name.as_str(), sample.as_slice());
        if let Some(noise) = request.noise {
            let scores = self.noised_scores(&params, request, (&sample, noise))?;
            return Ok(Evidence { client: self.info.id, scores });
        }
        let input = |_: &Plan| self.sources(&params).of_probing(request, self.info.id);
        let mut ends = self.ends_to_ask(request.split, (Purpose::Probe(request.round), input))?;
        let cut = ends.as_mut().map(|ends| Cut { places: &places, ends });
        let way = (cut, self.meter);
        let scores = self.prober().probe_counted(&params, request.probe, of_client, way)?;
        Ok(Evidence { client: self.info.id, scores })
    }

    /// What an answer is computed from, beside the client's examples.
    pub fn train_input(&self, state: &ClientState, request: &TrainRequest) -> Result<Digest> {
        let kept = (request.work.moments == MomentsLife::Kept).then_some(&state.moments);
        Ok(self.sources(&self.params_of(state)?).of_training(request, kept))
    }

    /// The same for a measurement of blocks.
    pub fn probe_input(&self, state: &ClientState, request: &ProbeRequest<'_>) -> Result<Digest> {
        Ok(self.sources(&self.params_of(state)?).of_probing(request, self.info.id))
    }

    /// The mean of scores that are from 0 to 1 in every example, under noise.
    fn noised_scores(
        &self,
        params: &Params,
        request: &ProbeRequest<'_>,
        (sample, noise): (&[Encoded], NoiseMultiplier),
    ) -> Result<BlockScores> {
        if !request.probe.is_bounded() || request.split.is_some() {
            let reason = "noise on scores is for attention in a model that is not cut";
            return Err(ClientError::privacy(reason));
        }
        let mut sums = vec![0.0_f32; self.model.blocks()];
        for example in sample {
            let of_client = (self.info.name.as_str(), std::slice::from_ref(example));
            let way = (None, self.meter);
            let scores = self.prober().probe_counted(params, request.probe, of_client, way)?;
            for (sum, score) in sums.iter_mut().zip(scores.as_slice()) {
                *sum += if score.is_nan() { 0.0 } else { score.clamp(0.0, 1.0) as f32 };
            }
        }
        let reach = (self.layout.blocks() as f64).sqrt();
        let input = self.sources(params).of_probing(request, self.info.id);
        let key = self.secret.of("scores").over(input.as_bytes());
        key.add_normal(&mut sums, 0, (noise.get() * reach) as f32);
        let mean = |sum: f32| f64::from(sum) / sample.len().max(1) as f64;
        Ok(BlockScores::new(request.probe, sums.into_iter().map(mean).collect())?)
    }

    /// Compares attention with what the client remembers of it; the state remembers it anew.
    pub fn compare_attention(
        &self,
        state: &ClientState,
        request: &AttentionRequest<'_>,
    ) -> Result<(ClientAttention, ClientState)> {
        self.meter.check()?;
        let params = self.params_of(state)?;
        let sample = self.sample(PATTERN_EXAMPLES, request.seed);
        let sample = (self.info.name.as_str(), sample.as_slice());
        let (moved, attention) =
            attention::compare((self.model, self.device), &params, sample, &state.attention)?;
        let next = ClientState { attention, ..state.clone() };
        Ok((ClientAttention { client: self.info.id, moved }, next))
    }

    /// Scores the model, with what is the client's own in its place; `None` without such examples.
    pub fn evaluate(
        &self,
        state: &ClientState,
        request: &EvaluationRequest<'_>,
    ) -> Result<Option<Scored>> {
        let scored = self.evaluate_for(state, request, Wanted::Scores)?;
        Ok(scored.map(|(scored, _)| scored))
    }

    /// The same, with its answers where they are asked for; never where the model is cut.
    pub fn evaluate_for(
        &self,
        state: &ClientState,
        request: &EvaluationRequest<'_>,
        wanted: Wanted,
    ) -> Result<Option<(Scored, Option<OwnAnswers>)>> {
        let Some(examples) = self.shard.of(request.on).filter(|examples| !examples.is_empty())
        else {
            return Ok(None);
        };
        let mut params = self.params_of(state)?;
        if let Some(adaptation) = request.adapt.filter(|_| !self.shard.train.is_empty()) {
            self.adapt(&mut params, adaptation, (request.round, request.seed))?;
        }
        let evaluator = Evaluator {
            model: self.model,
            device: self.device,
            task: self.task,
            labels: self.labels,
            tokens: EVALUATION_TOKENS,
        };
        let input = |plan: &Plan| self.sources(&params).of_scoring(request, (self.info.id, plan));
        let mut ends = self.ends_to_ask(request.split, (Purpose::Score(request.round), input))?;
        let id = Some(self.info.id);
        let scores = match (&mut ends, wanted) {
            (None, Wanted::Answers) => {
                let (scored, answers) = evaluator.answered(&params, (examples, id), self.meter)?;
                return Ok(Some((scored, Some(answers))));
            }
            (None, Wanted::Scores) => evaluator.score_counted(&params, examples, self.meter)?,
            (Some(ends), _) => evaluator.score_cut(&params, examples, (ends, self.meter))?,
        };
        Ok(Some((scores.scored(id), None)))
    }

    /// Trains a throw-away copy before it is scored.
    fn adapt(
        &self,
        params: &mut Params,
        adaptation: &Adaptation,
        (round, seed): (Round, Seed),
    ) -> Result<()> {
        let correction = match adaptation.work.local {
            LocalRule::Proximal { mu } => Correction::Proximal { mu },
            // A throw-away copy has no rounds behind it to be corrected by.
            LocalRule::Plain | LocalRule::ControlVariate | LocalRule::Dynamic { .. } => {
                Correction::Nothing
            }
        };
        let task = TrainTask {
            client: &self.info.name,
            examples: self.shard.train.encoded(),
            round,
            scope: &adaptation.learns,
            work: &adaptation.work,
            labels: self.labels,
            moments: None,
            correction,
            seed: seed.with(u64::from(self.info.id.0)),
            key: None,
        };
        let meter = self.meter.uncounted();
        self.trainer().train_cut(params, &task, (None, &meter)).map(drop)
    }

    /// The shared model with what is the client's own in its place. Copies nothing else.
    fn params_of(&self, state: &ClientState) -> Result<Params> {
        let mut params = self.shared.clone();
        overwrite(&mut params, &state.personal)?;
        Ok(params)
    }

    /// The client's ends where nothing trains; `None` where the model is not cut.
    fn ends_to_ask(
        &self,
        split: Option<&SplitConfig>,
        (purpose, input): (Purpose, impl FnOnce(&Plan) -> Digest),
    ) -> Result<Option<ClientSegments<'_>>> {
        let Some(split) = split else { return Ok(None) };
        let (Purpose::Train(round) | Purpose::Score(round) | Purpose::Probe(round)) = purpose;
        let cut = split.cut(&self.info.name, round, self.layout.blocks())?;
        let plan = Plan::new(self.layout, Scope::empty(), cut)?;
        self.ends(Some(split), &plan, (purpose, || input(&plan)))
    }

    /// The client's ends of a cut model, connected to its middle; `None` where it is not cut. Noise that is
    /// accounted needs to know what the first rows are computed from.
    fn ends(
        &self,
        split: Option<&SplitConfig>,
        plan: &Plan,
        (purpose, input): (Purpose, impl FnOnce() -> Digest),
    ) -> Result<Option<ClientSegments<'_>>> {
        let (Some(split), Some(_)) = (split, plan.cut().server_blocks()) else { return Ok(None) };
        let Some(connect) = self.connect else {
            let reason = "the model is cut and there is no way to the server's half";
            return Err(ClientError::peer(reason));
        };
        let peer = connect.connect(self.info.id, purpose)?;
        let of_round = |round: Round| Seed(u64::from(round.0));
        // Training and probing look at the same examples, whose one draw they share where noise has one.
        let (noise, occasion) = match purpose {
            Purpose::Train(round) => ("train", of_round(round)),
            Purpose::Probe(round) => ("train", of_round(round).of("probe")),
            Purpose::Score(round) => ("score", of_round(round)),
        };
        if let RowPrivacy::Accounted { longest } = split.privacy {
            self.check_longest(longest)?;
        }
        let key = || self.secret.of("rows").over(input().as_bytes());
        let noise = RowNoise::of(split, self.noise_seed.of(noise), key)?;
        Ok(ClientSegments::new((self.model, self.device), (split, plan), (occasion, noise), peer))
    }

    /// Refuses examples with more tokens than a ledger counts for one.
    fn check_longest(&self, longest: u32) -> Result<()> {
        let own = self.shard.train.longest();
        if own <= longest as usize {
            return Ok(());
        }
        Err(ClientError::privacy(format!(
            "an example of {own} tokens, expected at most {longest}, which are accounted at the cut"
        )))
    }

    /// What its answers are computed from, with these parameters.
    fn sources<'p>(&'p self, params: &'p Params) -> Sources<'p> {
        Sources { secret: self.secret, shard: self.shard, params }
    }

    fn trainer(&self) -> Trainer<'_> {
        Trainer { model: self.model, device: self.device, cache: PREFIX_CACHE }
    }

    fn prober(&self) -> Prober<'_> {
        Prober { model: self.model, device: self.device, labels: self.labels }
    }

    fn sample(&self, most: usize, seed: Seed) -> Vec<Encoded> {
        let train = self.shard.train.encoded();
        self.sampled(most, seed).into_iter().map(|place| train[place].clone()).collect()
    }

    fn sampled(&self, most: usize, seed: Seed) -> Vec<usize> {
        sample(self.shard.train.len(), most, seed.with(u64::from(self.info.id.0)))
    }

    fn server_correction(&self, request: &TrainRequest) -> Result<ParamValues> {
        let Some(bytes) = &request.correction else { return Ok(ParamValues::new()) };
        let header = Header::download(Kind::Variate, Encoding::F32, request.round);
        let uploads = request.plan.uploads();
        let expected =
            Expectation { scope: Some(&uploads), ..Expectation::of(self.layout, &header) };
        Ok(decode(bytes, &expected)?.1)
    }
}

/// The correction of the rounds to come, and for SCAFFOLD how it changed.
///
/// What did not train keeps the correction it had. What is personal drifts nowhere from anybody, so
/// it has no variate.
fn next_correction(
    request: &TrainRequest,
    state: &ClientState,
    (change, mean_gradient): (&ParamValues, Option<ParamValues>),
) -> (ParamValues, Option<ParamValues>) {
    match request.work.local {
        LocalRule::Plain | LocalRule::Proximal { .. } => (state.correction.clone(), None),
        LocalRule::Dynamic { alpha } => {
            let mut next = state.correction.clone();
            next.add_scaled(-alpha, change);
            (next, None)
        }
        LocalRule::ControlVariate => {
            let uploads = request.plan.uploads();
            let mean = mean_gradient.unwrap_or_default();
            let mean: ParamValues =
                mean.into_iter().filter(|(id, _)| uploads.contains(*id)).collect();
            let mut change = mean.clone();
            change.subtract(&state.correction);
            let others = state.correction.iter().filter(|(id, _)| mean.get(*id).is_none());
            let mut next: ParamValues = others.map(|(id, own)| (id, own.to_vec())).collect();
            next.absorb(mean);
            (next, Some(change))
        }
    }
}
