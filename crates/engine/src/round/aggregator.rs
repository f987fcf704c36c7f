//! The answers of a round: checked as they arrive, folded in client request.
//!
//! An answer is held against its request before anything else happens to it. A bad one is refused
//! with a reason and the round continues. A good one is folded if all clients before it are settled,
//! in the same pass that checks it; until then it is checked, and its bytes wait ([`Waiting`]).

mod noise_mean;
mod waiting;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Layout, Round, Scope};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, Mean, Opened, ParamValues, Taken, WireError,
    encode, open, widened,
};

use self::noise_mean::NoiseMean;
use self::waiting::{Answer, Early, Waiting};
use crate::aggregate::adapter_mean::{AdapterMean, AdapterReport, Products};
use crate::aggregate::drift::{Drift, DriftReport};
use crate::aggregate::fold::{Contribution, Denominator, Fold};
use crate::aggregate::max_norm::{Above, FAR, FarUpdate, MaxNorm, NormLimit, NormReport, median};
use crate::error::EngineError;
use crate::privacy::private_steps::StepNoise;
use crate::protocol::bytes::CrossingBytes;
use crate::protocol::fleet::{
    Absence, Arrival, ClientInfo, Failure, Outcome, Reply, TrainRequest, Verdict,
};
use crate::protocol::server_segment::SegmentUpdate;
use crate::recipe::{Recipe, StepNormalisation};
use crate::state::State;
use crate::storage::scratch::Record;
use crate::work::{LocalRule, OptimiserConfig, Work};

/// What the engine has to remember of a request to judge the answer.
struct Due {
    uploads: Scope,
    /// The most examples and steps that the answer may claim.
    examples: u64,
    steps: u64,
    work: Work,
    correction: bool,
    /// The client's layout, where its adapters have another rank than the shared ones.
    narrow: Option<Layout>,
}

/// A round's answers on their way into one mean.
pub(crate) struct Aggregator<'round> {
    layout: &'round Layout,
    model: &'round ParamValues,
    recipe: &'round Recipe,
    round: Round,
    due: BTreeMap<ClientId, Due>,
    waiting: Waiting,
    unsettled: BTreeSet<ClientId>,
    changes: Fold,
    corrections: Fold,
    drift: Option<Drift>,
    /// The clients' adapters, where their products are averaged, and the model that they change.
    products: Option<(Products, &'round ParamValues)>,
    loss: (f64, f64),
    /// How much each folded answer counts.
    counted: BTreeMap<ClientId, (Contribution, Header)>,
    /// What clients tell of their private steps.
    noise: NoiseMean,
    /// The norms of the updates that came; none under client-level privacy, of which they would tell.
    norms: Option<BTreeMap<ClientId, f64>>,
    /// Those that were scaled down.
    scaled: Vec<ClientId>,
    /// Whether nobody is waited for any more.
    is_closing: bool,
    result: Gathered,
}

/// What came of a round's requests.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The mean change; parameters nobody sent are absent.
    pub(crate) mean: Mean,
    /// The mean change of the corrections, for rules that have some.
    pub(crate) correction: Mean,
    /// How far the clients went apart, if anybody wants to know.
    pub(crate) drift: Option<DriftReport>,
    /// What averaging adapters cost.
    pub(crate) adapters: Option<AdapterReport>,
    /// In client request.
    pub(crate) arrived: Vec<ClientId>,
    /// The steps behind each of their updates.
    pub(crate) steps: BTreeMap<ClientId, u32>,
    /// The weights of their updates together.
    pub(crate) weight: f64,
    /// By what their updates were scaled, together, in a private run.
    pub(crate) private_weight: f64,
    pub(crate) failed: Vec<Absence>,
    pub(crate) refused: Vec<Absence>,
    /// Those of them who were refused after they had been told that their answers are taken.
    pub(crate) revoked: Vec<ClientId>,
    /// Updates that are worth a word for their norm.
    pub(crate) norms: Option<NormReport>,
    pub(crate) loss: Option<f64>,
    pub(crate) up: ByteCount,
    pub(crate) answers: u64,
    pub(crate) slowest: f64,
    /// The most tensor memory that a client with a process of its own says it held.
    pub(crate) memory: Option<ByteCount>,
    pub(crate) most_held: usize,
    /// What crossed the cut, where there is one.
    pub(crate) crossing: CrossingBytes,
    /// Signal and noise of private steps or of a private mean.
    pub(crate) noise: StepNoise,
}

