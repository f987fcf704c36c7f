//! A federation and its rounds.
//!
//! [`Federation::round`] is the whole algorithm, top to bottom; everything it calls is one of the
//! recipe's choices or a helper with a name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fedra_plan::{ByteCount, Layout, ParamId, Probe, Round, Scope, Selector, View};
use fedra_seed::Seed;
use fedra_wire::payload_length;
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, Tensors, decode, encode};

use crate::attention::AttentionDrift;
use crate::checkpoint;
use crate::conditions::Fate;
use crate::diary::Diary;
use crate::downloads::Downloads;
use crate::drift::DriftReport;
use crate::effort;
use crate::error::EngineError;
use crate::fleet::{Adaptation, ClientInfo, EvaluationSet, Examination, Fleet, Order};
use crate::gather::{Gather, Gathered};
use crate::log_mark::LogMark;
use crate::recipe::{Population, Recipe, Start};
use crate::report::{Absence, Bytes, RoundReport, SetScores, Sink};
use crate::selection::{Memory, SelectionReport};
use crate::server::{ServerState, Step};
use crate::versions::Versions;
use crate::work::{LocalRule, Work};

/// A model, the recipe that trains it, and all that the server remembers.
#[derive(Clone, Debug)]
pub struct Federation {
    pub(crate) recipe: Recipe,
    pub(crate) layout: Layout,
    pub(crate) seed: Seed,
    pub(crate) round: Round,
    pub(crate) model: Tensors,
    pub(crate) server: ServerState,
    pub(crate) versions: Versions,
    pub(crate) diary: Diary,
    pub(crate) memory: Memory,
    pub(crate) log: LogMark,
    checkpoints: Option<PathBuf>,
}

impl Federation {
    /// A federation before its first round; the initial model has to be whole.
    pub fn new(
        recipe: Recipe,
        layout: Layout,
        initial: Tensors,
        seed: Seed,
    ) -> Result<Self, EngineError> {
        initial.check(&layout)?;
        if initial.len() != layout.len() {
            let (found, expected) = (initial.len(), layout.len());
            return Err(EngineError::InitialModel { found, expected });
        }
        recipe.fits(&layout)?;
        let versions = Versions::new(recipe.start);
        Ok(Self {
            recipe,
            layout,
            seed,
            round: Round(0),
            model: initial,
            server: ServerState::default(),
            versions,
            diary: Diary::default(),
            memory: Memory::default(),
            log: LogMark::default(),
            checkpoints: None,
        })
    }

    /// Writes a checkpoint into this directory after every round, over the one before. What a
    /// killed process left of an unfinished one is removed.
    pub fn keep_checkpoints(&mut self, directory: impl Into<PathBuf>) {
        let directory = directory.into();
        checkpoint::discard_unfinished(&directory);
        self.checkpoints = Some(directory);
    }

    /// Goes back to the checkpoint in a directory, and brings the fleet along; says whether there
    /// was one.
    pub fn resume(&mut self, directory: &Path, fleet: &mut dyn Fleet) -> Result<bool, EngineError> {
        let Some(loaded) = checkpoint::load(self, directory)? else {
            return Ok(false);
        };
        fleet.restore(&loaded.federation.as_received()?, &mut loaded.states())?;
        *self = loaded.federation;
        Ok(true)
    }

    /// Runs rounds until so many are complete in all, or until `stop` says so between two rounds.
    pub fn run(
        &mut self,
        fleet: &mut dyn Fleet,
        sinks: &mut [&mut dyn Sink],
        rounds: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.recipe.check(fleet.clients().len())?;
        let names: Vec<&str> = fleet.clients().iter().map(|client| client.name.as_str()).collect();
        self.recipe.check_model(&self.layout, &names)?;
        check_clients(fleet.clients())?;
        while self.round.0 < rounds && !stop() {
            let is_last = self.round.0 + 1 == rounds;
            let report = self.round(fleet, is_last)?;
            for sink in &mut *sinks {
                sink.round(&report)?;
            }
            self.log = self.log.with(&report.to_line()?)?;
            if let Some(directory) = &self.checkpoints {
                checkpoint::save(self, &*fleet, directory)?;
            }
        }
        Ok(())
    }

