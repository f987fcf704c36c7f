//! One attempt at a round: a cohort is drawn, asked and heard, and either enough updates arrive or
//! the attempt is taken back and the round is tried again.
//!
//! ```text
//! attempt 0    cohort and bad luck are drawn from the experiment's seed and the round
//! attempt a    both are drawn from the seed of the a-th attempt; all other draws stay the same
//! too few      what clients keep and what selection remembers become what they were; the model,
//!              the server's history and who holds which version have not been touched yet
//! enough       the round continues: see Federation::round
//! ```
//!
//! So a failed attempt leaves its bill behind, bytes and effort, and nothing else: a client that
//! answered in vain is as if it had not been asked, and downloads again what it was sent. A cohort
//! that is too small from the start fails without anybody being asked. Clients keep the state before
//! their answer only where an attempt with some arrivals can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fedra_plan::{ByteCount, Plan, Round, Scope};
use fedra_seed::Seed;
use fedra_wire::{ClientId, Encoding, Kind, payload_length};

use crate::aggregate::attention::AttentionDrift;
use crate::aggregate::max_norm::MaxNorm;
use crate::cohort::conditions::Fate;
use crate::error::EngineError;
use crate::privacy::private_steps::PrivateSteps;
use crate::protocol::bytes::Bytes;
use crate::protocol::fleet::{Absence, ClientInfo, Fleet, SharedPayload, TrainRequest};
use crate::protocol::server_segment::{SegmentHost, SideMemory};
use crate::recipe::{Population, Recipe, Start};
use crate::report::FailedAttempt;
use crate::report::phases::{Phases, Stopwatch};
use crate::round::aggregator::{Aggregator, Gathered};
use crate::round::downloads::Downloads;
use crate::round::sync::sent_bytes;
use crate::selection::SelectionReport;
use crate::state::State;
use crate::work::{LocalRule, Work};

/// What came of asking one cohort.
#[derive(Default)]
pub(crate) struct Attempt {
    pub(crate) cohort: Vec<ClientInfo>,
    /// The fewest updates with which it counts.
    needed: usize,
    /// The plan of each client of the cohort.
    pub(crate) plans: BTreeMap<ClientId, Plan>,
    pub(crate) selection: Option<SelectionReport>,
    pub(crate) attention: Option<AttentionDrift>,
    pub(crate) gathered: Gathered,
    /// Who was not asked to train, beside those whom the fleet reports.
    absent: Vec<Absence>,
    /// How many of the cohort were sent a download.
    sent: u64,
    pub(crate) bytes: Bytes,
    pub(crate) effort: u64,
    /// How long it took so far, with the attempts before it.
    pub(crate) phases: Phases,
}

impl Attempt {
    fn suffices(&self) -> bool {
        self.gathered.arrived.len() >= self.needed
    }

    /// The numbers of the cohort.
    pub(crate) fn ids(&self) -> Vec<ClientId> {
        self.cohort.iter().map(|client| client.id).collect()
    }

    /// Who sent no update and whose answer was refused, in client order.
    pub(crate) fn absences(&mut self) -> (Vec<Absence>, Vec<Absence>) {
        let in_order = |mut absences: Vec<Absence>| {
            absences.sort_by_key(|absence| absence.client);
            absences
        };
        let mut failed = std::mem::take(&mut self.absent);
        failed.append(&mut self.gathered.failed);
        (in_order(failed), in_order(std::mem::take(&mut self.gathered.refused)))
    }

    /// Blocks that learned at a client whose update arrived.
    pub(crate) fn blocks(&self) -> BTreeSet<u16> {
        let learned = self.gathered.arrived.iter().filter_map(|client| self.plans.get(client));
        learned.flat_map(|plan| plan.learns().blocks()).collect()
    }

    fn failed(mut self) -> FailedAttempt {
        let (failed, refused) = self.absences();
        FailedAttempt {
            cohort: self.ids(),
            needed: self.needed,
            arrived: self.gathered.arrived,
            failed,
            refused,
            bytes: self.bytes,
            effort: self.effort,
        }
    }
}

/// Where the draws of an attempt at a round start: those of the first at the experiment's seed.
fn seed_of_attempt(experiment: Seed, attempt: u32) -> Seed {
    match attempt {
        0 => experiment,
        again => experiment.of("attempt").with(u64::from(again)),
    }
}

impl Recipe {
    /// The first cohort of a round that is large enough, out of these clients, and so the one that
    /// makes the round if nobody fails; empty when no attempt draws one.
    pub fn cohort(&self, experiment: Seed, round: Round, clients: &[ClientId]) -> Vec<ClientId> {
        let draw =
            |attempt| self.sampler.draw(seed_of_attempt(experiment, attempt), round, clients);
        let is_enough = |cohort: &Vec<ClientId>| cohort.len() >= self.min_arrivals.of(cohort.len());
        (0..=self.retries).map(draw).find(is_enough).unwrap_or_default()
    }
}

