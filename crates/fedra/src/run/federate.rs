//! A whole federation in one process, from an experiment to its output folder.

mod concluding;
mod introducing;

use std::sync::{Arc, OnceLock};

use fedra_client::{Examples, LocalFleet, Meter, Observer, ServerSegment, to_values};
use fedra_compute::{Device, Params, SecretKey, ThreadPool};
use fedra_data::{LabelSet, Work};
use fedra_engine::{
    Activity, ClassWeights, ClientInfo, EngineError, EvaluationSet, Federation, Fleet, ParamValues,
    Population, Recipe, SideMemory,
};
use fedra_plan::{Round, Scope};

use crate::config::{ConfigError, Experiment, OpenedDevice, config_error_of};
use crate::error::{Breakdown, Context, Result};
use crate::folder::best::BestRound;
use crate::folder::client_names::ClientNames;
use crate::folder::far_updates::FarUpdates;
use crate::folder::json_file;
use crate::folder::regular_file;
use crate::folder::round_files::RoundFiles;
use crate::folder::round_log::{self, RoundLog};
use crate::folder::run_folder::Folder;
use crate::folder::run_status::RunStatus;
use crate::folder::summary::Summary;
use crate::forecast::private::{self, PrivacySummary};
use crate::forecast::{cutting, memory, run_memory, traffic};
use crate::listener::{Event, Finishes, Heard, Listener, Rounds, Silent, ToTheEnd, followed};
use crate::prepare::baseline::Baseline;
use crate::prepare::client_counts::ClientCounts;
use crate::prepare::data_notes;
use crate::prepare::fingerprint::Inputs;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::prepared::{Prepared, check_weights};
use crate::prepare::public_text::PublicRows;
use crate::prepare::token_lengths::TokenLengths;
use crate::prepare::untrained::untrained;
use crate::run_files::{CLIENTS, EARLY, LEDGER, ROUNDS, SCRATCH, SUMMARY};

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// All rounds are complete.
    Complete(Box<Summary>),
    /// It was asked to stop, and can go on.
    Interrupted {
        /// Rounds that are complete.
        rounds: u32,
        /// Number of rounds.
        of: u32,
    },
}

impl Ending {
    /// The summary of a run that is complete.
    pub fn complete(self) -> Option<Summary> {
        match self {
            Self::Complete(summary) => Some(*summary),
            Self::Interrupted { .. } => None,
        }
    }
}

