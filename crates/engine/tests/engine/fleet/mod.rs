//! A fleet of clients with quadratic losses, in plain f32: small enough to check by hand, and as
//! strict about the contract as a real one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fedra_engine::*;
use fedra_plan::{BlockScores, Layer, Layout, ParamId, Part, Role, Round, Scope, Shape};
use fedra_seed::Seed;
use fedra_wire::{Expectation, Header, Kind, decode, encode};

/// One embedding, two blocks, a head: 6 + 2 * 4 + 2 elements.
pub fn layout() -> Layout {
    let id = |layer, role| ParamId::new(layer, role, Part::Weight);
    Layout::new([
        (id(Layer::Embedding, Role::Token), Shape::matrix(3, 2)),
        (id(Layer::Block(0), Role::Query), Shape::matrix(2, 2)),
        (id(Layer::Block(1), Role::Value), Shape::matrix(2, 2)),
        (id(Layer::Head, Role::Classifier), Shape::vector(2)),
    ])
    .expect("legal")
}

/// Standard normal values for every parameter.
pub fn normal(seed: Seed) -> ParamValues {
    let mut generator = seed.generator();
    let mut draw =
        |shape: &Shape| (0..shape.elements()).map(|_| generator.normal() as f32).collect();
    layout().iter().map(|(id, shape)| (id, draw(shape))).collect()
}

/// What a test does to an answer before it is delivered.
pub type Tamper = Box<dyn FnMut(&TrainRequest, Reply) -> Vec<Outcome>>;

/// Client k has the loss `sum_j curvature_k (w_j - target_kj)^2 / 2`.
pub struct Quadratics {
    pub layout: Layout,
    pub clients: Vec<ClientInfo>,
    pub targets: Vec<ParamValues>,
    pub curvatures: Vec<f32>,
    /// Standard deviation of the gradient noise, drawn from the order's seed.
    pub noise: f32,
    /// Whether answers come from the last client to the first.
    pub reversed: bool,
    pub tamper: Option<Tamper>,
    /// Clients that cannot be reached in a round, and clients that do not answer in it.
    pub unreachable: BTreeSet<(ClientId, Round)>,
    pub mute: BTreeSet<(ClientId, Round)>,
    /// (down, up) bytes as the fleet saw them.
    pub seen: (u64, u64),
    pub shared: ParamValues,
    pub states: BTreeMap<ClientId, ClientState>,
    /// What they were before answers that may be revoked.
    pub before: BTreeMap<ClientId, Option<ClientState>>,
    /// Who cannot be brought up to date, and whether it is sent its download all the same.
    pub away: BTreeMap<ClientId, bool>,
}

impl Quadratics {
    /// Clients with the given numbers of examples, all different from each other.
    pub fn new(examples: &[u64]) -> Self {
        let info = |(number, examples): (u32, &u64)| ClientInfo {
            id: ClientId(number),
            name: format!("client-{number}"),
            examples: *examples,
        };
        let count = examples.len() as u64;
        Self {
            layout: layout(),
            clients: (0..).zip(examples).map(info).collect(),
            targets: (0..count).map(|client| normal(Seed(90).with(client))).collect(),
            curvatures: (0..count).map(|client| 0.5 + client as f32).collect(),
            noise: 0.1,
            reversed: false,
            tamper: None,
            unreachable: BTreeSet::new(),
            mute: BTreeSet::new(),
            seen: (0, 0),
            shared: initial(),
            states: BTreeMap::new(),
            before: BTreeMap::new(),
            away: BTreeMap::new(),
        }
    }

    /// What the clients keep.
    pub fn state(&self) -> Vec<ClientState> {
        self.states.values().filter(|state| !state.is_empty()).cloned().collect()
    }