impl<'round> Aggregator<'round> {
    /// Waits for the answers of this cohort to these requests.
    pub(crate) fn new(
        state: &'round State,
        requests: &[TrainRequest],
        cohort: &[ClientInfo],
    ) -> Self {
        let State { recipe, layout, model, .. } = state;
        let examples: BTreeMap<ClientId, u64> =
            cohort.iter().map(|client| (client.id, client.examples)).collect();
        let layouts =
            cohort.iter().filter_map(|client| match recipe.layout_of(&client.name, layout) {
                Cow::Borrowed(_) => None,
                Cow::Owned(narrow) => Some((client.id, narrow)),
            });
        let layouts: BTreeMap<ClientId, Layout> = layouts.collect();
        let exact = recipe.adapters == AdapterMean::Exact;
        let due = |request: &TrainRequest| {
            let examples = examples.get(&request.client).copied().unwrap_or(0);
            let work = &request.work;
            let steps = if work.private.is_some() {
                // As many as a declared number of rows takes.
                work.steps(examples)
            } else {
                let by_one = u64::from(work.epochs).saturating_mul(examples);
                work.max_steps.map_or(by_one, |limit| by_one.min(u64::from(limit)))
            };
            let correction = request.correction.is_some();
            let uploads = request.plan.uploads();
            let (narrow, work) = (layouts.get(&request.client).cloned(), work.clone());
            (request.client, Due { uploads, examples, steps, work, correction, narrow })
        };
        Self {
            layout,
            model,
            recipe,
            round: state.round,
            due: requests.iter().map(due).collect(),
            waiting: Waiting::new(state.spill.as_deref()),
            unsettled: requests.iter().map(|request| request.client).collect(),
            // A private sum is divided by a public number, and until then by everybody's weight.
            changes: Fold::new(match recipe.client_privacy() {
                None => recipe.denominator,
                Some(_) => Denominator::Everyone,
            })
            .measuring(recipe.client_privacy().is_none()),
            // Who did not train a parameter has not changed its correction.
            corrections: Fold::new(Denominator::Everyone),
            drift: recipe.evaluation.drift.then(|| Drift::new(recipe.denominator)),
            products: exact.then(|| (Products::in_order(!recipe.ranks.is_empty()), model)),
            loss: (0.0, 0.0),
            counted: BTreeMap::new(),
            noise: NoiseMean::default(),
            norms: recipe.client_privacy().is_none().then(BTreeMap::new),
            scaled: Vec::new(),
            is_closing: false,
            result: Gathered::default(),
        }
    }

    /// Takes one arrival, or refuses it.
    pub(crate) fn arrive(&mut self, arrival: Arrival) -> Result<Verdict, EngineError> {
        let Arrival { client, outcome } = arrival;
        let reply = match outcome {
            Outcome::Failed(failure) => {
                if self.unsettled.remove(&client) {
                    self.result.failed.push(failure.of(client));
                    self.fold_settled()?;
                }
                return Ok(Verdict::Refused);
            }
            Outcome::Finished(reply) => reply,
        };
        let correction = reply.correction.as_ref().map_or(0, Vec::len);
        self.result.up += ByteCount((reply.payload.len() + correction) as u64);
        self.result.answers += 1;
        if !self.unsettled.remove(&client) {
            let asked = self.due.contains_key(&client);
            let reason = if asked { "a second answer" } else { "was not selected in this round" };
            return Ok(self.refuse(client, reason.into()));
        }
        let (seconds, memory) = (reply.seconds, reply.memory);
        let noise = reply.noise.clone();
        let held = self.waiting.held() + 1;
        let is_next = self.unsettled.first().is_none_or(|unsettled| client < *unsettled);
        let taken = if is_next && self.is_plain(client, &reply) {
            self.take(client, reply)
        } else {
            match self.judge(client, reply) {
                Ok((answer, norm)) => {
                    self.note_norm(client, norm);
                    self.waiting.put(client, answer)?;
                    Ok(())
                }
                Err(refusal) => Err(refusal),
            }
        };
        let verdict = if let Err(refusal) = taken {
            self.refuse(client, refusal.into())
        } else {
            if seconds.is_finite() {
                self.result.slowest = self.result.slowest.max(seconds);
            }
            self.result.most_held = self.result.most_held.max(held);
            self.result.memory = self.result.memory.max(memory);
            if let Some(noise) = noise {
                self.noise.add(client, (noise, &self.due[&client].uploads));
            }
            Verdict::Taken
        };
        self.fold_settled()?;
        Ok(verdict)
    }

