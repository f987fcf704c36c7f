//! A federation and its rounds: the loop around [`State`].

pub(crate) mod branch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedra_plan::{Layout, Round, Scope};
use fedra_privacy::Ledger;
use fedra_seed::{SecretKey, Seed};
use fedra_wire::{ClientId, ParamValues};

use crate::error::EngineError;
use crate::own_parts::OwnParts;
use crate::privacy::account::Account;
use crate::protocol::fleet::{ClientInfo, EvaluationSet, Fleet, PublicText};
use crate::protocol::server_segment::SegmentHost;
use crate::recipe::Recipe;
use crate::report::{SetScores, Sink};
use crate::state::State;
use crate::state::checkpoint;
use crate::state::log_mark::LogMark;
use fedra_wire::ServerState;

/// A model, the recipe that trains it, and all that the server remembers.
#[derive(Clone, Debug)]
pub struct Federation {
    pub(crate) state: State,
    checkpoints: Option<PathBuf>,
    /// Whether it was stopped within a round, so that its state is half of one.
    abandoned: bool,
}

impl Federation {
    /// A federation before its first round; the initial model has to be whole.
    pub fn new(
        recipe: Recipe,
        layout: Layout,
        initial: ParamValues,
        seed: Seed,
    ) -> Result<Self, EngineError> {
        Self::over(recipe, layout, initial, (Scope::empty(), seed))
    }

    /// The same over a base: parameters that everybody has, that never change and that nobody sends. The initial
    /// model is all the others.
    pub fn over(
        recipe: Recipe,
        layout: Layout,
        initial: ParamValues,
        (base, seed): (Scope, Seed),
    ) -> Result<Self, EngineError> {
        Ok(Self::from_state(State::new(recipe, layout, initial, (base, seed))?))
    }

    /// A federation that continues from a state and writes no checkpoint.
    pub(crate) const fn from_state(state: State) -> Self {
        Self { state, checkpoints: None, abandoned: false }
    }

    /// Writes a checkpoint into this directory, which is there, after every round, over the one before. What a
    /// killed process left of an unfinished one is removed.
    pub fn keep_checkpoints(&mut self, directory: impl Into<PathBuf>) {
        let directory = directory.into();
        checkpoint::discard_unfinished(&directory);
        self.checkpoints = Some(directory);
    }

    /// Lets updates that arrive before their turn wait in a scratch file at this place when there are
    /// more than a few, so that memory does not grow with the clients that wait for a slow one.
    pub fn spill_to(&mut self, path: impl Into<PathBuf>) {
        self.state.spill = Some(path.into());
    }

    /// Computes the server's blocks of a cut model there.
    pub fn with_middle(&mut self, middle: Arc<dyn SegmentHost>) {
        self.state.middle = Some(middle);
    }

    /// Lets code of a program make some of the choices.
    pub fn with_parts(&mut self, parts: Arc<dyn OwnParts>) -> Result<(), EngineError> {
        parts.makes().check(&self.state.recipe)?;
        self.state.parts = Some(parts);
        Ok(())
    }

    /// Announces every release in a ledger in this file before it happens.
    pub fn keep_ledger(&mut self, file: impl Into<PathBuf>) {
        if let Some(account) = &mut self.state.account {
            account.write_to(file.into());
        }
    }

    /// Draws the server's noise from this key. Without one it comes from the experiment's seed, which
    /// is a simulation: who knows the seed knows the noise.
    pub fn with_noise(&mut self, key: SecretKey) {
        (self.state.noise, self.state.simulated) = (key, false);
    }

    /// Whether all its noise follows from the seed.
    pub const fn is_simulated(&self) -> bool {
        self.state.simulated
    }

    /// Measures blocks on this text where the guarantee does not let clients measure them.
    pub fn with_public_text(&mut self, public: Arc<dyn PublicText>) {
        self.state.public = Some(public);
    }