impl State {
    /// Tries the round until enough updates arrive; what came of the attempts before is told
    /// beside the one that counts. `None` when it was told to stop between two of them.
    pub(crate) fn attempts(
        &mut self,
        fleet: &mut dyn Fleet,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<(Attempt, Vec<FailedAttempt>)>, EngineError> {
        let mut failed: Vec<FailedAttempt> = Vec::new();
        let mut phases = Phases::default();
        for number in 0..=self.recipe.retries {
            if let Some(last) = failed.last() {
                let absent: Vec<ClientId> = last.failed.iter().map(|it| it.client).collect();
                fleet.await_return(&absent, number, stop)?;
                if stop() {
                    return Ok(None);
                }
            }
            let mut attempt = self.attempt(fleet, seed_of_attempt(self.cohort_seed(), number))?;
            phases += attempt.phases;
            attempt.phases = phases;
            if attempt.suffices() {
                return Ok(Some((attempt, failed)));
            }
            failed.push(attempt.failed());
        }
        Err(gave_up(self.round, &failed, fleet.clients()))
    }

    /// Where the draw of a cohort starts. What sampling adds to client-level privacy holds only against who
    /// does not know it, so a server with a secret draws by that.
    fn cohort_seed(&self) -> Seed {
        if self.simulated || self.recipe.client_privacy().is_none() {
            return self.seed;
        }
        let draws = self.noise.of("cohort").with(u64::from(self.round.0)).uniforms();
        draws.take(2).fold(Seed(0), |seed, draw| seed.with(draw.to_bits()))
    }

    /// Asks one cohort. If too few answer, all is as it was before.
    fn attempt(&mut self, fleet: &mut dyn Fleet, seed: Seed) -> Result<Attempt, EngineError> {
        let cohort = self.draw(fleet.clients(), seed)?;
        let needed = self.recipe.min_arrivals.of(cohort.len());
        if cohort.len() < needed {
            return Ok(Attempt { cohort, needed, ..Attempt::default() });
        }
        let memory = self.rule().needs_choice().then(|| self.memory.clone());
        let mut attempt = Attempt { cohort, needed, ..Attempt::default() };
        let mut watch = Stopwatch::start();
        if let Some(middle) = self.middle()? {
            middle.host(&self.model)?;
        }
        let (present, mut down) = self.sync(fleet, &mut attempt)?;
        attempt.phases.sync = watch.lap();
        let ids: Vec<ClientId> = present.iter().map(|client| client.id).collect();
        let (attention, looked) = self.look(fleet, &ids)?;
        (attempt.plans, attempt.selection) = self.plan(fleet, &present)?;
        self.check_base(&attempt.plans)?;
        attempt.phases.probe = watch.lap();
        // Who is too far from its cohort is refused after its answer was taken.
        let revocable = needed > 1 || self.recipe.max_norm.is_some_and(MaxNorm::refuses_late);
        let (work, requests, corrections) =
            self.dispatch(&present, &mut attempt, (seed, revocable))?;
        self.announce_training(&requests, &present)?;
        let mut gathered = self.gather(fleet, requests, &present)?;
        attempt.phases.train = watch.lap();
        self.protect(&mut gathered, fleet.clients())?;
        attempt.phases.apply = watch.lap();
        gathered.up += looked;
        down += corrections;
        (attempt.attention, attempt.gathered) = (attention, gathered);
        attempt.effort = self.effort(&attempt, &work);
        attempt.bytes = self.bytes(&attempt, down);
        if !attempt.suffices() {
            self.memory = memory.unwrap_or_else(|| std::mem::take(&mut self.memory));
            fleet.revoke(&ids)?;
        } else if !attempt.gathered.revoked.is_empty() {
            fleet.revoke(&attempt.gathered.revoked)?;
        }
        Ok(attempt)
    }
}

/// The steps of an attempt, in order.
impl State {
    /// Draws the cohort. A client without examples is never drawn.
    fn draw(&self, clients: &[ClientInfo], seed: Seed) -> Result<Vec<ClientInfo>, EngineError> {
        let here = |name: &str| self.recipe.conditions.is_here(name, self.round);
        let with_examples =
            clients.iter().filter(|client| client.examples > 0 && here(&client.name));
        let with_examples: Vec<ClientInfo> = with_examples.cloned().collect();
        let drawn = self.own_cohort(&with_examples)?.unwrap_or_else(|| {
            let ids: Vec<ClientId> = with_examples.iter().map(|client| client.id).collect();
            self.recipe.sampler.draw(seed, self.round, &ids)
        });
        let is_drawn = |client: &ClientInfo| drawn.binary_search(&client.id).is_ok();
        Ok(with_examples.into_iter().filter(is_drawn).collect())
    }