    /// Adds what the server's half of a cut model learned from clients whose updates are folded; it
    /// counts as much as they do together.
    pub(crate) fn fold_middle(&mut self, update: &SegmentUpdate) -> Result<(), EngineError> {
        let counted: Vec<(Contribution, Header)> =
            update.clients.iter().filter_map(|client| self.counted.get(client).copied()).collect();
        let Some((first, header)) = counted.first().copied() else { return Ok(()) };
        let contribution = match counted.len() {
            1 => first,
            _ => Contribution::weighing(counted.iter().map(|(one, _)| one.weight).sum()),
        };
        let header = Header { kind: Kind::Change, encoding: Encoding::F32, ..header };
        let bytes = encode(self.layout, &header, &update.change, None)?;
        let update = open(bytes, &Expectation::of(self.layout, &header))?;
        self.changes.add_more(&update, contribution);
        self.compare(&update, contribution);
        Ok(())
    }

    /// Ends the round: who has not answered by now has failed.
    pub(crate) fn close(mut self) -> Result<Gathered, EngineError> {
        for client in std::mem::take(&mut self.unsettled) {
            self.result.failed.push(Failure::from("sent no answer").of(client));
        }
        self.is_closing = true;
        self.refuse_far();
        self.fold_settled()?;
        self.result.norms = self.norm_report();
        let (loss, weight) = self.loss;
        let mean = self.changes.mean();
        let (mean, adapters) = match self.products.take() {
            None => (mean, None),
            Some((products, model)) => {
                let (mean, report) = products.close(&mean, (model, self.layout));
                (mean, Some(report))
            }
        };
        Ok(Gathered {
            adapters,
            drift: self.drift.map(|drift| drift.close(&mean)),
            mean,
            correction: self.corrections.mean(),
            // A loss is what clients' examples say, and no guarantee covers it.
            loss: (weight > 0.0 && self.recipe.privacy.is_none()).then(|| loss / weight),
            noise: self.noise.close(),
            ..self.result
        })
    }

    fn refuse(&mut self, client: ClientId, reason: Failure) -> Verdict {
        self.result.refused.push(reason.of(client));
        Verdict::Refused
    }

    /// Whether the answer is one update, as it should be, that nobody has to look at again.
    fn is_plain(&self, client: ClientId, reply: &Reply) -> bool {
        let due = self.due.get(&client);
        let looked_at = self.drift.is_some()
            || self.products.is_some()
            || self.recipe.max_norm.is_some()
            || self.recipe.client_privacy().is_some();
        !looked_at && reply.correction.is_none() && due.is_some_and(|due| !due.correction)
    }

    /// Checks and folds an answer at once.
    fn take(&mut self, client: ClientId, reply: Reply) -> Result<(), Refusal> {
        let due = &self.due[&client];
        let expected = self.expectation(client, Kind::Change, due);
        let recipe = self.recipe;
        let judge = |header: &Header| {
            due.check_claims(header)?;
            Ok::<_, Refusal>(due.contribution(recipe, header))
        };
        let Taken { header, norm, .. } = self.changes.take(reply.payload, &expected, judge)?;
        self.note_norm(client, norm);
        self.settle(client, &header);
        Ok(())
    }

    fn note_norm(&mut self, client: ClientId, norm: Option<f64>) {
        if let (Some(norms), Some(norm)) = (&mut self.norms, norm) {
            norms.insert(client, norm);
        }
    }

    /// The limit of a norm, once it is known.
    fn limit(&self) -> Option<f64> {
        self.recipe.max_norm?.of(self.norms.as_ref()?)
    }

    /// Refuses updates that are too large for their cohort, now that all of it is known.
    fn refuse_far(&mut self) {
        let Some(MaxNorm { above: Above::Refuse, .. }) = self.recipe.max_norm else { return };
        let (Some(limit), Some(norms)) = (self.limit(), &self.norms) else { return };
        for (client, found) in norms.clone() {
            if found > limit && self.waiting.remove(client) {
                self.refuse(client, Refusal::norm(found, limit).into());
                self.result.revoked.push(client);
            }
        }
    }

    /// What the norms say.
    fn norm_report(&self) -> Option<NormReport> {
        let norms = self.norms.as_ref()?;
        let median = median(norms)?;
        let is_far = |(_, norm): &(&ClientId, &f64)| **norm > FAR * median;
        let far =
            norms.iter().filter(is_far).map(|(id, norm)| FarUpdate { client: *id, norm: *norm });
        let report = NormReport { median, far: far.collect(), scaled: self.scaled.clone() };
        (!report.far.is_empty() || !report.scaled.is_empty()).then_some(report)
    }

