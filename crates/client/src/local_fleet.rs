//! A whole federation in one process: one shared model, many clients, a few threads.
//!
//! There is one copy of the shared model; a client in training copies what it trains and nothing
//! else, and gives it back with its answer. Clients run side by side and their answers are handed
//! over in client order, so the number of threads shows in the time and in no bit of the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fedra_compute::{Device, Params, ThreadPool};
use fedra_engine::{
    Absence, Activity, Arrival, AttentionRequest, ClientAttention, ClientInfo, ClientState,
    Download, EngineError, EvaluationRequest, EvaluationSet, Evidence, Fleet, Outcome, OwnParts,
    ProbeRequest, Scored, SplitConfig, StateHandle, StateStore, TrainRequest, Unsynced, Verdict,
    place_of,
};
use fedra_model::Model;
use fedra_plan::{Layout, Scope};
use fedra_seed::{SecretKey, Seed};
use fedra_wire::{ClientId, ParamValues};

use crate::convert::{base_of, check, of_rank, receive, receive_apart, to_params_over};
use crate::error::{ClientError, Result};
use crate::evaluator::Evaluator;
use crate::examples::Examples;
use crate::labelled_batch::check_head;
use crate::meter::{Meter, Observer, Silent};
use crate::ordered_jobs::{in_order, so_many_in_order};
use crate::scores::Scores;
use crate::shards::Shards;
use crate::split::{Connect, ServerSegment};
use crate::worker::{EVALUATION_TOKENS, Wanted, Worker};

/// Clients as threads of this process, as many at a time as the current thread pool has threads.
pub struct LocalFleet {
    /// The structure that all clients train.
    pub model: Model,
    /// The structures of clients that lack the upper blocks or have adapters of a lower rank, by their place.
    smaller: BTreeMap<usize, Model>,
    /// The shared model of clients whose adapters have another rank, by the rank.
    narrow: BTreeMap<u16, Narrow>,
    /// Their ranks, by their place.
    ranks: BTreeMap<usize, u16>,
    device: Device,
    /// The shared model as the clients hold it.
    pub shared: Params,
    /// The data of all clients.
    pub shards: Shards,
    infos: Vec<ClientInfo>,
    /// What they keep between rounds; those at work hold a copy, the others nothing.
    pub state_store: StateStore,
    /// Who is told of its work.
    pub observer: Arc<dyn Observer>,
    /// The server's half of a cut model, in this process.
    middle: Option<Arc<ServerSegment>>,
    noise_seed: Seed,
    /// Code of a program that may score what the model answers.
    own: Option<Arc<dyn OwnParts>>,
    /// Where the draws of each client's private steps start.
    secrets: Vec<SecretKey>,
    /// Clients that train at a time, at most.
    at_most: usize,
}

/// The shared model with adapters of a lower rank.
struct Narrow {
    layout: Layout,
    /// Adapters of its own, and the tensors of the shared model for everything else.
    params: Params,
    /// Which are its own.
    own: Scope,
}

impl Narrow {
    fn of(shared: (&Params, &Layout), rank: u16, device: &Device) -> Result<Self> {
        let (params, layout) = (shared.0, shared.1.with_rank(usize::from(rank)));
        let own = layout.ids().filter(|id| layout.get(*id) != shared.1.get(*id)).collect();
        Ok(Self { params: of_rank(params, (shared.1, &layout), device)?, layout, own })
    }

    /// Lets go of the shared tensors, which somebody is to write, or takes them up again.
    fn release(&mut self) {
        let shared: Vec<_> = self.params.iter().map(|(id, _)| id).collect();
        for id in shared.into_iter().filter(|id| !self.own.contains(*id)) {
            self.params.remove(id);
        }
    }

    fn take_up(&mut self, shared: &Params) {
        for (id, tensor) in shared.iter().filter(|(id, _)| !self.own.contains(*id)) {
            self.params.insert(id, tensor.clone());
        }
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
        let observer = Arc::new(Silent);
        let secrets = secrets(&SecretKey::simulated(Seed(0)), shards.clients.len());
        let (smaller, state_store) = (BTreeMap::new(), StateStore::default());
        Ok(Self {
            model,
            smaller,
            narrow: BTreeMap::new(),
            ranks: BTreeMap::new(),
            device,
            shared,
            shards,
            infos,
            state_store,
            observer,
            middle: None,
            noise_seed: Seed(0),
            own: None,
            secrets,
            at_most: usize::MAX,
        })
    }

