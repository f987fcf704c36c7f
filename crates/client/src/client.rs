//! One client on its own: its rows, its copy of the shared model, its state, and nobody else's.
//!
//! This is what runs at a site. It takes the same requests as a fleet and gives the same answers to
//! the bit, one at a time; whoever carries requests and answers over a network adds nothing to them.

use std::sync::Arc;

use fedra_compute::{Device, Params};
use fedra_data::{LabelSet, Task};
use fedra_engine::{
    Activity, AttentionRequest, ClientAttention, ClientInfo, ClientState, EndsLearn,
    EvaluationRequest, Evidence, ProbeRequest, Reply, Scored, TrainRequest, Verdict,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, Layout, Round, Scope};
use fedra_seed::{SecretKey, Seed};
use fedra_wire::{ClientId, Encoding};

use crate::convert::{of_rank, receive};
use crate::error::Result;
use crate::guard::{OwnRows, PrivacyGuard};
use crate::labelled_batch::check_head;
use crate::meter::{Meter, Observer, Silent};
use crate::shards::Shard;
use crate::split::Connect;
use crate::worker::Worker;

/// A client and all that it holds.
#[derive(Clone)]
pub struct Client {
    /// Who it is.
    pub info: ClientInfo,
    /// Its examples.
    pub shard: Shard,
    task: Task,
    labels: LabelSet,
    /// The structure of its model.
    pub model: Model,
    /// The layout of the shared model.
    pub layout: Layout,
    device: Device,
    /// Its copy of the shared model.
    pub shared: Params,
    /// The way to the server's half of a cut model.
    pub connect: Option<Arc<dyn Connect>>,
    /// Where its noise starts. At a real site nobody else may know it, or they could subtract the noise.
    pub noise_seed: Seed,
    /// Where its private draws start. At a real site nobody else may know it: without such a key the draws are
    /// a simulation's, and hide nothing.
    pub secret: SecretKey,
    /// Its guarantee, and what it released, where it keeps count itself.
    pub guard: Option<PrivacyGuard>,
    /// Who is told of its work, and says when to stop.
    pub observer: Arc<dyn Observer>,
    /// What it keeps.
    pub state: ClientState,
    /// The state before the first answer that may be revoked.
    before: Option<ClientState>,
    /// The state of an answer of which nobody has said yet whether it is taken.
    pending: Option<(ClientState, bool)>,
}

impl Client {
    /// The same with the parameters that live with it: the rest of a cut model is at the server.
    pub fn new(
        id: ClientId,
        shard: Shard,
        (task, labels): (Task, LabelSet),
        (model, shared): (Model, Params),
        device: Device,
    ) -> Result<Self> {
        check_head(&model, task, &labels)?;
        let examples = shard.train.len() as u64;
        Ok(Self {
            info: ClientInfo { id, name: shard.name.clone(), examples },
            shard,
            task,
            labels,
            layout: model.layout().clone(),
            model,
            device,
            shared,
            connect: None,
            noise_seed: Seed(u64::from(id.0)).of("noise"),
            secret: SecretKey::simulated(Seed(0)).with(u64::from(id.0)),
            guard: None,
            observer: Arc::new(Silent),
            state: ClientState::empty(id),
            before: None,
            pending: None,
        })
    }

    /// The same client, which has only this many of the blocks.
    pub fn with_depth(mut self, blocks: u16) -> Result<Self> {
        self.model = self.model.shallow(usize::from(blocks))?;
        Ok(self)
    }

    /// The same client, whose adapters have only this rank.
    pub fn with_rank(mut self, rank: u16) -> Result<Self> {
        let own = self.layout.with_rank(usize::from(rank));
        self.shared = of_rank(&self.shared, (&self.layout, &own), &self.device)?;
        self.model = self.model.with_rank(usize::from(rank))?;
        self.layout = own;
        Ok(self)
    }

    /// The same client, which holds only this part of the model: the rest lives at the server.
    #[must_use]
    pub fn holding(mut self, part: &Scope) -> Self {
        let absent: Vec<_> = self.layout.ids().filter(|id| !part.contains(*id)).collect();
        for id in absent {
            self.shared.remove(id);
        }
        self
    }

    /// What it would keep if its last answer were taken; `None` when nothing waits for a verdict.
    pub fn pending(&self) -> Option<&ClientState> {
        self.pending.as_ref().map(|(state, _)| state)
    }

    /// Makes it keep this and nothing else: no answer before it waits or can be revoked.
    pub fn set_state(&mut self, state: ClientState) {
        (self.state, self.before, self.pending) = (state, None, None);
    }