    /// Opens everything in an answer and holds its claims, and its norm, against the request.
    fn judge(&self, client: ClientId, reply: Reply) -> Result<(Answer, Option<f64>), Refusal> {
        let due = &self.due[&client];
        if reply.correction.is_some() != due.correction {
            let [found, expected] = [reply.correction.is_some(), due.correction]
                .map(|present| if present { "with" } else { "without" });
            return Err(Refusal::Reply(format!("came {found} a correction, expected {expected}")));
        }
        let answer = self.open(client, reply.payload, reply.correction)?;
        let update = &answer.change;
        due.check_claims(&update.header)?;
        let norm = self.norms.is_some().then(|| update.norm());
        if let (Some(found), Some(max_norm)) = (norm, self.recipe.max_norm)
            && let MaxNorm { limit: NormLimit::Norm(limit), above: Above::Refuse } = max_norm
            && found > limit
        {
            return Err(Refusal::norm(found, limit));
        }
        Ok((answer, norm))
    }

    /// Checks the bytes of an answer that is due.
    fn open(
        &self,
        client: ClientId,
        change: Vec<u8>,
        correction: Option<Vec<u8>>,
    ) -> Result<Answer, WireError> {
        let due = &self.due[&client];
        let open = |kind, bytes| open(bytes, &self.expectation(client, kind, due));
        let correction = correction.map(|bytes| open(Kind::Variate, bytes));
        Ok(Answer { change: open(Kind::Change, change)?, correction: correction.transpose()? })
    }

    fn expectation<'due>(&self, client: ClientId, kind: Kind, due: &'due Due) -> Expectation<'due>
    where
        'round: 'due,
    {
        let encoding = match kind {
            Kind::Change => due.work.encoding,
            // A coarse correction would part the clients' sum from the server's.
            Kind::Values | Kind::Variate => Encoding::F32,
        };
        let layout = due.narrow.as_ref().unwrap_or(self.layout);
        let (round, scope) = (self.round, Some(&due.uploads));
        Expectation { layout, kind, encoding, round, client, scope }
    }

    /// Folds, in client order, every waiting answer that no unsettled client comes before. Where all norms have to be
    /// known first, nobody's turn comes before the last arrival.
    fn fold_settled(&mut self) -> Result<(), EngineError> {
        if !self.is_closing && self.recipe.max_norm.is_some_and(MaxNorm::waits_for_all) {
            return Ok(());
        }
        let limit = self.limit();
        while let Some((client, early)) = self.waiting.next(self.unsettled.first().copied()) {
            let answer = match early {
                Early::Held(answer) => answer,
                Early::Filed { change, correction } => {
                    let read = |record: &Record| {
                        let path = &record.scratch.path;
                        let failed =
                            |error| EngineError::disk("reading an early update", path, error);
                        record.bytes().map_err(failed)
                    };
                    let correction = correction.as_ref().map(read).transpose()?;
                    self.open(client, read(&change)?, correction)?
                }
            };
            let norm = self.norms.as_ref().and_then(|norms| norms.get(&client)).copied();
            match limit.zip(norm).filter(|(limit, norm)| norm > limit) {
                None => {
                    let answer = self.wide(client, answer)?;
                    self.fold(client, &answer);
                }
                Some((limit, norm)) => {
                    let layout = self.due[&client].narrow.as_ref().unwrap_or(self.layout);
                    let change = shortened(&answer.change, limit / norm, layout)?;
                    let answer = self.wide(client, Answer { change, ..answer })?;
                    self.fold(client, &answer);
                    self.scaled.push(client);
                }
            }
        }
        Ok(())
    }

    /// An answer about adapters of a lower rank as one about the shared ones.
    fn wide(&self, client: ClientId, answer: Answer) -> Result<Answer, EngineError> {
        let Some(narrow) = &self.due[&client].narrow else { return Ok(answer) };
        let header = Header { encoding: Encoding::F32, ..answer.change.header };
        let values = widened(answer.change.tensors(), self.model, (self.layout, narrow));
        let bytes = encode(self.layout, &header, &values, None)?;
        let change = open(bytes, &Expectation::of(self.layout, &header))?;
        Ok(Answer { change, ..answer })
    }

    fn fold(&mut self, client: ClientId, answer: &Answer) {
        let update = &answer.change;
        let due = &self.due[&client];
        let contribution = match self.recipe.client_privacy() {
            None => due.contribution(self.recipe, &update.header),
            Some(privacy) => {
                let factor = privacy.factor(update);
                self.result.private_weight += factor;
                Contribution::weighing(factor)
            }
        };
        self.changes.add(update, contribution);
        self.compare(update, contribution);
        if let Some(correction) = &answer.correction {
            let weight = contribution.weight;
            self.corrections.add(correction, Contribution::weighing(weight));
        }
        self.settle(client, &update.header);
    }

    /// Counts an update towards drift and the products of adapters, where anybody wants to know.
    fn compare(&mut self, update: &Opened, contribution: Contribution) {
        if let Some(drift) = &mut self.drift {
            drift.add(update, contribution);
        }
        if let Some((products, model)) = &mut self.products {
            products.add(update, contribution, model);
        }
    }

    /// Writes down an answer that is in the sum.
    fn settle(&mut self, client: ClientId, header: &Header) {
        // An app that is none of ours may not tell it.
        if let Some(loss) = header.loss {
            self.loss.0 += f64::from(loss) * header.examples as f64;
            self.loss.1 += header.examples as f64;
        }
        let contribution = self.due[&client].contribution(self.recipe, header);
        self.counted.insert(client, (contribution, *header));
        self.result.arrived.push(client);
        self.result.steps.insert(client, header.steps);
        self.result.weight += self.recipe.weighting.of(header.examples);
    }
}