    /// Brings the cohort up to date; tells who is, who could not be reached, and what went down.
    fn sync(
        &self,
        fleet: &mut dyn Fleet,
        attempt: &mut Attempt,
    ) -> Result<(Vec<ClientInfo>, ByteCount), EngineError> {
        let downloads = self.downloads(&attempt.cohort)?;
        let unsynced = fleet.sync(&downloads)?;
        let (sent, down) = sent_bytes(&downloads, &unsynced);
        let gone: BTreeSet<ClientId> = unsynced.iter().map(|it| it.absence.client).collect();
        let present = attempt.cohort.iter().filter(|client| !gone.contains(&client.id));
        let present = present.cloned().collect();
        attempt.sent = sent;
        attempt.absent = unsynced.into_iter().map(|it| it.absence).collect();
        Ok((present, down))
    }

    /// Decides which part learns at each client of the cohort; a rule that ranks blocks asks for
    /// evidence first and tells how it chose.
    fn plan(
        &mut self,
        fleet: &mut dyn Fleet,
        cohort: &[ClientInfo],
    ) -> Result<(BTreeMap<ClientId, Plan>, Option<SelectionReport>), EngineError> {
        let rule = self.rule();
        // Whom a guarantee hides, it hides in an empty round too: blocks are chosen all the same.
        let is_asked = !cohort.is_empty() || self.recipe.client_privacy().is_some();
        if rule.needs_choice() && is_asked {
            let cohort: Vec<&ClientInfo> = cohort.iter().collect();
            let (plans, report) = self.choose(fleet, &rule, &cohort)?;
            return Ok((plans, Some(report)));
        }
        let plans = match cohort {
            [] => BTreeMap::new(),
            some => self.choice(&rule).plans(some)?,
        };
        Ok((plans, None))
    }

    /// Refuses to let learn what nobody could be told of.
    fn check_base(&self, plans: &BTreeMap<ClientId, Plan>) -> Result<(), EngineError> {
        let learns = plans.values().flat_map(|plan| plan.learns().iter());
        match learns.into_iter().find(|id| self.versions.base().contains(*id)) {
            Some(id) => Err(EngineError::BaseLearns { id }),
            None => Ok(()),
        }
    }

    /// Writes the requests to those whom fate lets work.
    fn dispatch(
        &self,
        cohort: &[ClientInfo],
        attempt: &mut Attempt,
        (seed, revocable): (Seed, bool),
    ) -> Result<(Work, Vec<TrainRequest>, ByteCount), EngineError> {
        let private = self.recipe.private_steps().map(|steps| {
            let clip = self.history.clip.map_or(steps.clip, |clip| clip.0);
            PrivateSteps { clip, ..steps }
        });
        let work = Work { damped: self.damped()?, private, ..self.recipe.work.clone() };
        let steps = |client: &ClientInfo| (client.id, work.steps(client.examples));
        let asked: Vec<(ClientId, u64)> = cohort.iter().map(steps).collect();
        let fates = self.recipe.conditions.fates(seed, self.round, &asked);

        let split = self.recipe.split.clone().map(Arc::new);
        let mut requests = Vec::new();
        let (place, mut length) = ((&self.layout, self.round), ByteCount(0));
        let mut corrections = Downloads::new(Kind::Variate, Encoding::F32);
        for (client, fate) in fates {
            let plan = attempt.plans.get(&client).expect("everybody in the cohort has a plan");
            let correction = if work.local == LocalRule::ControlVariate {
                Some(corrections.get(place, &self.server.variate, plan.uploads())?)
            } else {
                None
            };
            length += ByteCount(correction.as_ref().map_or(0, SharedPayload::len) as u64);
            let reason = match fate {
                Fate::Works => {
                    requests.push(TrainRequest {
                        client,
                        round: self.round,
                        seed: self.client_seed(client),
                        correction,
                        plan: plan.clone(),
                        work: work.clone(),
                        revocable,
                        split: split.clone(),
                    });
                    continue;
                }
                Fate::Fails => "failed (simulated)",
                Fate::Late => "late: the round had closed (simulated)",
            };
            attempt.absent.push(Absence { client, reason: reason.to_owned(), diverged: false });
        }
        Ok((work, requests, length))
    }

