//! A whole federation in one process: one shared model, many clients, a few threads.
//!
//! There is one copy of the shared model; a client in training copies what it trains and nothing
//! else, and gives it back with its answer. Clients run side by side and their answers are handed
//! over in client order, so the number of threads shows in the time and in no bit of the result.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fedra_compute::{Device, Params};
use fedra_engine::{
    Adaptation, Arrival, AttentionRequest, ClientAttention, ClientInfo, ClientState, EngineError,
    EvaluationRequest, EvaluationSet, Evidence, Fleet, LocalRule, Outcome, ProbeRequest, Scored,
    StateHandle, StateStore, TrainRequest, Verdict,
};
use fedra_model::Model;
use fedra_plan::ByteCount;
use fedra_seed::Seed;
use fedra_wire::{ClientId, Expectation, Kind, ParamValues, open};

use crate::attention::{AttentionComparison, PATTERN_EXAMPLES};
use crate::convert::{check, overwrite, to_params};
use crate::correction::Correction;
use crate::error::{ClientError, Result};
use crate::evaluator::Evaluator;
use crate::examples::Examples;
use crate::labelled_batch::check_head;
use crate::observer::{Observer, Silent};
use crate::ordered_jobs::in_order;
use crate::prober::Prober;
use crate::sample::sample;
use crate::scores::Scores;
use crate::shards::{Shard, Shards};
use crate::trainer::{TrainTask, Trainer};
use crate::worker::{ClientContext, Worker};

/// Clients as threads of this process, as many at a time as the current thread pool has threads.
pub struct LocalFleet {
    model: Model,
    /// The structures of clients that lack the upper blocks, by their place.
    shallow: BTreeMap<usize, Model>,
    device: Device,
    shared: Params,
    shards: Shards,
    infos: Vec<ClientInfo>,
    /// What they keep between rounds; those at work hold a copy, the others nothing.
    state_store: StateStore,
    limits: Limits,
    observer: Arc<dyn Observer>,
}

/// How much memory and time the work around training may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most that a client in training keeps of hidden states behind a frozen prefix.
    pub cache: ByteCount,
    /// Tokens in a batch of an evaluation.
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cache: ByteCount(256 << 20), tokens: 2048 }
    }
}

impl LocalFleet {
    /// Clients that hold these shards and all start from these parameters.
    pub fn new(model: Model, shared: Params, device: Device, shards: Shards) -> Result<Self> {
        check(&shared, model.layout())?;
        check_head(&model, shards.task, &shards.labels)?;
        let infos: Vec<ClientInfo> = (0..)
            .zip(&shards.clients)
            .map(|(number, shard)| ClientInfo {
                id: ClientId(number),
                name: shard.name.clone(),
                examples: shard.train.len() as u64,
            })
            .collect();
        let (limits, observer) = (Limits::default(), Arc::new(Silent));
        let (shallow, state_store) = (BTreeMap::new(), StateStore::in_memory());
        Ok(Self { model, shallow, device, shared, shards, infos, state_store, limits, observer })
    }

    /// The same fleet within other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same fleet before its first round, whose clients keep their states there.
    pub fn with_store(self, state_store: StateStore) -> Self {
        Self { state_store, ..self }
    }

    /// The same fleet, in which some clients, by name, have only so many of the blocks.
    pub fn with_depths(mut self, depths: &BTreeMap<String, u16>) -> Result<Self> {
        for (place, info) in self.infos.iter().enumerate() {
            if let Some(depth) = depths.get(&info.name) {
                self.shallow.insert(place, self.model.shallow(usize::from(*depth))?);
            }
        }
        Ok(self)
    }

    /// The same fleet, watched.
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The structure that all clients train.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The data of all clients.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The shared model as the clients hold it.
    pub fn shared(&self) -> &Params {
        &self.shared
    }

    /// Scores parameters of this model on any examples.
    pub fn score(&self, params: &Params, examples: &Examples) -> Result<Scores> {
        self.score_with(&self.model, params, examples)
    }

    fn score_with(&self, model: &Model, params: &Params, examples: &Examples) -> Result<Scores> {
        let evaluator = Evaluator {
            model,
            device: &self.device,
            task: self.shards.task,
            labels: &self.shards.labels,
            tokens: self.limits.tokens,
        };
        evaluator.score(params, examples)
    }

    /// The structure that a client trains.
    fn model_of(&self, place: usize) -> &Model {
        self.shallow.get(&place).unwrap_or(&self.model)
    }

    fn worker<'a>(&'a self, place: usize, shared: &'a Params) -> Worker<'a> {
        Worker {
            model: self.model_of(place),
            layout: self.model.layout(),
            device: &self.device,
            shared,
            cache: self.limits.cache,
            labels: &self.shards.labels,
        }
    }

    fn place(&self, client: ClientId) -> Result<usize, EngineError> {
        let place = client.0 as usize;
        if place < self.infos.len() {
            return Ok(place);
        }
        let reason = format!("client {client} is unknown: there are {}", self.infos.len());
        Err(EngineError::Fleet { doing: "find a client", reason })
    }