/// Does some work on the threads that were asked for.
pub(crate) fn on<T>(pool: Option<&ThreadPool>, work: impl FnOnce() -> T) -> T {
    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Whether a fleet could begin.
type Begun = Result<(), EngineError>;

/// What a federation begins with beside its experiment.
pub(crate) struct Beginning {
    /// The values that all start from.
    pub initial: ParamValues,
    /// The server's half of a cut model.
    pub middle: Option<Arc<ServerSegment>>,
    /// Where the server's noise comes from; a simulation's follows from its seed.
    pub noise: Option<SecretKey>,
}

/// A federation that is ready to start.
pub struct Run {
    /// The experiment.
    pub experiment: Experiment,
    /// What it starts from.
    pub prepared: Prepared,
    /// The method, settled for the model and the clients.
    pub recipe: Recipe,
    /// Who computes.
    pub(crate) device: Device,
    /// What it learns from, as digests.
    pub inputs: Inputs,
    /// What its scores are to be compared with.
    pub baseline: Option<Baseline>,
    data_notes: Vec<String>,
    census: ClientCounts,
    /// What each side would hold, once it was foreseen.
    foreseen: OnceLock<SideMemory>,
}

impl Run {
    /// Reads the data, opens the model and settles what is scored.
    pub fn prepare(experiment: &Experiment) -> Result<Self> {
        Self::heard(experiment, &Silent)
    }

    /// The same with a listener.
    pub fn heard(experiment: &Experiment, listener: &dyn Listener) -> Result<Self> {
        let OpenedDevice { device, note } = experiment.device.open()?;
        device.reset_peak();
        let mut run = Self::prepare_on(experiment, device, listener)?;
        run.data_notes.splice(..0, note);
        Ok(run)
    }

    /// The same on a device of which planning needs no numbers.
    pub(crate) fn prepare_on(
        experiment: &Experiment,
        device: Device,
        listener: &dyn Listener,
    ) -> Result<Self> {
        let point = |error| experiment.origin.point(error);
        let run = followed(experiment, listener, |work| {
            let holdings = PartitionedData::of_with(experiment, None, work)?;
            let (data_notes, baseline) = (data_notes::of_data(&holdings), Baseline::of(&holdings));
            let mut run = Self::with_holdings(experiment, holdings, (device, work))?;
            (run.data_notes, run.baseline) = ([data_notes, run.data_notes].concat(), baseline);
            Ok(run)
        });
        let mut run = run.map_err(point)?;
        run.settle().map_err(point)?;
        Ok(run)
    }

    /// Opens the model for these rows; what is scored waits for a census of everybody's examples.
    pub(crate) fn with_holdings(
        experiment: &Experiment,
        holdings: PartitionedData,
        (device, work): (Device, &Work<'_>),
    ) -> Result<Self> {
        let inputs = Inputs::of(experiment, &holdings)?;
        let mut prepared = Prepared::of(experiment, holdings, (&device, None), work)?;
        check_weights(&device)?;
        let mut recipe = experiment.recipe.clone();
        if recipe.population == Population::Pooled {
            prepared.shards = prepared.shards.pooled();
        }
        recipe.check(prepared.shards.clients.len())?;
        if let Some(budget) = recipe.selection.budget.take() {
            let k = memory::blocks_within(budget, &prepared.model, (&recipe, experiment))?;
            recipe.selection.k = k;
            recipe.check(prepared.shards.clients.len()).map_err(config_error_of)?;
        }
        cutting::settle(&mut recipe, experiment, &prepared.model)?;
        let names: Vec<&str> =
            prepared.shards.clients.iter().map(|shard| shard.name.as_str()).collect();
        recipe.check_model(prepared.model.layout(), &names).map_err(config_error_of)?;
        recipe.fits(prepared.model.layout())?;
        check_class_weights(&recipe, &prepared.shards.labels)?;
        prepared.notes.extend(untrained(experiment, &recipe, prepared.model.layout())?);
        prepared.notes.extend(private::notes(experiment));
        let longest = experiment.max_tokens;
        let lengths = TokenLengths::of(&prepared.shards, longest, prepared.model.longest());
        let parts = experiment.parts.as_ref().map(|parts| parts.makes());
        let unforeseen = parts.filter(|own| own.cohort || own.order).map(|_| {
            "note: who takes part or which blocks learn is up to the program: a plan follows what the method would \
             choose"
                .to_owned()
        });
        let data_notes = lengths.note().into_iter().chain(unforeseen).collect();
        let (census, baseline) = (ClientCounts::of(&prepared.shards), None);
        let (experiment, foreseen) = (experiment.clone(), OnceLock::new());
        Ok(Self {
            experiment,
            prepared,
            recipe,
            device,
            inputs,
            baseline,
            data_notes,
            census,
            foreseen,
        })
    }

    /// Takes another census than that of its own rows, and settles what is scored by it.
    pub(crate) fn take_census(&mut self, census: ClientCounts) -> Result<()> {
        self.census = census;
        self.settle()
    }

    /// Settles what depends on everybody's examples: what is scored, and the noise of a private run.
    fn settle(&mut self) -> Result<()> {
        self.recipe.evaluation.on = self.sets()?;
        let had = (&self.census, self.prepared.model.layout());
        private::settle(&mut self.recipe, &self.experiment, had)
    }

    /// What a private run will have spent at its end.
    pub fn privacy(&self) -> Result<Option<PrivacySummary>> {
        let had = (&self.census, self.prepared.model.layout());
        private::foreseen(&self.recipe, &self.experiment, had)
    }

    /// Leaves each client only some of its examples to learn from: those for which its list says
    /// `true`. Its inputs are then others too, so that it cannot be resumed as the whole run.
    pub(crate) fn keep_examples(&mut self, kept: &[Vec<bool>]) -> Result<()> {
        for (shard, kept) in self.prepared.shards.clients.iter_mut().zip(kept) {
            shard.train = shard.train.kept(kept);
        }
        self.inputs.keep(kept);
        self.take_census(ClientCounts::of(&self.prepared.shards))
    }

    /// Gives each client more examples to learn from, which no data hold. Its inputs are then others
    /// too.
    pub(crate) fn add_examples(&mut self, more: &[Examples]) -> Result<()> {
        for (shard, more) in self.prepared.shards.clients.iter_mut().zip(more) {
            shard.train.extend_from(more);
        }
        self.inputs.add(&format!("{more:?}"));
        self.take_census(ClientCounts::of(&self.prepared.shards))
    }

    /// The sets of examples that there are. Where clients keep parameters of their own, the global
    /// model alone answers nothing: its central score waits for the end.
    fn sets(&self) -> Result<Vec<EvaluationSet>> {
        let shards = &self.prepared.shards;
        let mut sets = Vec::new();
        if !shards.central_test.is_empty() && self.personal()?.is_empty() {
            sets.push(EvaluationSet::CentralTest);
        }
        if self.recipe.privacy.as_ref().is_some_and(|privacy| !privacy.client_scores) {
            if let Some(key) = self.experiment.raw.evaluate.deciding().next() {
                let scored = "with privacy.client_scores = true: it uses clients' validation examples, which the \
                     privacy guarantee does not cover";
                return Err(ConfigError::only(&format!("evaluate.{key}"), scored).into());
            }
            return Ok(sets);
        }
        let clients = &self.census.clients;
        if clients.iter().any(|client| client.test > 0) {
            sets.push(EvaluationSet::ClientTest);
        }
        let validation = clients.iter().any(|client| client.validation > 0);
        let evaluate = &self.experiment.raw.evaluate;
        if let (Some(key), false) = (evaluate.deciding().next(), validation) {
            let expected = format!("above 0: evaluate.{key} needs validation examples");
            let found = "no validation example at any client";
            return Err(ConfigError::new("data.shares.validation", found, expected).into());
        }
        if validation && (evaluate.keeps_best() || evaluate.patience.is_some()) {
            sets.push(EvaluationSet::ClientValidation);
        }
        Ok(sets)
    }

    fn personal(&self) -> Result<Scope> {
        let layout = self.prepared.model.layout();
        Ok(self.recipe.personal.select(layout)?)
    }

    /// The threads that the experiment asks for; `None` when it leaves that to the machine.
    pub fn thread_pool(&self) -> Result<Option<ThreadPool>> {
        let Some(threads) = self.experiment.raw.threads else { return Ok(None) };
        let pool = ThreadPool::new(threads);
        pool.map(Some).with_context(|| format!("threads: cannot start {threads} of them"))
    }

    /// Runs the rounds in a folder, from its checkpoint if it has one.
    pub fn run(
        mut self,
        folder: &Folder,
        pool: Option<&ThreadPool>,
        listener: &dyn Listener,
    ) -> Result<Ending> {
        // The first weights are the fleet's from here on: what a download changes is not kept twice.
        let params = std::mem::take(&mut self.prepared.params);
        on(pool, || self.run_here(params, folder, listener))
    }

    /// All clients in this process.
    fn run_here(&self, params: Params, folder: &Folder, listener: &dyn Listener) -> Result<Ending> {
        let Prepared { model, shards, .. } = &self.prepared;
        folder.settle_inputs(&self.inputs)?;
        let setting = (&self.experiment, &self.prepared, &self.recipe);
        let placement = traffic::placement(setting)?;
        let initial = to_values(&params);
        let fleet = LocalFleet::new(model.clone(), params, self.device.clone(), shards.clone())?
            .with_depths(&self.recipe.depths)?
            .with_ranks(&self.recipe.ranks)?;
        // A simulation has to repeat: its noise hides nothing from who knows the seed.
        let secret = SecretKey::simulated(self.experiment.seed.of("examples"));
        let at_work = run_memory::at_work(setting, &placement);
        let mut fleet = fleet.with_secret(&secret).with_at_most(at_work as usize);
        if let Some(parts) = &self.experiment.parts {
            fleet = fleet.with_parts(Arc::clone(parts));
        }
        let mut fleet = placement.furnish(fleet, &folder.path().join(SCRATCH))?;
        let middle = self.middle(fleet.clients());
        if let Some(middle) = &middle {
            let seed = self.experiment.seed.of("noise");
            fleet = fleet.with_middle(Arc::clone(middle), seed);
        }
        let begin = |fleet: &mut LocalFleet, completed: Round, observer: Arc<dyn Observer>| {
            fleet.observer = Arc::new(RunStatus::begin(folder.path(), completed, observer));
            Ok(())
        };
        let beginning = Beginning { initial, middle, noise: None };
        self.rounds((&mut fleet, begin), beginning, folder, listener)
    }

    /// The server's half of a cut model, for these clients.
    pub(crate) fn middle(&self, clients: &[ClientInfo]) -> Option<Arc<ServerSegment>> {
        let split = self.recipe.split.clone()?;
        let model = (self.prepared.model.clone(), self.device.clone());
        Some(Arc::new(ServerSegment::new(model, split, clients).over_base(&self.prepared.base)))
    }

    /// Runs the rounds over any fleet, which begins once it is known how many are complete.
    pub(crate) fn rounds<F: Fleet>(
        &self,
        (fleet, begin): (&mut F, impl FnOnce(&mut F, Round, Arc<dyn Observer>) -> Begun),
        Beginning { initial, middle, noise }: Beginning,
        folder: &Folder,
        listener: &dyn Listener,
    ) -> Result<Ending> {
        let (count, rounds) = (self.census.clients.len(), self.experiment.rounds);
        let seed = self.experiment.seed;
        folder.settle_inputs(&self.inputs)?;
        let layout = self.prepared.model.layout().clone();
        let base = self.prepared.base.iter().map(|(id, _)| id).collect();
        let recipe = self.recipe.clone();
        let mut federation = Federation::over(recipe, layout, initial, (base, seed))?;
        if let Some(middle) = middle {
            federation.with_middle(middle);
        }
        if let Some(parts) = &self.experiment.parts {
            federation.with_parts(Arc::clone(parts))?;
        }
        federation.keep_checkpoints(folder.path());
        federation.spill_to(folder.path().join(EARLY));
        federation.keep_ledger(folder.path().join(LEDGER));
        if let Some(key) = noise {
            federation.with_noise(key);
        }
        if !self.prepared.public.is_empty() {
            let Prepared { model, base, shards, public, .. } = &self.prepared;
            let (model, base, device) = (model.clone(), base.clone(), self.device.clone());
            let (labels, rows) = (shards.labels.clone(), public.clone());
            let text = PublicRows { model, base, device, labels, rows };
            federation.with_public_text(Arc::new(text));
        }
        if !federation.resume(folder.path(), fleet)? {
            round_log::check_begun(&folder.path().join(ROUNDS))?;
        }
        let mut done = federation.completed().0;
        let mut best_round = BestRound::default();
        let mut files = RoundFiles::new(folder.path(), &self.experiment.raw.log);
        let mut log = RoundLog::open(folder.path(), federation.log(), &mut |report| {
            best_round.note(&report);
            files.recall(&report);
        })?;
        // What can be refused has been: from here on the folder is this run's.
        // A resumed run is not complete, whatever becomes of it.
        regular_file::remove(&folder.path().join(SUMMARY))?;
        files.begin()?;
        let mut infos = fleet.clients().to_vec();
        let tell = |infos: &[ClientInfo]| {
            json_file::write(&folder.path().join(CLIENTS), &ClientNames::of(infos, &self.census))
        };
        tell(&infos)?;

        let label = self.recipe.method.as_str();
        let cohort = self.recipe.sampler.about(count) as u64;
        let finishes = self.finishes(&federation)?;
        let layout = self.prepared.model.layout();
        let (title, clients) = (None, &infos[..]);
        let about = Rounds { label, title, done, rounds, clients, cohort, finishes, layout };
        let observer = match finishes {
            Finishes::Step => listener.begin(&about),
            Finishes::Round => Arc::new(ToTheEnd(listener.begin(&about))),
        };
        begin(fleet, Round(done), Arc::clone(&observer))?;
        let (mut heard, stops) = (Heard(listener), || listener.stops());
        let broken = |error, done| Breakdown::of(error, (done, rounds), folder.path());
        self.keep_best(folder, &federation, &best_round).map_err(|error| broken(error, done))?;
        let mut spent = false;
        while done < rounds && !self.has_waited(&best_round) && !stops() {
            // One round at a time, because what follows a round's checkpoint is done here.
            let mut far_updates = FarUpdates { folder: folder.path(), clients: &infos };
            let sinks: &mut [&mut dyn fedra_engine::Sink] =
                &mut [&mut log, &mut files, &mut best_round, &mut far_updates, &mut heard];
            let complete = federation.advance(fleet, sinks, rounds, &stops);
            if let (Err(EngineError::OverBudget { reason }), true) = (&complete, done > 0) {
                listener.warn(&format!("warning: the run ends here: {reason}"));
                spent = true;
                break;
            }
            if !complete.map_err(|error| broken(error.into(), done))? {
                break;
            }
            done = federation.completed().0;
            if fleet.clients() != infos {
                // Somebody has come since, and told how many rows it has.
                infos = fleet.clients().to_vec();
                tell(&infos).map_err(|error| broken(error, done))?;
            }
            listener.hear(Event::Model(done, federation.model()));
            self.keep_best(folder, &federation, &best_round)
                .map_err(|error| broken(error, done))?;
        }
        listener.hear(Event::End);
        files.finish().map_err(|error| broken(error, done))?;
        if done < rounds && !self.has_waited(&best_round) && !spent {
            return Ok(Ending::Interrupted { rounds: done, of: rounds });
        }
        let meter = Meter::new(&*observer, Activity::Evaluating, (0, 0));
        let concluded =
            self.conclude(folder, (&federation, fleet), (&best_round, listener, &meter));
        match concluded {
            // All rounds are kept: what is missing are scores and the summary.
            Err(error) if error.is_stop() => Ok(Ending::Interrupted { rounds: done, of: rounds }),
            other => Ok(Ending::Complete(other.map_err(|error| broken(error, done))?)),
        }
    }

    /// What is finished before a run stops. Rows that cross a cut, and noise that only this process draws,
    /// are another release each time that a round is done.
    fn finishes(&self, federation: &Federation) -> Result<Finishes> {
        let layout = self.prepared.model.layout();
        let draws_anew = self.recipe.client_privacy().is_some() && !federation.is_simulated();
        let is_whole = draws_anew || self.recipe.rows_at_cut(layout)?.is_some();
        Ok(if is_whole { Finishes::Round } else { Finishes::Step })
    }

    /// Whether there is a global model: where every client keeps all of it there is none.
    fn shares_a_model(&self) -> Result<bool> {
        Ok(self.personal()?.len() < self.prepared.model.layout().len())
    }

    /// Whether the run is to stop early.
    fn has_waited(&self, best_round: &BestRound) -> bool {
        let patience = self.experiment.raw.evaluate.patience;
        patience.is_some_and(|patience| best_round.has_waited(patience))
    }
}

/// Refuses weights of labels that the data do not have; who knows no labels has none to compare with.
fn check_class_weights(recipe: &Recipe, labels: &LabelSet) -> Result<(), ConfigError> {
    let Some(ClassWeights::ByLabel(weights)) = &recipe.work.class_weights else { return Ok(()) };
    let is_strange = |name: &&String| !labels.is_empty() && labels.index(name).is_none();
    let Some(stranger) = weights.keys().find(is_strange) else { return Ok(()) };
    let expected = format_args!("labels of the data: {}", labels.names().join(", "));
    Err(ConfigError::new("work.class_weights", format_args!("a weight for {stranger:?}"), expected))
}