    fn expectation(&self, kind: Kind, encoding: Encoding, round: Round) -> Expectation<'_> {
        let client = ClientId::SERVER;
        Expectation { layout: &self.layout, kind, encoding, round, client, scope: None }
    }

    /// The loss of a client.
    fn loss(&self, number: usize, model: &ParamValues) -> f64 {
        let away = difference(model, &self.targets[number]);
        let squares = away.iter().flat_map(|(_, values)| values).map(|v| f64::from(v * v));
        0.5 * f64::from(self.curvatures[number]) * squares.sum::<f64>()
    }

    /// Trains one client; gives back its answer and its state, should the answer be taken.
    fn work(&mut self, order: &TrainRequest) -> (Reply, ClientState) {
        let work = &order.work;
        let mut state = self
            .states
            .get(&order.client)
            .cloned()
            .unwrap_or_else(|| ClientState::empty(order.client));
        let mut received = self.shared.clone();
        received.absorb(state.personal.clone());
        let variate = order.correction.as_ref().map(|correction| {
            let expected = self.expectation(Kind::Variate, Encoding::F32, order.round);
            decode(correction, &expected).expect("an honest variate").1
        });

        let number = order.client.0 as usize;
        let examples = self.clients[number].examples;
        let steps = work.steps(examples) as u32;
        let mut generator = order.seed.generator();
        let mut model = received.clone();
        let mut gradients = ParamValues::zeros(&self.layout, order.plan.learns());
        let mut velocity = gradients.clone();
        let mut loss = 0.0;
        for _ in 0..steps {
            for id in order.plan.learns() {
                let target = self.targets[number].get(id).expect("whole");
                let start = received.get(id).expect("whole");
                let zeros = vec![0.0; target.len()];
                let correction = state.correction.get(id).unwrap_or(&zeros);
                let server = variate.as_ref().and_then(|all| all.get(id)).unwrap_or(&zeros);
                let sums = gradients.get_mut(id).expect("zeros");
                let velocities = velocity.get_mut(id).expect("zeros");
                for (j, w) in model.get_mut(id).expect("whole").iter_mut().enumerate() {
                    let distance = *w - target[j];
                    let noise = self.noise * generator.normal() as f32;
                    let g = self.curvatures[number] * distance + noise;
                    loss += 0.5 * self.curvatures[number] * distance * distance;
                    sums[j] += g;
                    let g = match work.local {
                        LocalRule::Plain => g,
                        LocalRule::Proximal { mu } => g + mu * (*w - start[j]),
                        LocalRule::ControlVariate => g - correction[j] + server[j],
                        LocalRule::Dynamic { alpha } => g - correction[j] + alpha * (*w - start[j]),
                    };
                    let slower = work.damped.as_ref().filter(|damped| damped.part.contains(id));
                    let factor = slower.map_or(1.0, |damped| damped.factor);
                    match work.solver {
                        OptimiserConfig::Sgd { rate, .. } => *w -= factor * rate * g,
                        OptimiserConfig::Momentum { rate, momentum, .. } => {
                            velocities[j] = momentum * velocities[j] + g;
                            *w -= factor * rate * velocities[j];
                        }
                        OptimiserConfig::AdamW { .. } => {
                            panic!("quadratic clients do without AdamW")
                        }
                    }
                }
            }
        }

        let uploads = order.plan.uploads();
        let change = difference(&model.subset(&uploads), &received);
        let mut header = Header {
            kind: Kind::Change,
            encoding: work.encoding,
            round: order.round,
            client: order.client,
            examples,
            steps,
            loss: Some(loss / steps as f32),
        };
        let payload = encode(&self.layout, &header, &change, Some(&mut state.residual));
        state.personal.absorb(model.subset(order.plan.keeps()));
        let mut correction = None;
        match work.local {
            LocalRule::Plain | LocalRule::Proximal { .. } => {}
            LocalRule::ControlVariate => {
                for (_, values) in gradients.iter_mut() {
                    for value in values {
                        *value /= steps as f32;
                    }
                }
                let next = gradients.subset(&uploads);
                let step = difference(&next, &state.correction);
                state.correction.absorb(next);
                (header.kind, header.encoding) = (Kind::Variate, Encoding::F32);
                correction = Some(encode(&self.layout, &header, &step, None).expect("finite"));
            }
            LocalRule::Dynamic { alpha } => {
                for (id, change) in change.iter() {
                    let linear = state.correction.or_zeros(id, change.len());
                    linear.iter_mut().zip(change).for_each(|(h, change)| *h -= alpha * change);
                }
            }
        }
        let payload = payload.expect("finite");
        (Reply { payload, correction, seconds: 0.0, memory: None, noise: None }, state)
    }
}