    /// Writes the downloads of a round on the shared model; for each order, what went wrong.
    ///
    /// Clients that lack the same share one payload, which is read once.
    fn download(&mut self, orders: &[TrainRequest]) -> Vec<Option<String>> {
        let mut read: BTreeMap<*const u8, Option<String>> = BTreeMap::new();
        let mut failures = Vec::with_capacity(orders.len());
        for order in orders {
            let failure = read.entry(order.payload.as_ptr()).or_insert_with(|| {
                let expected = Expectation {
                    layout: self.model.layout(),
                    kind: Kind::Values,
                    encoding: order.work.download,
                    round: order.round,
                    client: ClientId::SERVER,
                    scope: None,
                };
                let written = open(&order.payload, &expected)
                    .map_err(ClientError::from)
                    .and_then(|opened| overwrite(&mut self.shared, &opened.tensors()));
                written.err().map(|error| error.to_string())
            });
            failures.push(failure.clone());
        }
        failures
    }

    /// One client's order, from start to arrival, and the state to keep if it is taken. A client
    /// may fail; that its state cannot be read is no failure of the client's.
    fn carry_out(
        &self,
        order: &TrainRequest,
        failed: Option<&String>,
    ) -> Result<(Arrival, Option<ClientState>), EngineError> {
        let place = order.client.0 as usize;
        let (info, shard) = (&self.infos[place], &self.shards.clients[place]);
        self.observer.started(info, order.round);
        let state = self.state_store.state_of(order.client)?;
        let context = ClientContext { info, train: &shard.train, state: &state };
        let outcome = match failed {
            Some(reason) => Err(reason.clone()),
            None => self
                .worker(place, &self.shared)
                .carry_out(context, order)
                .map_err(|error| error.to_string()),
        };
        let (outcome, next) = match outcome {
            Ok((reply, next)) => (Outcome::Finished(reply), Some(next)),
            Err(reason) => (Outcome::Failed(reason), None),
        };
        let arrival = Arrival { client: order.client, outcome };
        self.observer.finished(info, order.round, &arrival);
        Ok((arrival, next))
    }

    /// One client's score of the global model with what is its own in place.
    fn examine(
        &self,
        global: &Params,
        (place, on): (usize, Part),
        by: &EvaluationRequest<'_>,
    ) -> Result<Scored, EngineError> {
        let state = self.state_store.own_of(self.infos[place].id)?;
        self.examine_with(&state, global, (place, on), by)
            .map_err(|error| failure("evaluate the model", &error))
    }

    fn examine_with(
        &self,
        state: &ClientState,
        global: &Params,
        (place, on): (usize, Part),
        by: &EvaluationRequest<'_>,
    ) -> Result<Scored> {
        let (info, shard) = (&self.infos[place], &self.shards.clients[place]);
        let mut params = self.worker(place, global).params_of(state)?;
        if let Some(adaptation) = by.adapt.filter(|_| !shard.train.is_empty()) {
            self.adapt(&mut params, (info, shard), adaptation, by.seed)?;
        }
        let scores = self.score_with(self.model_of(place), &params, on(shard))?;
        Ok(scores.scored(Some(info.id)))
    }

    fn adapt(
        &self,
        params: &mut Params,
        (info, shard): (&ClientInfo, &Shard),
        adaptation: &Adaptation,
        seed: Seed,
    ) -> Result<()> {
        let correction = match adaptation.work.local {
            LocalRule::Proximal { mu } => Correction::Proximal { mu },
            // A throw-away copy has no rounds behind it to be corrected by.
            LocalRule::Plain | LocalRule::Scaffold | LocalRule::Dynamic { .. } => {
                Correction::Nothing
            }
        };
        let task = TrainTask {
            client: &info.name,
            examples: shard.train.encoded(),
            scope: &adaptation.learns,
            work: &adaptation.work,
            correction,
            seed: seed.with(u64::from(info.id.0)),
        };
        let (model, device, cache) = (&self.model, &self.device, self.limits.cache);
        Trainer { model, device, cache }.train(params, &task).map(drop)
    }

    /// One client's measurement of the blocks, on a sample of its training examples.
    fn measure(
        &self,
        global: &Params,
        (place, state): (usize, &ClientState),
        request: &ProbeRequest<'_>,
    ) -> Result<Evidence> {
        let info = &self.infos[place];
        let params = self.worker(place, global).params_of(state)?;
        let all = self.shards.clients[place].train.encoded();
        let seed = request.seed.with(u64::from(info.id.0));
        let sample = sample(all, request.examples as usize, seed);
        let labels = &self.shards.labels;
        let prober = Prober { model: self.model_of(place), device: &self.device, labels };
        let scores = prober.probe(&params, request.probe, (&info.name, &sample))?;
        Ok(Evidence { client: info.id, scores })
    }
}