    /// One round.
    fn round(&mut self, fleet: &mut dyn Fleet, is_last: bool) -> Result<RoundReport, EngineError> {
        let begun = Instant::now();
        let round = self.round;
        let clients = fleet.clients().to_vec();

        let cohort = self.draw(&clients);
        self.turn(fleet)?;
        let (attention, looked) = self.look(fleet, &cohort)?;
        let (learns, mut selection) = self.plan(fleet, &clients, &cohort)?;
        let Dispatch { orders, absent, down } = self.dispatch(&clients, &learns)?;
        let probing = selection.as_ref().map_or(0, |selection| selection.effort);
        let effort = probing + effort::of(&self.recipe, &self.layout, &orders, &clients);
        let mut gathered = self.gather(fleet, orders, &clients)?;
        gathered.up += looked;
        self.take_trials(&learns, &gathered.trials);
        match &mut selection {
            Some(selection) => selection.scores_up += gathered.trials_up,
            None => gathered.up += gathered.trials_up,
        }
        self.apply(&gathered, clients.len())?;
        self.watch(gathered.drift.as_ref());
        self.round = round.next();
        let scores = self.evaluate(fleet, is_last)?;

        Ok(RoundReport {
            round,
            bytes: self.bytes(round, cohort.len(), (down, selection.as_ref()), &gathered),
            effort,
            blocks: learns.values().flat_map(Scope::blocks).collect(),
            changed: gathered.mean.elements() as u64,
            cohort,
            arrived: gathered.arrived,
            failed: in_client_order(absent, gathered.failed),
            refused: in_client_order(gathered.refused, Vec::new()),
            loss: gathered.loss,
            seconds: begun.elapsed().as_secs_f64(),
            slowest: gathered.slowest,
            most_updates_held: gathered.most_held,
            drift: drift_report(gathered.drift, attention),
            stage: self.stage_report(),
            scores,
            selection,
        })
    }

    /// The global model.
    pub const fn model(&self) -> &Tensors {
        &self.model
    }

    /// How many rounds are complete.
    pub const fn completed(&self) -> Round {
        self.round
    }

    /// The log of reports that belongs to what is complete.
    pub const fn log(&self) -> LogMark {
        self.log
    }

    /// What the server's optimiser remembers.
    pub const fn server(&self) -> &ServerState {
        &self.server
    }

    /// The recipe.
    pub const fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}

/// The orders of a round, who will not get one, and what the downloads weigh.
struct Dispatch {
    orders: Vec<Order>,
    absent: Vec<Absence>,
    down: ByteCount,
}

/// The steps of a round, in order.
impl Federation {
    /// Draws the cohort. A client without examples is never drawn.
    fn draw(&self, clients: &[ClientInfo]) -> Vec<ClientId> {
        let here = |name: &str| self.recipe.conditions.is_here(name, self.round);
        let with_examples =
            clients.iter().filter(|client| client.examples > 0 && here(&client.name));
        let ids: Vec<ClientId> = with_examples.map(|client| client.id).collect();
        self.recipe.sampler.draw(self.seed, self.round, &ids)
    }

    /// Decides which part learns at each client of the cohort; a rule that ranks blocks asks for
    /// evidence first and tells how it chose.
    fn plan(
        &mut self,
        fleet: &mut dyn Fleet,
        clients: &[ClientInfo],
        cohort: &[ClientId],
    ) -> Result<(BTreeMap<ClientId, Scope>, Option<SelectionReport>), EngineError> {
        let cohort: Vec<&ClientInfo> =
            clients.iter().filter(|client| cohort.contains(&client.id)).collect();
        let rule = self.rule();
        if rule.probe(self.round) != Probe::Nothing && !cohort.is_empty() {
            let chosen = self.choose(fleet, &rule, &cohort)?;
            return Ok((chosen.learns, Some(chosen.report)));
        }
        let view = View { layout: &self.layout, round: self.round, scores: None };
        let scope = rule.select(view);
        let mut learns = BTreeMap::new();
        for client in cohort {
            let reach = self.recipe.reach(&client.name, &self.layout);
            learns.insert(client.id, &scope.clone()? & &reach);
        }
        Ok((learns, None))
    }