/// The model every test starts from.
pub fn initial() -> ParamValues {
    normal(Seed(7))
}

/// `left - right`, parameter by parameter.
pub fn difference(left: &ParamValues, right: &ParamValues) -> ParamValues {
    let minus = |(id, left): (ParamId, &[f32])| {
        let right = right.get(id);
        let at = |j: usize| right.map_or(0.0, |right| right[j]);
        (id, left.iter().enumerate().map(|(j, left)| left - at(j)).collect())
    };
    left.iter().map(minus).collect()
}

impl Fleet for Quadratics {
    fn clients(&self) -> &[ClientInfo] {
        &self.clients
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        self.before.clear();
        let mut absent = Vec::new();
        for download in downloads {
            if let Some(sent) = self.away.get(&download.client) {
                self.seen.0 += if *sent { download.payload.len() as u64 } else { 0 };
                let absence = Absence {
                    client: download.client,
                    reason: "is not there".into(),
                    diverged: false,
                };
                absent.push(Unsynced { absence, sent: *sent });
                continue;
            }
            if self.unreachable.contains(&(download.client, download.round)) {
                let absence = Absence {
                    client: download.client,
                    reason: "no connection".into(),
                    diverged: false,
                };
                absent.push(Unsynced { absence, sent: false });
                continue;
            }
            let expected = self.expectation(Kind::Values, download.encoding, download.round);
            let (_, values) = decode(&download.payload, &expected).expect("an honest download");
            self.shared.absorb(values);
            self.seen.0 += download.payload.len() as u64;
        }
        Ok(absent)
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        for state in self.states.values_mut() {
            for id in part {
                state.correction.remove(id);
                state.residual.remove(id);
            }
        }
        Ok(())
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        for client in clients {
            match self.before.remove(client) {
                Some(Some(state)) => drop(self.states.insert(*client, state)),
                Some(None) => drop(self.states.remove(client)),
                None => {}
            }
        }
        Ok(())
    }