    /// The same fleet, in which some clients, by name, have only so many of the blocks.
    pub fn with_depths(mut self, depths: &BTreeMap<String, u16>) -> Result<Self> {
        for (place, info) in self.infos.iter().enumerate() {
            if let Some(depth) = depths.get(&info.name) {
                let own = self.smaller.get(&place).unwrap_or(&self.model);
                self.smaller.insert(place, own.shallow(usize::from(*depth))?);
            }
        }
        Ok(self)
    }

    /// The same fleet, in which some clients, by name, have adapters of a lower rank.
    pub fn with_ranks(mut self, ranks: &BTreeMap<String, u16>) -> Result<Self> {
        for (place, info) in self.infos.iter().enumerate() {
            let Some(rank) = ranks.get(&info.name).copied() else { continue };
            let own = self.smaller.get(&place).unwrap_or(&self.model);
            self.smaller.insert(place, own.with_rank(usize::from(rank))?);
            self.ranks.insert(place, rank);
        }
        self.narrow()
    }

    /// Makes the shared model of each rank from the shared one.
    fn narrow(mut self) -> Result<Self> {
        self.narrow = self.narrowed(&self.shared)?;
        Ok(self)
    }

    fn narrowed(&self, shared: &Params) -> Result<BTreeMap<u16, Narrow>> {
        let ranks: BTreeSet<u16> = self.ranks.values().copied().collect();
        let narrow =
            |rank| Ok((rank, Narrow::of((shared, self.model.layout()), rank, &self.device)?));
        ranks.into_iter().map(narrow).collect()
    }

    /// The same fleet, whose model is cut; the noise of all its clients starts at this seed.
    pub fn with_middle(self, middle: Arc<ServerSegment>, noise_seed: Seed) -> Self {
        Self { middle: Some(middle), noise_seed, ..self }
    }

    /// The same fleet, whose clients' private draws start here.
    pub fn with_secret(self, secret: &SecretKey) -> Self {
        Self { secrets: secrets(secret, self.infos.len()), ..self }
    }

    /// The same fleet, whose answers code of a program scores too, if it makes that choice.
    pub fn with_parts(self, parts: Arc<dyn OwnParts>) -> Self {
        Self { own: Some(parts), ..self }
    }

    /// The same fleet, of which at most so many clients train at a time, unless they wait for each other.
    pub fn with_at_most(self, clients: usize) -> Self {
        Self { at_most: clients.max(1), ..self }
    }

    /// These values over what all clients share and nobody changes.
    fn over_base(&self, values: &ParamValues) -> Result<Params> {
        let base = base_of(&self.shared);
        to_params_over(&self.device, (self.model.layout(), &base), values)
    }

    /// Scores parameters of this model on any examples.
    pub fn score(&self, params: &Params, examples: &Examples) -> Result<Scores> {
        self.evaluator().score_counted(params, examples, &self.scoring(examples))
    }

    fn evaluator(&self) -> Evaluator<'_> {
        Evaluator {
            model: &self.model,
            device: &self.device,
            task: self.shards.task,
            labels: &self.shards.labels,
            tokens: EVALUATION_TOKENS,
        }
    }

    /// Counts the scoring of examples that no client holds.
    fn scoring(&self, examples: &Examples) -> Meter<'_> {
        Meter::new(&*self.observer, Activity::Evaluating, (0, examples.len() as u64))
    }

    /// The shared model as a client holds it, and its layout.
    fn shared_of(&self, place: usize) -> (&Params, &Layout) {
        match self.ranks.get(&place).and_then(|rank| self.narrow.get(rank)) {
            Some(narrow) => (&narrow.params, &narrow.layout),
            None => (&self.shared, self.model.layout()),
        }
    }

    fn worker<'a>(&'a self, place: usize, meter: &'a Meter<'a>) -> Worker<'a> {
        let (shared, layout) = self.shared_of(place);
        Worker {
            info: &self.infos[place],
            shard: &self.shards.clients[place],
            task: self.shards.task,
            labels: &self.shards.labels,
            model: self.smaller.get(&place).unwrap_or(&self.model),
            layout,
            device: &self.device,
            shared,
            connect: self.middle.as_deref().map(|middle| middle as &dyn Connect),
            noise_seed: self.noise_seed.with(u64::from(self.infos[place].id.0)),
            secret: &self.secrets[place],
            meter,
        }
    }

    /// Counts the work of so many clients, in so many steps or examples.
    fn meter(&self, activity: Activity, (clients, steps): (usize, u64)) -> Meter<'_> {
        Meter::new(&*self.observer, activity, (clients as u64, steps))
    }

    fn places(&self, clients: &[ClientId]) -> Result<Vec<usize>, EngineError> {
        clients.iter().map(|&client| place_of(&self.infos, client)).collect()
    }

    /// One client's training, from start to arrival, and the state to keep if it is taken. A client
    /// may fail; that its state cannot be read is no failure of the client's.
    fn train_one(
        &self,
        request: &TrainRequest,
        meter: &Meter<'_>,
    ) -> Result<(Arrival, Option<ClientState>), EngineError> {
        let worker = self.worker(request.client.0 as usize, meter);
        self.observer.started(worker.info, request.round);
        let state = self.state_store.state_of(request.client)?;
        let (outcome, next) = match worker.train(&state, request) {
            Ok((reply, next)) => (Outcome::Finished(reply), Some(next)),
            // One that waited for a client that has stopped failed for no reason of its own.
            Err(_) if self.observer.stops() => return Err(EngineError::Stopped),
            // Nobody else could compute on it either.
            Err(error) if error.is_device_failure() => {
                return Err(error.of_fleet("train the clients"));
            }
            Err(error) => (Outcome::Failed(error.failure()), None),
        };
        let arrival = Arrival { client: request.client, outcome };
        self.observer.finished(worker.info, request.round, &arrival);
        meter.client_done();
        Ok((arrival, next))
    }

    fn keep(&self, state: &ClientState, revocable: bool) -> Result<(), EngineError> {
        // A copy by this thread: what lives for rounds would otherwise lie scattered over the heaps
        // of all threads, and be half as large again.
        let state = Arc::new(state.clone());
        if revocable { self.state_store.put_revocable(state) } else { self.state_store.put(state) }
    }
}