    /// The guarantee, and what was released, in a private run.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.state.account.as_ref().map(Account::ledger)
    }

    /// Goes back to the checkpoint in a directory, and brings the fleet along; says whether there
    /// was one.
    pub fn resume(&mut self, directory: &Path, fleet: &mut dyn Fleet) -> Result<bool, EngineError> {
        let Some(loaded) = checkpoint::load(&self.state, directory)? else {
            if let Some(account) = &mut self.state.account {
                account.resume_unfinished()?;
            }
            return Ok(false);
        };
        fleet.restore(&loaded.state.as_received()?, &mut loaded.states())?;
        let middle = self.state.middle.take();
        (self.state, self.abandoned) = (State { middle, ..loaded.state }, false);
        Ok(true)
    }

    /// Runs rounds until so many are complete in all, or until `stop` says so between two rounds or
    /// two attempts at one, or the fleet is stopped within one ([`EngineError::Stopped`]). A round in which too few updates arrive is tried again and then stops
    /// the run; the last checkpoint is of the round before.
    pub fn run(
        &mut self,
        fleet: &mut dyn Fleet,
        sinks: &mut [&mut dyn Sink],
        rounds: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        while self.state.round.0 < rounds {
            if stop() || !self.advance(fleet, sinks, rounds, stop)? {
                return Ok(());
            }
        }
        self.check_arrivals()?;
        self.check_losses()
    }

    /// Runs the next of so many rounds, tells the sinks and writes the checkpoint; says whether it
    /// is complete, which it is not when `stop` said so between two attempts at it, or when the fleet was
    /// stopped within it. What is left then is the checkpoint of the round before: this federation and
    /// its fleet are in the middle of a round and take no further one.
    pub fn advance(
        &mut self,
        fleet: &mut dyn Fleet,
        sinks: &mut [&mut dyn Sink],
        rounds: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, EngineError> {
        if self.abandoned {
            return Ok(false);
        }
        self.state.recipe.check(fleet.clients().len())?;
        let names: Vec<&str> = fleet.clients().iter().map(|client| client.name.as_str()).collect();
        self.state.recipe.check_model(&self.state.layout, &names)?;
        check_clients(fleet.clients())?;
        let round = self.state.round;
        let is_last = round.0 + 1 == rounds;
        let advanced = match self.state.advance(fleet, is_last, stop) {
            Err(EngineError::Stopped) => {
                (self.state.round, self.abandoned) = (round, true);
                None
            }
            other => other?,
        };
        let Some(report) = advanced else { return Ok(false) };
        for sink in sinks {
            sink.round(&report)?;
        }
        self.state.log = self.state.log.with(&report.to_line()?)?;
        if let Some(directory) = &self.checkpoints {
            checkpoint::save(&self.state, &*fleet, directory)?;
        }
        Ok(true)
    }

    /// Scores the model as it is now; `None` when nobody has such examples.
    pub fn examine(
        &self,
        fleet: &mut dyn Fleet,
        on: EvaluationSet,
    ) -> Result<Option<SetScores>, EngineError> {
        let (mut scores, _) = self.state.score(fleet, &[on])?;
        Ok(scores.pop())
    }

    /// The global model, without its base.
    pub const fn model(&self) -> &ParamValues {
        &self.state.model
    }

    /// How many rounds are complete.
    pub const fn completed(&self) -> Round {
        self.state.round
    }

    /// Refuses to call complete what no client ever contributed to. Under client-level privacy such a run
    /// is like any other: it ends with a model, of noise, because an error would tell that nobody came.
    pub fn check_arrivals(&self) -> Result<(), EngineError> {
        let (rounds, hidden) = (self.state.round.0, self.state.recipe.client_privacy().is_some());
        if rounds > 0 && !self.state.history.arrived && !hidden {
            return Err(EngineError::NobodyArrived { rounds });
        }
        Ok(())
    }

    /// Refuses to call good what ended with a loss that is no number: of a client that answered, or of a set that was
    /// scored, each by its last one.
    pub fn check_losses(&self) -> Result<(), EngineError> {
        self.state.history.check_losses()
    }

    /// The log of reports that belongs to what is complete.
    pub const fn log(&self) -> LogMark {
        self.state.log
    }

    /// What the server's optimiser remembers.
    pub const fn server(&self) -> &ServerState {
        &self.state.server
    }

    /// The recipe.
    pub const fn recipe(&self) -> &Recipe {
        &self.state.recipe
    }
}

/// Refuses a fleet whose clients are not in strictly ascending order.
fn check_clients(clients: &[ClientInfo]) -> Result<(), EngineError> {
    let misplaced =
        clients.iter().zip(clients.iter().skip(1)).find(|(one, next)| one.id >= next.id);
    let server = clients.iter().find(|client| client.id == ClientId::SERVER);
    match misplaced.map(|(_, next)| next).or(server) {
        None => Ok(()),
        Some(ClientInfo { id, name, .. }) => {
            Err(EngineError::Clients { name: name.clone(), client: *id })
        }
    }
}