/// Attention and how it moves.
impl LocalFleet {
    /// One client's comparison, and its state with what it will remember.
    fn gaze(
        &self,
        global: &Params,
        (place, state): (usize, &ClientState),
        request: &AttentionRequest<'_>,
    ) -> Result<(ClientAttention, ClientState)> {
        let info = &self.infos[place];
        let params = self.worker(place, global).params_of(state)?;
        let all = self.shards.clients[place].train.encoded();
        let sample = sample(all, PATTERN_EXAMPLES, request.seed.with(u64::from(info.id.0)));
        let gaze = AttentionComparison { model: self.model_of(place), device: &self.device };
        let (moved, seen) = gaze.compare(&params, (&info.name, &sample), &state.attention)?;
        let next = ClientState { attention: seen, ..state.clone() };
        Ok((ClientAttention { client: info.id, moved }, next))
    }
}

impl Fleet for LocalFleet {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn train(
        &mut self,
        orders: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        for order in &orders {
            self.place(order.client)?;
        }
        let failures = self.download(&orders);
        let fleet = &*self;
        in_order(
            orders.len(),
            |number| fleet.carry_out(&orders[number], failures[number].as_ref()),
            |carried_out| {
                let (arrival, next) = carried_out?;
                match (arrive(arrival)?, next) {
                    // A copy by this thread: what lives for rounds would otherwise lie scattered over
                    // the heaps of all threads, and be half as large again.
                    (Verdict::Taken, Some(next)) => fleet.state_store.put(Arc::new(next.clone())),
                    (Verdict::Taken, None) | (Verdict::Refused, _) => Ok(()),
                }
            },
        )
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let failed = |error: ClientError| failure("evaluate the model", &error);
        let global = to_params(&self.device, self.model.layout(), request.model).map_err(failed)?;
        let on: Part = match request.on {
            EvaluationSet::CentralTest => {
                let scores = self.score(&global, &self.shards.central_test).map_err(failed)?;
                return Ok(vec![scores.scored(None)]);
            }
            EvaluationSet::ClientValidation => |shard| &shard.validation,
            EvaluationSet::ClientTest => |shard| &shard.test,
        };
        let asked: Vec<usize> = (0..self.infos.len())
            .filter(|&place| !on(&self.shards.clients[place]).is_empty())
            .collect();
        let (fleet, mut all) = (&*self, Vec::with_capacity(asked.len()));
        in_order(
            asked.len(),
            |number| fleet.examine(&global, (asked[number], on), request),
            |scored| {
                all.push(scored?);
                Ok::<(), EngineError>(())
            },
        )?;
        Ok(all)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let failed = |error: ClientError| failure("probe the model", &error);
        let places = request.clients.iter().map(|&client| self.place(client));
        let places: Vec<usize> = places.collect::<Result<_, _>>()?;
        let global = to_params(&self.device, self.model.layout(), request.model).map_err(failed)?;
        let (fleet, mut all, mut first) = (&*self, Vec::with_capacity(places.len()), None);
        in_order(
            places.len(),
            |number| {
                let (place, client) = (places[number], request.clients[number]);
                let state = fleet.state_store.own_of(client)?;
                Ok(fleet.measure(&global, (place, &state), request))
            },
            |evidence: Result<_, EngineError>| {
                match evidence? {
                    Ok(evidence) => all.push(evidence),
                    Err(error) => first = first.take().or(Some(error)),
                }
                Ok::<(), EngineError>(())
            },
        )?;
        // A client without an answer follows the others, as long as there are others.
        match first {
            Some(error) if all.is_empty() => Err(failed(error)),
            Some(_) | None => Ok(all),
        }
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let failed = |error: ClientError| failure("look at attention", &error);
        let places = request.clients.iter().map(|&client| self.place(client));
        let places: Vec<usize> = places.collect::<Result<_, _>>()?;
        let global = to_params(&self.device, self.model.layout(), request.model).map_err(failed)?;
        let (fleet, mut all) = (&*self, Vec::with_capacity(places.len()));
        in_order(
            places.len(),
            |number| {
                let (place, client) = (places[number], request.clients[number]);
                let state = fleet.state_store.state_of(client)?;
                fleet.gaze(&global, (place, &state), request).map_err(failed)
            },
            |compared| {
                let (shift, next) = compared?;
                fleet.state_store.put(Arc::new(next))?;
                all.push(shift);
                Ok::<(), EngineError>(())
            },
        )?;
        Ok(all)
    }

    fn kept(&self) -> Vec<StateHandle> {
        self.state_store.kept()
    }

    fn restore(
        &mut self,
        shared: &ParamValues,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        let failed = |error: ClientError| failure("restore the clients", &error);
        self.shared = to_params(&self.device, self.model.layout(), shared).map_err(failed)?;
        let checked = |state: Arc<ClientState>| {
            for tensors in [&state.personal, &state.correction, &state.residual] {
                tensors.check(self.model.layout())?;
            }
            self.place(state.client)?;
            Ok(state)
        };
        self.state_store.replace(&mut states.map(|state| state.and_then(checked)))
    }
}

impl fmt::Debug for LocalFleet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LocalFleet")
            .field("clients", &self.infos.len())
            .field("parameters", &self.shared.len())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// One part of a client's examples.
type Part = fn(&Shard) -> &Examples;

fn failure(doing: &'static str, error: &ClientError) -> EngineError {
    EngineError::Fleet { doing, reason: error.to_string() }
}