    fn train(
        &mut self,
        mut orders: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        if self.reversed {
            orders.reverse();
        }
        for order in orders {
            if self.mute.contains(&(order.client, order.round)) {
                let outcome = Outcome::Failed("gone".into());
                arrive(Arrival { client: order.client, outcome })?;
                continue;
            }
            let (reply, state) = self.work(&order);
            let client = order.client;
            self.seen.0 += order.correction.as_ref().map_or(0, SharedPayload::len) as u64;
            let outcomes = match &mut self.tamper {
                None => vec![Outcome::Finished(reply)],
                Some(tamper) => tamper(&order, reply),
            };
            for outcome in outcomes {
                if let Outcome::Finished(reply) = &outcome {
                    self.seen.1 += (reply.payload.len()
                        + reply.correction.as_ref().map_or(0, Vec::len))
                        as u64;
                }
                if arrive(Arrival { client, outcome })? == Verdict::Taken {
                    let before = self.states.insert(client, state.clone());
                    if order.revocable {
                        self.before.entry(client).or_insert(before);
                    }
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, _request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let score = |number: usize, info: &ClientInfo| {
            let mut model = self.shared.clone();
            if let Some(state) = self.states.get(&info.id) {
                model.absorb(state.personal.clone());
            }
            let loss = self.loss(number, &model);
            let client = Some(info.id);
            Scored {
                client,
                examples: info.examples,
                loss,
                scores: [("loss".into(), loss)].into(),
                tallies: BTreeMap::new(),
            }
        };
        Ok(self.clients.iter().enumerate().map(|(number, info)| score(number, info)).collect())
    }

    fn scorers(&self, _on: EvaluationSet) -> Vec<ClientId> {
        self.clients.iter().map(|client| client.id).collect()
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        // Even clients favour even blocks, odd ones odd blocks.
        let ask = |client: &ClientId| {
            let odd = f64::from(client.0 % 2);
            let score = |block| if block % 2 == 0 { 1.0 - odd } else { 0.6 * odd };
            let scores = (0..self.layout.blocks()).map(score).collect();
            let scores = BlockScores::new(request.probe, scores)?;
            Ok(Evidence { client: *client, scores })
        };
        let answers = |client: &&ClientId| !self.mute.contains(&(**client, request.round));
        request.clients.iter().filter(answers).map(ask).collect()
    }

    /// Their "pattern" is the model itself, block by block: a shift is the mean absolute change.
    fn compare_attention(
        &mut self,
        look: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let block = |block: u16| {
            let mine = Scope::of_blocks(&self.layout, [block]);
            self.shared.subset(&mine).iter().flat_map(|(_, values)| values.to_vec()).collect()
        };
        let now: Vec<Vec<f32>> = (0..self.layout.blocks()).map(block).collect();
        let shifts = |then: &[f32]| {
            let (mut shifts, mut start) = (Vec::new(), 0);
            for now in &now {
                let then = &then[start..start + now.len()];
                let apart = now.iter().zip(then).map(|(now, then)| f64::from((now - then).abs()));
                shifts.push(apart.sum::<f64>() / now.len() as f64);
                start += now.len();
            }
            shifts
        };
        let mut answers = Vec::new();
        for &client in look.clients {
            if look.revocable {
                self.before.entry(client).or_insert(self.states.get(&client).cloned());
            }
            let state = self.states.entry(client).or_insert(ClientState::empty(client));
            let AttentionMemory { first, last } = &mut state.attention;
            let moved = (!first.is_empty())
                .then(|| AttentionShift { since_first: shifts(first), since_last: shifts(last) });
            *last = now.concat().into();
            if first.is_empty() {
                *first = last.clone();
            }
            answers.push(ClientAttention { client, moved });
        }
        Ok(answers)
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
        self.state().into_iter().map(|state| StateHandle::new(Arc::new(state))).collect()
    }

    fn restore(
        &mut self,
        shared: &ParamValues,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        self.shared = shared.clone();
        let state = |state: Arc<ClientState>| (state.client, Arc::unwrap_or_clone(state));
        self.states = states.map(|next| next.map(state)).collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// Collects reports.
#[derive(Default)]
pub struct Reports(pub Vec<RoundReport>);

impl Sink for Reports {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.0.push(report.clone());
        Ok(())
    }
}

/// One epoch of SGD in batches of ten.
pub fn work() -> Work {
    Work { batch: 10, ..Work::new(OptimiserConfig::Sgd { rate: 0.05, weight_decay: 0.0 }) }
}

/// A recipe of the method with the settings given as JSON.
pub fn recipe(name: &str, settings: &str) -> Recipe {
    let settings: serde_json::Value = serde_json::from_str(settings).expect(settings);
    methods::Method::by_name(name, settings).expect(name).recipe(Recipe::new(work()))
}

/// Runs so many rounds from the usual start.
pub fn run(recipe: Recipe, fleet: &mut Quadratics, rounds: u32) -> (Federation, Vec<RoundReport>) {
    let mut federation =
        Federation::new(recipe, layout(), initial(), Seed(1)).expect("a whole model");
    let mut reports = Reports::default();
    federation.run(fleet, &mut [&mut reports], rounds, &|| false).expect("no round fails");
    (federation, reports.0)
}

/// The model after so many rounds.
pub fn train(recipe: Recipe, fleet: &mut Quadratics, rounds: u32) -> ParamValues {
    run(recipe, fleet, rounds).0.model().clone()
}

/// The largest difference between two models.
pub fn distance(left: &ParamValues, right: &ParamValues) -> f32 {
    let away = difference(left, right);
    away.iter().flat_map(|(_, values)| values).fold(0.0, |most, value| most.max(value.abs()))
}

/// Which parameters differ.
pub fn changed(left: &ParamValues, right: &ParamValues) -> Scope {
    left.scope().filter(|id| left.get(id) != right.get(id))
}
