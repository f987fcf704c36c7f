//! A federation and its rounds.
//!
//! [`Federation::round`] is the whole algorithm, top to bottom; everything it calls is one of the
//! recipe's choices or a helper with a name.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fedra_plan::{Layout, ParamId, Round, Scope};
use fedra_seed::Seed;
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, Tensors, decode, encode};

use crate::attempt::Attempt;
use crate::attention::AttentionDrift;
use crate::checkpoint;
use crate::diary::Diary;
use crate::drift::DriftReport;
use crate::error::EngineError;
use crate::fleet::{Adaptation, ClientInfo, EvaluationSet, Examination, Fleet};
use crate::gather::Gathered;
use crate::log_mark::LogMark;
use crate::recipe::Recipe;
use crate::report::{RoundReport, SetScores, Sink};
use crate::selection::Memory;
use crate::server::{ServerState, Step};
use crate::versions::ClientVersions;
use crate::work::LocalRule;

/// A model, the recipe that trains it, and all that the server remembers.
#[derive(Clone, Debug)]
pub struct Federation {
    pub(crate) recipe: Recipe,
    pub(crate) layout: Layout,
    pub(crate) seed: Seed,
    pub(crate) round: Round,
    pub(crate) model: Tensors,
    pub(crate) server: ServerState,
    pub(crate) versions: ClientVersions,
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
        let versions = ClientVersions::new(recipe.start);
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

    /// Runs rounds until so many are complete in all, or until `stop` says so between two rounds or
    /// two attempts at one. A round in which too few updates arrive is tried again and then stops
    /// the run; the last checkpoint is of the round before.
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
            let Some(report) = self.round(fleet, is_last, stop)? else {
                return Ok(());
            };
            for sink in &mut *sinks {
                sink.round(&report)?;
            }
            self.log = self.log.with(&report.to_line()?)?;
            if let Some(directory) = &self.checkpoints {
                checkpoint::save(self, &*fleet, directory)?;
            }
        }
        let may_be_empty = self.recipe.min_arrivals.of(0) == 0;
        if may_be_empty && !self.diary.arrived && self.round.0 >= rounds && rounds > 0 {
            return Err(EngineError::NobodyArrived { rounds });
        }
        Ok(())
    }

    /// One round; `None` when it was told to stop between two attempts at it.
    fn round(
        &mut self,
        fleet: &mut dyn Fleet,
        is_last: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<RoundReport>, EngineError> {
        let begun = Instant::now();
        let round = self.round;
        self.turn(fleet)?;
        let Some((mut attempt, failed_attempts)) = self.attempts(fleet, stop)? else {
            return Ok(None);
        };
        self.note_downloads(&attempt);
        self.apply(&attempt.gathered, fleet.clients())?;
        self.watch(attempt.gathered.drift.as_ref());
        self.diary.arrived |= !attempt.gathered.arrived.is_empty();
        self.round = round.next();
        let scores = self.evaluate(fleet, is_last)?;

        let (mut bytes, mut effort) = (attempt.bytes, attempt.effort);
        for failed in &failed_attempts {
            bytes += failed.bytes;
            effort += failed.effort;
        }
        let (failed, refused) = attempt.absences();
        let (cohort, blocks) = (attempt.ids(), attempt.blocks());
        let Attempt { selection, attention, gathered, .. } = attempt;
        Ok(Some(RoundReport {
            round,
            cohort,
            failed,
            refused,
            failed_attempts,
            blocks,
            changed: gathered.mean.elements() as u64,
            arrived: gathered.arrived,
            loss: gathered.loss,
            bytes,
            effort,
            seconds: begun.elapsed().as_secs_f64(),
            slowest: gathered.slowest,
            most_updates_held: gathered.most_held,
            drift: drift_report(gathered.drift, attention),
            stage: self.stage_report(),
            scores,
            selection,
        }))
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

/// What becomes of the answers.
impl Federation {
    /// Notes what those hold now whose updates arrived; of the others nothing is known.
    fn note_downloads(&mut self, attempt: &Attempt) {
        for client in &attempt.gathered.arrived {
            self.versions.received(*client, self.round);
        }
    }

    /// Moves the global model, and with SCAFFOLD the server's variate.
    fn apply(&mut self, gathered: &Gathered, clients: &[ClientInfo]) -> Result<(), EngineError> {
        let weighting = self.recipe.weighting;
        let everyone: f64 = clients.iter().map(|client| weighting.of(client.examples)).sum();
        let share = if everyone > 0.0 { gathered.weight / everyone } else { 0.0 };
        let step = Step { mean: &gathered.mean, share };
        self.recipe.server.apply(&mut self.server, &mut self.model, &step);
        // c stays the weighted mean of all c_i: see methods/scaffold.rs.
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
                let mut work = self.recipe.work.at(self.round);
                (work.epochs, work.local) = (adapt.epochs, LocalRule::Plain);
                Some(Adaptation { learns: adapt.learns.select(&self.layout)?, work })
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
    /// The seed of a client's draws: whoever else takes part, it is the same.
    pub(crate) fn client_seed(&self, client: ClientId) -> Seed {
        self.seed.of("client").with(u64::from(self.round.0)).with(u64::from(client.0))
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