    /// Encodes what each client lacks and writes the orders of those whom fate lets work.
    fn dispatch(
        &self,
        clients: &[ClientInfo],
        learns: &BTreeMap<ClientId, Scope>,
    ) -> Result<Dispatch, EngineError> {
        let trial = self.recipe.selection.trial_examples(self.round);
        let work = Work { damped: self.damped()?, trial, ..self.recipe.work.at(self.round) };
        let personal = self.personal()?;
        let steps = |client: &ClientInfo| (client.id, work.steps(client.examples));
        let reach = |id: ClientId| {
            let client = clients.iter().find(|client| client.id == id);
            self.recipe.reach(client.map_or("", |client| &client.name), &self.layout)
        };
        let asked: Vec<(ClientId, u64)> =
            clients.iter().filter(|client| learns.contains_key(&client.id)).map(steps).collect();

        let mut dispatch = Dispatch { orders: Vec::new(), absent: Vec::new(), down: ByteCount(0) };
        let place = (&self.layout, self.round);
        let mut values = Downloads::new(Kind::Values, work.download);
        let mut variates = Downloads::new(Kind::Variate, Encoding::F32);
        for (client, fate) in self.recipe.conditions.fates(self.seed, self.round, &asked) {
            let learns = learns.get(&client).cloned().unwrap_or_default();
            let lacks = self.versions.lacks(client, &self.layout, &personal);
            let lacks = if self.recipe.depths.is_empty() { lacks } else { &lacks & &reach(client) };
            let payload = values.get(place, &self.model, lacks)?;
            let extra = match work.local {
                LocalRule::Scaffold => {
                    Some(variates.get(place, &self.server.variate, &learns - &personal)?)
                }
                LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => None,
            };
            let extra_length = extra.as_ref().map_or(0, |extra| extra.len());
            dispatch.down += ByteCount((payload.len() + extra_length) as u64);
            let reason = match fate {
                Fate::Works => {
                    dispatch.orders.push(Order {
                        client,
                        round: self.round,
                        seed: self.client_seed(client),
                        payload,
                        extra,
                        learns,
                        personal: personal.clone(),
                        work: work.clone(),
                    });
                    continue;
                }
                Fate::Fails => "failed (simulated)",
                Fate::Late => "late: the round had closed (simulated)",
            };
            dispatch.absent.push(Absence { client, reason: reason.to_owned() });
        }
        Ok(dispatch)
    }

    /// Lets the fleet train, checks what comes back and folds it.
    fn gather(
        &mut self,
        fleet: &mut dyn Fleet,
        orders: Vec<Order>,
        clients: &[ClientInfo],
    ) -> Result<Gathered, EngineError> {
        let personal = self.personal()?;
        let examples = clients.iter().map(|client| (client.id, client.examples)).collect();
        let mut gather = Gather::new(&self.layout, &self.recipe, &orders, &examples);
        if !orders.is_empty() {
            fleet.train(orders, &mut |arrival| Ok(gather.arrive(arrival)))?;
        }
        let gathered = gather.close();
        for client in clients.iter().filter(|client| gathered.arrived.contains(&client.id)) {
            let lacked = self.versions.lacks(client.id, &self.layout, &personal);
            let reach = self.recipe.reach(&client.name, &self.layout);
            self.versions.received(client.id, &(&lacked & &reach));
        }
        Ok(gathered)
    }

    /// Moves the global model, and with SCAFFOLD the server's variate.
    fn apply(&mut self, gathered: &Gathered, clients: usize) -> Result<(), EngineError> {
        let share = gathered.arrived.len() as f64 / clients.max(1) as f64;
        let step = Step { mean: &gathered.mean, share };
        self.recipe.server.apply(&mut self.server, &mut self.model, &step);
        // c += |S| / N * mean of the clients' changes.
        for (id, changes) in gathered.variate.iter() {
            let variate = self.server.variate.or_zeros(id, changes.len());
            variate
                .iter_mut()
                .zip(changes.iter())
                .for_each(|(c, change)| *c += share as f32 * change);
        }
        let changed = gathered.mean.scope();
        let finite = |id: ParamId| {
            self.model.get(id).is_none_or(|values| values.iter().all(|value| value.is_finite()))
        };
        if !changed.iter().all(finite) {
            return Err(EngineError::Diverged { round: self.round.0 + 1 });
        }
        self.versions.changed(&changed, self.round);
        Ok(())
    }

    /// Scores the model if it is time to.
    fn evaluate(
        &mut self,
        fleet: &mut dyn Fleet,
        is_last: bool,
    ) -> Result<Vec<SetScores>, EngineError> {
        let evaluation = self.recipe.evaluation.clone();
        if !is_last && !self.round.0.is_multiple_of(evaluation.every.max(1)) {
            return Ok(Vec::new());
        }
        let mut scores = Vec::new();
        for on in &evaluation.on {
            scores.extend(self.examine(fleet, *on)?);
        }
        self.diary.note_scores(&mut scores);
        Ok(scores)
    }