/// The same update, shorter.
fn shortened(update: &Opened, factor: f64, layout: &Layout) -> Result<Opened, EngineError> {
    let header = Header { encoding: Encoding::F32, ..update.header };
    let shorter = |value: f32| (factor * f64::from(value)) as f32;
    let values: ParamValues = update
        .iter()
        .map(|(id, values)| (id, values.into_iter().map(shorter).collect::<Vec<f32>>()))
        .collect();
    let bytes = encode(layout, &header, &values, None)?;
    Ok(open(bytes, &Expectation::of(layout, &header))?)
}

impl Due {
    fn check_claims(&self, header: &Header) -> Result<(), Refusal> {
        let within = |what: &str, found: u64, most: u64| {
            let refusal =
                || Refusal::Reply(format!("reports {found} {what}, expected 1 to {most}"));
            if (1..=most).contains(&found) { Ok(()) } else { Err(refusal()) }
        };
        within("examples", header.examples, self.examples)?;
        within("steps", u64::from(header.steps), self.steps)
    }

    /// How much an answer with such a header counts.
    fn contribution(&self, recipe: &Recipe, header: &Header) -> Contribution {
        Contribution {
            weight: recipe.weighting.of(header.examples),
            pace: match recipe.pace {
                StepNormalisation::Ignored => 1.0,
                StepNormalisation::Normalised => pace(&self.work, header),
            },
        }
    }
}

/// How far the solver's steps carry a constant gradient, in units of the rate (`a_i` of `FedNova`,
/// its section 4.1): with a proximal term or momentum a step is not worth one.
fn pace(work: &Work, header: &Header) -> f64 {
    let steps = f64::from(header.steps);
    let prox = match work.local {
        LocalRule::Proximal { mu } | LocalRule::Dynamic { alpha: mu } => {
            f64::from(work.solver.rate()) * f64::from(mu)
        }
        LocalRule::Plain | LocalRule::ControlVariate => 0.0,
    };
    match work.solver {
        OptimiserConfig::Momentum { momentum, .. } if momentum > 0.0 => {
            let rho = f64::from(momentum);
            (steps - rho * (1.0 - rho.powf(steps)) / (1.0 - rho)) / (1.0 - rho)
        }
        OptimiserConfig::Sgd { .. } if prox > 0.0 && prox < 1.0 => {
            (1.0 - (1.0 - prox).powf(steps)) / prox
        }
        OptimiserConfig::Sgd { .. }
        | OptimiserConfig::Momentum { .. }
        | OptimiserConfig::AdamW { .. } => steps,
    }
}

/// Why an answer is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Payload(#[from] WireError),
    #[error("{0}")]
    Reply(String),
}

impl Refusal {
    fn norm(found: f64, limit: f64) -> Self {
        Self::Reply(format!(
            "its update has norm {found:.3e}, expected at most {limit:.3e} (federation.max_norm)"
        ))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let diverged = matches!(&refusal, Refusal::Payload(error) if error.is_divergence());
        Self { reason: refusal.to_string(), diverged }
    }
}