    /// Lets the fleet train, checks what comes back and folds it.
    fn gather(
        &self,
        fleet: &mut dyn Fleet,
        requests: Vec<TrainRequest>,
        cohort: &[ClientInfo],
    ) -> Result<Gathered, EngineError> {
        let mut gather = Aggregator::new(self, &requests, cohort);
        if requests.is_empty() {
            return gather.close();
        }
        let Some(middle) = self.middle()? else {
            fleet.train(requests, &mut |arrival| gather.arrive(arrival))?;
            return gather.close();
        };
        let weights: BTreeMap<ClientId, f64> = cohort
            .iter()
            .map(|client| (client.id, self.recipe.weighting.of(client.examples)))
            .collect();
        middle.begin(&requests, &weights)?;
        fleet.train(requests, &mut |arrival| {
            let client = arrival.client;
            let verdict = gather.arrive(arrival)?;
            middle.settle(client, verdict);
            Ok(verdict)
        })?;
        for update in middle.updates()? {
            gather.fold_middle(&update)?;
        }
        Ok(Gathered { crossing: middle.crossed(), ..gather.close()? })
    }

    /// What those computed who measured, and those whose updates arrived.
    fn effort(&self, attempt: &Attempt, work: &Work) -> u64 {
        let probing = attempt.selection.as_ref().map_or(0, |selection| selection.effort);
        let worked = attempt.cohort.iter().filter_map(|client| {
            let steps = *attempt.gathered.steps.get(&client.id)?;
            let plan = attempt.plans.get(&client.id)?;
            let layout = self.recipe.layout_of(&client.name, &self.layout);
            Some(work.effort(plan, &layout, (client.examples, steps)))
        });
        probing + worked.sum::<u64>()
    }

    /// What both sides of a cut held, as far as they have processes of their own.
    pub(super) fn side_memory(&self, client: Option<ByteCount>) -> Option<SideMemory> {
        let (middle, client) = (self.middle.as_ref()?, client?);
        Some(SideMemory { client, server: middle.memory() })
    }

    /// The server's half, where the model is cut.
    pub(super) fn middle(&self) -> Result<Option<&dyn SegmentHost>, EngineError> {
        match (&self.recipe.split, &self.middle) {
            (None, _) => Ok(None),
            (Some(_), Some(middle)) => Ok(Some(&**middle)),
            (Some(_), None) => Err(EngineError::Fleet {
                doing: "train a cut model",
                reason: "no process computes the server's blocks".to_owned(),
            }),
        }
    }

    fn bytes(&self, attempt: &Attempt, down: ByteCount) -> Bytes {
        let talk = |part: fn(&SelectionReport) -> ByteCount| {
            attempt.selection.as_ref().map_or(ByteCount(0), part)
        };
        let length = |scope: &Scope| payload_length(&self.layout, scope, Encoding::F32) as u64;
        let crossing = attempt.gathered.crossing;
        let full = length(&Scope::everything(&self.layout));
        let full_download = match self.recipe.start {
            Start::Shared if self.round == Round(0) => length(&Scope::empty()),
            Start::Sent | Start::Shared => full,
        };
        match self.recipe.population {
            Population::Pooled => Bytes::default(),
            Population::Federated => Bytes {
                up: attempt.gathered.up + talk(|report| report.scores_up) + crossing.up(),
                down: down + talk(|report| report.masks_down) + crossing.down(),
                full_up: ByteCount(full * attempt.gathered.answers),
                full_down: ByteCount(full_download * attempt.sent),
                evaluation: ByteCount(0),
                crossing,
            },
        }
    }
}

/// The error of a round in which no attempt brought enough updates: the best one is told.
fn gave_up(round: Round, failed: &[FailedAttempt], clients: &[ClientInfo]) -> EngineError {
    let best = failed.iter().rev().max_by_key(|attempt| attempt.arrived.len());
    let mut absent = best.into_iter().flat_map(|best| best.failed.iter().chain(&best.refused));
    // One whose numbers ran away says most: the same rounds would end in the same way again.
    let first = absent.clone().next();
    let reason = absent.find(|absence| absence.diverged).or(first);
    EngineError::TooFewArrivals {
        round: round.0 + 1,
        attempts: failed.len(),
        arrived: best.map_or(0, |best| best.arrived.len()),
        cohort: best.map_or(0, |best| best.cohort.len()),
        expected: best.map_or(0, |best| best.needed),
        up: failed.iter().map(|attempt| attempt.bytes.up).sum(),
        down: failed.iter().map(|attempt| attempt.bytes.down).sum(),
        diverged: reason.is_some_and(|absence| absence.diverged),
        reason: reason.map_or(String::new(), |absence| format!(" ({})", absence.in_words(clients))),
    }
}