    /// Scores the model as it is now; `None` when nobody has such examples.
    pub fn examine(
        &self,
        fleet: &mut dyn Fleet,
        on: EvaluationSet,
    ) -> Result<Option<SetScores>, EngineError> {
        let adapt = match &self.recipe.adapt {
            None => None,
            Some(adapt) => {
                let view = View { layout: &self.layout, round: self.round, scores: None };
                let mut work = self.recipe.work.at(self.round);
                (work.epochs, work.local) = (adapt.epochs, LocalRule::Plain);
                Some(Adaptation { learns: adapt.learns.select(view)?, work })
            }
        };
        let each = fleet.evaluate(&Examination {
            model: &self.model,
            on,
            adapt: adapt.as_ref(),
            round: self.round,
            seed: self.seed.of("adapt").with(u64::from(self.round.0)),
        })?;
        let examples: u64 = each.iter().map(|one| one.examples).sum();
        Ok((examples > 0).then(|| SetScores::new(on, each)))
    }
}

/// Smaller matters.
impl Federation {
    fn personal(&self) -> Result<Scope, EngineError> {
        let view = View { layout: &self.layout, round: self.round, scores: None };
        Ok(self.recipe.personal.select(view)?)
    }

    /// The seed of a client's draws: whoever else takes part, it is the same.
    fn client_seed(&self, client: ClientId) -> Seed {
        self.seed.of("client").with(u64::from(self.round.0)).with(u64::from(client.0))
    }

    fn bytes(
        &self,
        round: Round,
        cohort: usize,
        (down, selection): (ByteCount, Option<&SelectionReport>),
        gathered: &Gathered,
    ) -> Bytes {
        let talk = |part: fn(&SelectionReport) -> ByteCount| selection.map_or(ByteCount(0), part);
        let length = |scope: &Scope| payload_length(&self.layout, scope, Encoding::F32) as u64;
        let full = length(&Scope::everything(&self.layout));
        let full_download = match self.recipe.start {
            Start::Shared if round == Round(0) => length(&Scope::empty()),
            Start::Sent | Start::Shared => full,
        };
        match self.recipe.population {
            Population::Pooled => Bytes::default(),
            Population::Federated => Bytes {
                up: gathered.up + talk(|report| report.scores_up),
                down: down + talk(|report| report.masks_down),
                full_up: ByteCount(full * gathered.answers),
                full_down: ByteCount(full_download * cohort as u64),
            },
        }
    }

    /// The same, which writes no checkpoint.
    pub(crate) fn without_checkpoints(&self) -> Self {
        Self { checkpoints: None, ..self.clone() }
    }

    /// The global model as clients hold it: through the download encoding, where it was sent.
    pub(crate) fn as_received(&self) -> Result<Tensors, EngineError> {
        let download = self.recipe.work.download;
        if download == Encoding::F32 {
            return Ok(self.model.clone());
        }
        let never_sent = self.versions.never_sent(&self.layout);
        let sent = self.model.subset(&(Scope::everything(&self.layout) - &never_sent));
        let header = Header::download(Kind::Values, download, self.round);
        let bytes = encode(&self.layout, &header, &sent, None)?;
        let expected = Expectation {
            layout: &self.layout,
            kind: Kind::Values,
            encoding: download,
            round: self.round,
            client: ClientId::SERVER,
            scope: None,
        };
        let (_, mut received) = decode(&bytes, &expected)?;
        received.absorb(self.model.subset(&never_sent));
        Ok(received)
    }
}

/// Both halves of what a round knows about going apart, or what there is of them.
fn drift_report(
    drift: Option<DriftReport>,
    attention: Option<AttentionDrift>,
) -> Option<DriftReport> {
    match (drift, attention) {
        (None, None) => None,
        (drift, attention) => Some(DriftReport { attention, ..drift.unwrap_or_default() }),
    }
}

fn in_client_order(mut first: Vec<Absence>, second: Vec<Absence>) -> Vec<Absence> {
    first.extend(second);
    first.sort_by_key(|absence| absence.client);
    first
}

/// Refuses a fleet whose clients are not in strictly ascending order.
fn check_clients(clients: &[ClientInfo]) -> Result<(), EngineError> {
    let ids = || clients.iter().map(|client| client.id);
    let misplaced = ids().zip(ids().skip(1)).find(|(left, right)| left >= right);
    let server = ids().find(|id| *id == ClientId::SERVER);
    match misplaced.map(|(_, right)| right).or(server) {
        None => Ok(()),
        Some(client) => Err(EngineError::Clients { client }),
    }
}