impl Fleet for LocalFleet {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    /// Clients that lack the same share one payload, which is read once.
    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        self.state_store.settle();
        let mut read: BTreeMap<*const u8, Option<String>> = BTreeMap::new();
        let mut absent = Vec::new();
        self.narrow.values_mut().for_each(Narrow::release);
        for download in downloads {
            let place = place_of(&self.infos, download.client)?;
            let failure = read.entry(download.payload.as_ptr()).or_insert_with(|| {
                let narrow = self.ranks.get(&place).and_then(|rank| self.narrow.get_mut(rank));
                let received = match narrow {
                    None => receive(&mut self.shared, self.model.layout(), download.parts()),
                    Some(Narrow { layout, params, own }) => {
                        let parts = download.parts();
                        receive_apart((&mut self.shared, params), (layout, own), parts)
                    }
                };
                received.err().map(|error| error.to_string())
            });
            if let Some(reason) = failure {
                let reason = reason.clone();
                let absence = Absence { client: download.client, reason, diverged: false };
                absent.push(Unsynced { absence, sent: true });
            }
        }
        for narrow in self.narrow.values_mut() {
            narrow.take_up(&self.shared);
        }
        Ok(absent)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let places = self.places(request.clients)?;
        let (fleet, mut all, mut first) = (&*self, Vec::with_capacity(places.len()), None);
        let most = u64::from(request.examples);
        let examples = places.iter().map(|place| most.min(self.infos[*place].examples)).sum();
        let meter = self.meter(Activity::Probing, (places.len(), examples));
        in_order(
            places.len(),
            |number| {
                let state = fleet.state_store.own_of(request.clients[number])?;
                let probed = fleet.worker(places[number], &meter).probe(&state, request);
                meter.client_done();
                Ok(probed)
            },
            |evidence: Result<_, EngineError>| {
                match evidence? {
                    Ok(evidence) => all.push(evidence),
                    Err(ClientError::Stopped) => return Err(EngineError::Stopped),
                    Err(error) => first = first.take().or(Some(error)),
                }
                Ok::<(), EngineError>(())
            },
        )?;
        // A client without an answer follows the others, as long as there are others.
        match first {
            Some(error) if all.is_empty() => Err(error.of_fleet("probe the model")),
            Some(_) | None => Ok(all),
        }
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let places = self.places(request.clients)?;
        let (fleet, mut all) = (&*self, Vec::with_capacity(places.len()));
        let meter = self.meter(Activity::Probing, (places.len(), 0));
        in_order(
            places.len(),
            |number| {
                let state = fleet.state_store.state_of(request.clients[number])?;
                let worker = fleet.worker(places[number], &meter);
                let compared = worker.compare_attention(&state, request);
                meter.client_done();
                compared.map_err(|error| error.of_fleet("look at attention"))
            },
            |compared| {
                let (answer, next) = compared?;
                all.push(answer);
                fleet.keep(&next, request.revocable)
            },
        )?;
        Ok(all)
    }

    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        for request in &requests {
            place_of(&self.infos, request.client)?;
        }
        let (fleet, mut revocable) = (&*self, requests.iter().map(|request| request.revocable));
        let split = requests.first().and_then(|request| request.split.clone());
        // Clients that meet in each step wait for each other: they have to be at work all at once.
        let at_once = match split.as_deref().map(SplitConfig::is_joined) {
            Some(true) => requests.len(),
            Some(false) | None => ThreadPool::current_threads().min(self.at_most),
        };
        let steps = |request: &TrainRequest| {
            request.work.steps(fleet.infos[request.client.0 as usize].examples)
        };
        let steps = requests.iter().map(steps).sum();
        let meter = fleet.meter(Activity::Training, (requests.len(), steps));
        let mut settle = |trained: Result<(Arrival, Option<ClientState>), EngineError>| {
            let (arrival, next) = trained?;
            let revocable = revocable.next().unwrap_or(false);
            match (arrive(arrival)?, next) {
                (Verdict::Taken, Some(next)) => fleet.keep(&next, revocable),
                (Verdict::Taken, None) | (Verdict::Refused, _) => Ok(()),
            }
        };
        // Both halves of a model that is cut share a device, and the server's half learns meanwhile.
        let apart = fleet.middle.is_none() && at_once.min(requests.len()) > 1;
        so_many_in_order(
            (requests.len(), at_once),
            |number| {
                let train = || fleet.train_one(&requests[number], &meter);
                if apart { fleet.device.aside(train) } else { train() }
            },
            |trained| {
                settle(trained).inspect_err(|_| {
                    // Whoever waits for a client of a round that has ended would wait for ever.
                    fleet.middle.iter().for_each(|middle| middle.close());
                })
            },
        )
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let failed = |error: ClientError| error.of_fleet("evaluate the model");
        if request.on == EvaluationSet::CentralTest {
            let (exact, examples) =
                (self.over_base(request.model).map_err(failed)?, &self.shards.central_test);
            let how = (self.own.as_deref(), &self.scoring(examples));
            return Ok(vec![self.evaluator().judged(&exact, (examples, None), how)?]);
        }
        let fleet = &*self;
        let asked = fleet.places(&fleet.scorers(request.on))?;
        let examples = |place: &usize| fleet.shards.clients[*place].of(request.on);
        let examples = asked.iter().filter_map(examples).map(|examples| examples.len() as u64);
        let meter = fleet.meter(Activity::Evaluating, (asked.len(), examples.sum()));
        let own = self.own.as_deref().filter(|own| own.makes().score);
        let wanted = if own.is_some() { Wanted::Answers } else { Wanted::Scores };
        let mut all = Vec::with_capacity(asked.len());
        in_order(
            asked.len(),
            |number| {
                let worker = fleet.worker(asked[number], &meter);
                let state = fleet.state_store.own_of(worker.info.id)?;
                let scored = worker.evaluate_for(&state, request, wanted);
                meter.client_done();
                scored.map_err(failed)
            },
            // Code of a program is asked in the order of clients, on the thread of the round.
            |scored: Result<_, EngineError>| {
                let Some((scored, answers)) = scored? else { return Ok(()) };
                all.push(match (own, answers) {
                    (Some(own), Some(answers)) => own.judge(scored, answers)?,
                    (Some(_), None) | (None, _) => scored,
                });
                Ok::<(), EngineError>(())
            },
        )?;
        Ok(all)
    }

    fn scorers(&self, on: EvaluationSet) -> Vec<ClientId> {
        let has_some = |place: &usize| {
            let examples = self.shards.clients[*place].of(on);
            examples.is_some_and(|examples| !examples.is_empty())
        };
        (0..self.infos.len()).filter(has_some).map(|place| self.infos[place].id).collect()
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        self.state_store.forget(part)
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        self.state_store.revoke(clients);
        Ok(())
    }

    /// They are all here.
    fn await_return(
        &mut self,
        _absent: &[ClientId],
        _again: u32,
        _stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    fn states(&self) -> Vec<StateHandle> {
        self.state_store.states()
    }

    fn restore(
        &mut self,
        shared: &ParamValues,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        let failed = |error: ClientError| error.of_fleet("restore the clients");
        self.shared = self.over_base(shared).map_err(failed)?;
        self.narrow = self.narrowed(&self.shared).map_err(failed)?;
        let checked = |state: Arc<ClientState>| {
            let (_, layout) = self.shared_of(place_of(&self.infos, state.client)?);
            for tensors in [&state.personal, &state.correction, &state.residual] {
                tensors.check(layout)?;
            }
            Ok(state)
        };
        self.state_store.replace(&mut states.map(|state| state.and_then(checked)))
    }
}

/// A key for each client.
fn secrets(secret: &SecretKey, clients: usize) -> Vec<SecretKey> {
    (0..clients as u64).map(|client| secret.with(client)).collect()
}