    /// Writes a download on its copy of the shared model. Nothing before it can be revoked any more.
    pub fn sync(&mut self, (round, encoding, payload): (Round, Encoding, &[u8])) -> Result<()> {
        (self.before, self.pending) = (None, None);
        receive(&mut self.shared, &self.layout, (round, encoding, payload))
    }

    /// Measures the blocks.
    pub fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Evidence> {
        if let Some(mut guard) = self.guard.take() {
            let blocks = self.layout.blocks();
            let meter = Meter::unwatched();
            let input = self.worker(&meter).probe_input(&self.state, request);
            let counted = input.and_then(|input| {
                guard.probe(request, (&self.info.name, self.info.examples, input), blocks)
            });
            self.guard = Some(guard);
            counted?;
        }
        let examples = u64::from(request.examples).min(self.info.examples);
        let meter = self.meter(Activity::Probing, examples);
        let evidence = self.worker(&meter).probe(&self.state, request);
        meter.client_done();
        evidence
    }

    /// Compares attention with what it remembers of it, and remembers it anew.
    pub fn compare_attention(&mut self, request: &AttentionRequest<'_>) -> Result<ClientAttention> {
        if self.guard.is_some() {
            return Err(PrivacyGuard::attention());
        }
        let meter = self.meter(Activity::Probing, 0);
        let (answer, next) = self.worker(&meter).compare_attention(&self.state, request)?;
        meter.client_done();
        self.keep(next, request.revocable);
        Ok(answer)
    }

    /// Trains. What it keeps does not change before it is [settled](Client::settle).
    pub fn train(&mut self, request: &TrainRequest) -> Result<Reply> {
        if let Some(mut guard) = self.guard.take() {
            let own = (self.info.name.as_str(), self.info.examples);
            let counted = match request.split.as_deref() {
                Some(split) => guard.train_cut((request, split), own, self.own_rows()),
                None => self
                    .worker(&Meter::unwatched())
                    .train_input(&self.state, request)
                    .and_then(|input| guard.train(request, (own.0, own.1, input))),
            };
            self.guard = Some(guard);
            counted?;
        }
        let meter = self.meter(Activity::Training, request.work.steps(self.info.examples));
        self.observer.started(&self.info, request.round);
        let trained = self.worker(&meter).train(&self.state, request);
        meter.client_done();
        let (reply, next) = trained?;
        let memory = Some(ByteCount(self.device.usage().peak_bytes as u64));
        let reply = Reply { memory, ..reply };
        self.pending = Some((next, request.revocable));
        Ok(reply)
    }

    /// Hears what became of its answer.
    pub fn settle(&mut self, verdict: Verdict) {
        match (verdict, self.pending.take()) {
            (Verdict::Taken, Some((next, revocable))) => self.keep(next, revocable),
            (Verdict::Taken, None) | (Verdict::Refused, _) => {}
        }
    }

    /// Scores the model; `None` without such examples.
    pub fn evaluate(&self, request: &EvaluationRequest<'_>) -> Result<Option<Scored>> {
        if let Some(guard) = &self.guard {
            guard.evaluate(request, self.own_rows())?;
        }
        let examples = self.shard.of(request.on).map_or(0, |examples| examples.len() as u64);
        let meter = self.meter(Activity::Evaluating, examples);
        let scored = self.worker(&meter).evaluate(&self.state, request);
        meter.client_done();
        scored
    }

    /// Forgets corrections and residuals of a part.
    pub fn forget(&mut self, part: &Scope) {
        self.before = None;
        self.state.forget(part);
    }

    /// Goes back to what it kept before its last answers that may be revoked.
    pub fn revoke(&mut self) {
        if let Some(before) = self.before.take() {
            self.state = before;
        }
    }

    /// What its rows at a cut depend on; ends of its own are ends that learned.
    fn own_rows(&self) -> OwnRows {
        let ends = if self.state.personal.is_empty() { EndsLearn::No } else { EndsLearn::Yes };
        OwnRows { longest: self.shard.train.longest(), ends }
    }

    fn keep(&mut self, next: ClientState, revocable: bool) {
        let before = std::mem::replace(&mut self.state, next);
        if revocable && self.before.is_none() {
            self.before = Some(before);
        }
    }

    /// Counts the work of this one client.
    fn meter(&self, activity: Activity, steps: u64) -> Meter<'_> {
        Meter::new(&*self.observer, activity, (1, steps))
    }

    fn worker<'a>(&'a self, meter: &'a Meter<'a>) -> Worker<'a> {
        Worker {
            info: &self.info,
            shard: &self.shard,
            task: self.task,
            labels: &self.labels,
            model: &self.model,
            layout: &self.layout,
            device: &self.device,
            shared: &self.shared,
            connect: self.connect.as_deref(),
            noise_seed: self.noise_seed,
            secret: &self.secret,
            meter,
        }
    }
}
