//! A whole federation in one process, from an experiment to its output folder.

use std::sync::Arc;

use fedra_client::{
    Evaluator, Examples, Limits, LocalFleet, Middle, Observer, to_params, to_values,
};
use fedra_compute::{Device, Params, SecretKey, Seed, ThreadPool};
use fedra_data::Task;
use fedra_engine::{
    Bytes, ClientInfo, EngineError, EvaluationSet, Federation, Fleet, ParamValues, Population,
    Recipe, RoundReport, SetScores,
};
use fedra_model::hf::Precision;
use fedra_model::peft::{self, AdapterSaving};
use fedra_model::{Backbone, Saving, save};
use fedra_plan::{ByteCount, Round, Scope};
use fedra_privacy::Budget;

use crate::baseline::Baseline;
use crate::best::{self, BestRound};
use crate::census::Census;
use crate::cutting;
use crate::error::Breakdown;
use crate::error::{Context, Result};
use crate::experiment::{Complaint, Experiment, ModelSource, complaint_of};
use crate::fingerprint::Inputs;
use crate::folder::Folder;
use crate::forecast::choices::Overlap;
use crate::forecast::{self, Forecast};
use crate::grid::{counted, grouped};
use crate::headline::set_name;
use crate::holdings::Holdings;
use crate::listener::{Heard, Listener, Rounds};
use crate::memory;
use crate::model_card::{self, CardRound, CardSubject, Holds};
use crate::predictions::{self, Place};
use crate::prepared::Prepared;
use crate::private::{self, PrivacySummary, SIMULATED};
use crate::process::{available_bytes, peak_resident_bytes, resident_bytes};
use crate::public_text::PublicRows;
use crate::remarks;
use crate::report;
use crate::round_files::RoundFiles;
use crate::round_log::{self, RoundLog};
use crate::run_files::{ADAPTER, ADAPTER_BEST, EARLY, LEDGER, MODEL, MODEL_BEST, ROUNDS, SCRATCH};
use crate::run_memory::RunMemory;
use crate::summary::{Stopped, Summary};
use crate::untrained::untrained;

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// All rounds are complete.
    Complete(Box<Summary>),
    /// It was asked to stop, and can go on.
    Interrupted {
        /// Rounds that are complete.
        rounds: u32,
        /// Rounds in all.
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

/// Whether a fleet could begin.
type Begun = Result<(), EngineError>;

/// What a federation begins with beside its experiment.
pub(crate) struct Beginning {
    /// The values that all start from.
    pub initial: ParamValues,
    /// The server's half of a cut model.
    pub middle: Option<Arc<Middle>>,
    /// Where the server's noise comes from; a simulation's follows from its seed.
    pub noise: Option<SecretKey>,
}

/// A federation that is ready to start.
pub struct Run<'e> {
    experiment: &'e Experiment,
    pub(crate) prepared: Prepared,
    recipe: Recipe,
    device: Device,
    inputs: Inputs,
    baseline: Option<Baseline>,
    remarks: Vec<String>,
    census: Census,
}

impl<'e> Run<'e> {
    /// Reads the data, opens the model and settles what is scored.
    pub fn prepare(experiment: &'e Experiment) -> Result<Self> {
        Self::prepare_on(experiment, Device::cpu())
    }

    /// The same on a device of which planning needs no numbers.
    pub(crate) fn prepare_on(experiment: &'e Experiment, device: Device) -> Result<Self> {
        let holdings = Holdings::of(experiment)?;
        let (remarks, baseline) = (remarks::of_data(&holdings), Baseline::of(&holdings));
        let mut run = Self::with_holdings(experiment, holdings, device)?;
        (run.remarks, run.baseline) = ([remarks, run.remarks].concat(), baseline);
        run.settle().map_err(|error| experiment.origin.point(error))?;
        Ok(run)
    }

    /// Opens the model for these rows; what is scored waits for a census of everybody's examples.
    pub(crate) fn with_holdings(
        experiment: &'e Experiment,
        holdings: Holdings,
        device: Device,
    ) -> Result<Self> {
        let opened = Self::opened(experiment, holdings, device);
        opened.map_err(|error| experiment.origin.point(error))
    }

    fn opened(experiment: &'e Experiment, holdings: Holdings, device: Device) -> Result<Self> {
        let inputs = Inputs::of(experiment, &holdings)?;
        let mut prepared = Prepared::of(experiment, holdings, &device)?;
        let mut recipe = experiment.recipe.clone();
        if recipe.population == Population::Pooled {
            prepared.shards = prepared.shards.pooled();
        }
        recipe.check(prepared.shards.clients.len())?;
        if let Some(budget) = recipe.selection.budget.take() {
            let k = memory::blocks_within(budget, &prepared.model, (&recipe, experiment))?;
            recipe.selection.k = k;
            recipe.check(prepared.shards.clients.len()).map_err(complaint_of)?;
        }
        cutting::settle(&mut recipe, experiment, &prepared.model)?;
        let names: Vec<&str> =
            prepared.shards.clients.iter().map(|shard| shard.name.as_str()).collect();
        recipe.check_model(prepared.model.layout(), &names).map_err(complaint_of)?;
        recipe.fits(prepared.model.layout())?;
        prepared.notes.extend(untrained(experiment, &recipe, prepared.model.layout())?);
        prepared.notes.extend(private::unit_note(experiment));
        let longest = experiment.draft.data.max_tokens.unwrap_or(prepared.model.longest());
        let remarks = remarks::of_tokens(&prepared.shards, longest).into_iter().collect();
        let (census, baseline) = (Census::of(&prepared.shards), None);
        Ok(Self { experiment, prepared, recipe, device, inputs, baseline, remarks, census })
    }

    /// Takes another census than that of its own rows, and settles what is scored by it.
    pub(crate) fn take_census(&mut self, census: Census) -> Result<()> {
        self.census = census;
        self.settle()
    }

    /// Settles what depends on everybody's examples: what is scored, and the noise of a private run.
    fn settle(&mut self) -> Result<()> {
        self.recipe.evaluation.on = self.sets()?;
        let had = (&self.census, self.prepared.model.layout());
        private::settle(&mut self.recipe, self.experiment, had)
    }

    /// What a private run will have spent at its end.
    pub fn privacy(&self) -> Result<Option<PrivacySummary>> {
        let had = (&self.census, self.prepared.model.layout());
        private::foreseen(&self.recipe, self.experiment, had)
    }

    /// Leaves each client only some of its examples to learn from: those for which its list says
    /// `true`. Its inputs are then others too, so that nobody goes on with it as the whole.
    pub(crate) fn keep_examples(&mut self, kept: &[Vec<bool>]) -> Result<()> {
        for (shard, kept) in self.prepared.shards.clients.iter_mut().zip(kept) {
            shard.train = shard.train.kept(kept);
        }
        self.inputs.keep(kept);
        self.take_census(Census::of(&self.prepared.shards))
    }

    /// Gives each client more examples to learn from, which no data hold. Its inputs are then others
    /// too.
    pub(crate) fn add_examples(&mut self, more: &[Examples]) -> Result<()> {
        for (shard, more) in self.prepared.shards.clients.iter_mut().zip(more) {
            shard.train.extend_from(more);
        }
        self.inputs.add(&format!("{more:?}"));
        self.take_census(Census::of(&self.prepared.shards))
    }

    /// What is about to learn from what, in a sentence.
    pub fn introduction(&self) -> String {
        let Prepared { model, shards, .. } = &self.prepared;
        let parameters = grouped(model.layout().elements() as u64);
        let examples: usize = shards.clients.iter().map(|shard| shard.train.len()).sum();
        let parties = self.experiment.draft.federation.clients.unwrap_or(shards.clients.len());
        format!(
            "{} with {} training examples, {} for testing; {} of {} blocks and {parameters} \
             parameters",
            counted(parties as u64, "client"),
            grouped(examples as u64),
            grouped(shards.central_test.len() as u64),
            self.model_in_words(),
            model.blocks(),
        )
    }

    /// Which kind of model learns, and where it comes from.
    fn model_in_words(&self) -> String {
        let kind = match self.prepared.model.backbone() {
            Backbone::Bert(_) => "encoder",
            Backbone::Llama(_) => "decoder",
        };
        match &self.experiment.model {
            ModelSource::Fresh(..) => format!("a fresh {kind}"),
            ModelSource::Folder(path) => format!("the {kind} in {}", path.display()),
        }
    }

    /// What a person should know before it runs, a line each: about the model, and what is odd about
    /// the data.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let about_model = self.prepared.notes.iter().map(|note| format!("note: {note}"));
        about_model.chain(self.remarks.iter().cloned())
    }

    /// A warning when the budget does not bear all rounds.
    pub fn privacy_warning(&self) -> Result<Option<String>> {
        let Some(PrivacySummary { epsilon, promise, .. }) = self.privacy()? else {
            return Ok(None);
        };
        let over = |budget: Budget| epsilon.is_none_or(|epsilon| epsilon > budget.get());
        Ok(promise.budget.filter(|budget| over(*budget)).map(|budget| {
            let all = epsilon.map_or("infinity".to_owned(), |epsilon| format!("{epsilon:.3}"));
            format!(
                "warning: all rounds would bring epsilon to {all}, and privacy.epsilon is {budget}: the run \
                 ends before the round that passes it; without privacy.noise the noise is found for all of \
                 them"
            )
        }))
    }

    /// A warning when the run will need more memory than there is.
    pub fn memory_warning(&self) -> Result<Option<String>> {
        let Some((held, free)) = resident_bytes().zip(available_bytes()) else { return Ok(None) };
        let (experiment, prepared, recipe) = (self.experiment, &self.prepared, &self.recipe);
        let forecast = Forecast::of(experiment, prepared, recipe, Overlap::Most)?;
        let placement = forecast.placement(experiment, prepared);
        let kept = (&placement, &forecast.stages[..]);
        let needed = RunMemory::of(experiment, prepared, recipe, kept, ByteCount(held)).total();
        Ok((needed.0 > held.saturating_add(free)).then(|| {
            let there = ByteCount(held.saturating_add(free));
            format!(
                "warning: the run needs about {needed} of memory and {there} are there: it may be \
                 ended by the system; fewer threads, a smaller work.batch or data.max_tokens need less"
            )
        }))
    }

    /// What its scores are to be compared with.
    pub fn baseline(&self) -> Option<&Baseline> {
        self.baseline.as_ref()
    }

    /// What it starts from, and the recipe it follows.
    pub fn parts(&self) -> (&Prepared, &Recipe) {
        (&self.prepared, &self.recipe)
    }

    /// The experiment.
    pub(crate) const fn experiment(&self) -> &'e Experiment {
        self.experiment
    }

    /// What it learns from, as digests.
    pub const fn inputs(&self) -> &Inputs {
        &self.inputs
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
            self.check_undecided()?;
            return Ok(sets);
        }
        let clients = &self.census.clients;
        if clients.iter().any(|client| client.test > 0) {
            sets.push(EvaluationSet::ClientTest);
        }
        let validation = clients.iter().any(|client| client.validation > 0);
        let evaluate = &self.experiment.draft.evaluate;
        for (key, asked) in
            [("best", evaluate.best == Some(true)), ("patience", evaluate.patience.is_some())]
        {
            if asked && !validation {
                let expected = format!("examples for evaluate.{key} to decide by: above 0");
                let found = "no validation example at any client";
                return Err(Complaint::new("data.shares.validation", found, expected).into());
            }
        }
        if validation && (evaluate.best != Some(false) || evaluate.patience.is_some()) {
            sets.push(EvaluationSet::ClientValidation);
        }
        Ok(sets)
    }

    /// Refuses to decide by clients' own examples where these say nothing.
    fn check_undecided(&self) -> Result<()> {
        let evaluate = &self.experiment.draft.evaluate;
        for (key, asked) in
            [("best", evaluate.best == Some(true)), ("patience", evaluate.patience.is_some())]
        {
            if asked {
                let expected = "it beside privacy.client_scores = true, because validation examples of \
                                clients would decide, and no promise covers them";
                return Err(Complaint::new(&format!("evaluate.{key}"), "given", expected).into());
            }
        }
        Ok(())
    }

    fn personal(&self) -> Result<Scope> {
        let layout = self.prepared.model.layout();
        Ok(self.recipe.personal.select(layout)?)
    }

    /// The threads that the experiment asks for; `None` when it leaves that to the machine.
    pub fn thread_pool(&self) -> Result<Option<ThreadPool>> {
        let Some(threads) = self.experiment.draft.threads else { return Ok(None) };
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
        match pool {
            Some(pool) => pool.install(|| self.run_here(params, folder, listener)),
            None => self.run_here(params, folder, listener),
        }
    }

    /// All clients in this process.
    fn run_here(&self, params: Params, folder: &Folder, listener: &dyn Listener) -> Result<Ending> {
        let Prepared { model, shards, .. } = &self.prepared;
        folder.settle_inputs(&self.inputs)?;
        let placement = forecast::placement(self.experiment, &self.prepared, &self.recipe)?;
        let initial = to_values(&params);
        let fleet = LocalFleet::new(model.clone(), params, self.device.clone(), shards.clone())?
            .with_depths(&self.recipe.depths)?;
        // A simulation has to repeat: its noise hides nothing from who knows the seed.
        let secret = SecretKey::simulated(Seed(self.experiment.draft.seed).of("examples"));
        let fleet = fleet.with_secret(&secret);
        let mut fleet = placement.furnish(fleet, &folder.path().join(SCRATCH))?;
        let middle = self.middle(fleet.clients());
        if let Some(middle) = &middle {
            let seed = Seed(self.experiment.draft.seed).of("noise");
            fleet = fleet.with_middle(Arc::clone(middle), seed);
        }
        let begin = |fleet: &mut LocalFleet, _completed: Round, observer: Arc<dyn Observer>| {
            fleet.observe(observer);
            Ok(())
        };
        let beginning = Beginning { initial, middle, noise: None };
        self.rounds((&mut fleet, begin), beginning, folder, listener)
    }

    /// What the server measures blocks on.
    fn public_rows(&self) -> PublicRows {
        let Prepared { model, shards, public, .. } = &self.prepared;
        let (model, device) = (model.clone(), self.device.clone());
        PublicRows { model, device, labels: shards.labels.clone(), rows: public.clone() }
    }

    /// The server's half of a cut model, for these clients.
    pub(crate) fn middle(&self, clients: &[ClientInfo]) -> Option<Arc<Middle>> {
        let split = self.recipe.split.clone()?;
        let model = (self.prepared.model.clone(), self.device.clone());
        Some(Arc::new(Middle::new(model, split, clients)))
    }

    /// Runs the rounds over any fleet, which begins once it is known how many are complete.
    pub(crate) fn rounds<F: Fleet>(
        &self,
        (fleet, begin): (&mut F, impl FnOnce(&mut F, Round, Arc<dyn Observer>) -> Begun),
        Beginning { initial, middle, noise }: Beginning,
        folder: &Folder,
        listener: &dyn Listener,
    ) -> Result<Ending> {
        let (clients, rounds) = (self.census.clients.len(), self.experiment.rounds);
        let seed = Seed(self.experiment.draft.seed);
        folder.settle_inputs(&self.inputs)?;
        let layout = self.prepared.model.layout().clone();
        let mut federation = Federation::new(self.recipe.clone(), layout, initial, seed)?;
        if let Some(middle) = middle {
            federation.with_middle(middle);
        }
        federation.keep_checkpoints(folder.path());
        federation.spill_to(folder.path().join(EARLY));
        federation.keep_ledger(folder.path().join(LEDGER));
        if let Some(key) = noise {
            federation.with_noise(key);
        }
        if !self.prepared.public.is_empty() {
            federation.with_public_text(Arc::new(self.public_rows()));
        }
        if !federation.resume(folder.path(), fleet)? {
            round_log::check_begun(&folder.path().join(ROUNDS))?;
        }
        let mut done = federation.completed().0;
        let mut best_round = BestRound::default();
        let mut files = RoundFiles::new(folder.path(), &self.experiment.draft.log);
        let mut log = RoundLog::open(folder.path(), federation.log(), &mut |report| {
            best_round.note(&report);
            files.recall(&report);
        })?;
        // What can be refused has been: from here on the folder is this run's.
        folder.forget_summary()?;
        files.begin()?;

        let label = self.recipe.method.as_str();
        let (clients, cohort) = (clients as u64, self.recipe.sampler.about(clients) as u64);
        let about = Rounds { label, title: None, done, rounds, clients, cohort };
        begin(fleet, Round(done), listener.begin(&about))?;
        let (mut heard, stops) = (Heard(listener), || listener.stops());
        let broken = |error, done| Breakdown::of(error, (done, rounds), folder.path());
        self.keep_best(folder, &federation, &best_round).map_err(|error| broken(error, done))?;
        let mut spent = false;
        while done < rounds && !self.has_waited(&best_round) && !stops() {
            // One round at a time, because what follows a round's checkpoint is done here.
            let sinks: &mut [&mut dyn fedra_engine::Sink] =
                &mut [&mut log, &mut files, &mut best_round, &mut heard];
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
            listener.model(done, federation.model());
            self.keep_best(folder, &federation, &best_round)
                .map_err(|error| broken(error, done))?;
        }
        listener.end();
        files.finish().map_err(|error| broken(error, done))?;
        if done < rounds && !self.has_waited(&best_round) && !spent {
            write_page(folder, listener);
            return Ok(Ending::Interrupted { rounds: done, of: rounds });
        }
        let summary = self.conclude(folder, (&federation, fleet), (&best_round, listener));
        let summary = summary.map_err(|error| broken(error, done))?;
        write_page(folder, listener);
        Ok(Ending::Complete(summary))
    }

    /// What the rounds came to, and their model.
    fn conclude(
        &self,
        folder: &Folder,
        (federation, fleet): (&Federation, &mut impl Fleet),
        (best_round, listener): (&BestRound, &dyn Listener),
    ) -> Result<Box<Summary>> {
        federation.check_arrivals()?;
        let Prepared { model, shards, .. } = &self.prepared;
        let mut reports: Vec<RoundReport> = Vec::new();
        let last = federation.completed().0;
        round_log::read(&folder.path().join(ROUNDS), federation.log(), &mut |mut report| {
            // Only the last scores are summed up; those of all clients and rounds take much room.
            if report.round.0 + 1 < last {
                report.scores = Vec::new();
            }
            reports.push(report);
        })?;
        let personal = self.personal()?;
        let patience = self.experiment.draft.evaluate.patience;
        let mut summary = Summary {
            name: self.experiment.name.clone(),
            method: self.recipe.method.clone(),
            seed: self.experiment.draft.seed,
            rounds: self.experiment.rounds,
            score: None,
            scores: std::collections::BTreeMap::new(),
            by_label: std::collections::BTreeMap::new(),
            best: best_round.best(self.best_model(folder, best_round, listener)),
            stopped: None,
            bytes: Bytes::default(),
            privacy: self.spent(federation)?.map(|spent| spent.over(&reports)),
            noise: self.noise(),
            multiply_adds: 0,
            model: self.shares_a_model()?.then(|| MODEL.to_owned()),
            inputs: Some(self.inputs.clone()),
            log: federation.log(),
            tokens: self.census.mean_tokens(),
            stage: None,
            seconds: 0.0,
            peak_rss_bytes: 0,
            clients: self.census.clients.len(),
            examples: self.census.examples(),
            parameters: model.layout().elements() as u64,
            // What the commonest answer scores is a count of clients' labels.
            baseline: self.baseline.clone().filter(|_| self.recipe.privacy.is_none()),
        }
        .add_up(&reports);
        if federation.completed().0 < self.experiment.rounds {
            let waited = patience.filter(|patience| best_round.has_waited(*patience));
            summary.stopped = Some(waited.map_or(Stopped::Budget, Stopped::Patience));
        }
        // Where nothing is decided by it within a run, it is asked for once.
        let on = EvaluationSet::ClientValidation;
        let hidden = self.recipe.privacy.as_ref().is_some_and(|privacy| !privacy.client_scores);
        let has_some = !hidden && self.census.clients.iter().any(|client| client.validation > 0);
        if has_some
            && !self.recipe.evaluation.on.contains(&on)
            && let Some(set) = federation.examine(fleet, on)?
        {
            summary.add_scores(&set);
        }
        let hidden = private::hides_own_parts(&self.recipe, model.layout())?;
        if !personal.is_empty() && !shards.central_test.is_empty() && !hidden {
            // Clients on other machines keep their own parameters, and nobody else can score them.
            if let Some(set) = self.central_scores(fleet, federation.model())? {
                summary.add_scores(&set);
            }
        }
        if personal.is_empty() {
            self.by_label(folder, federation.model(), &mut summary)?;
        }
        if summary.model.is_some() {
            self.save(folder, (MODEL, ADAPTER), federation.model())?;
            self.write_cards(folder, &summary)?;
            if !personal.is_empty() {
                listener.warn(&own_parts(&personal));
            }
        }
        summary.peak_rss_bytes = peak_resident_bytes().unwrap_or(0);
        folder.write_summary(&summary)?;
        Ok(Box::new(summary))
    }

    /// What was promised and spent.
    fn spent(&self, federation: &Federation) -> Result<Option<PrivacySummary>> {
        let (Some(privacy), Some(ledger)) = (&self.recipe.privacy, federation.ledger()) else {
            return Ok(None);
        };
        let spent = ledger.spent().map_err(EngineError::from)?;
        let mut statement = ledger.statement().map_err(EngineError::from)?;
        let simulated = federation.is_simulated();
        if simulated {
            statement = format!("{statement} {SIMULATED}");
        }
        Ok(Some(PrivacySummary { simulated, ..PrivacySummary::new(privacy, spent, statement) }))
    }

    /// The noise of rows that cross a cut, for people.
    fn noise(&self) -> Option<String> {
        self.recipe.split.as_ref()?.describe_noise()
    }

    /// Whether there is a global model: where every client keeps all of it there is none.
    fn shares_a_model(&self) -> Result<bool> {
        Ok(self.personal()?.len() < self.prepared.model.layout().len())
    }

    /// Whether the run is to stop early.
    fn has_waited(&self, best_round: &BestRound) -> bool {
        let patience = self.experiment.draft.evaluate.patience;
        patience.is_some_and(|patience| best_round.has_waited(patience))
    }

    /// Saves the model if the round that it comes from is the best so far.
    fn keep_best(
        &self,
        folder: &Folder,
        federation: &Federation,
        best_round: &BestRound,
    ) -> Result<()> {
        let wanted = self.experiment.draft.evaluate.best != Some(false);
        if !wanted || !best_round.is_at_best(federation.completed()) || !self.shares_a_model()? {
            return Ok(());
        }
        best::forget(folder.path())?;
        self.save(folder, (MODEL_BEST, ADAPTER_BEST), federation.model())?;
        best::remember(folder.path(), federation.completed().0 - 1)
    }

    /// The folder of the best model, if it is there; somebody may have taken it away.
    fn best_model(
        &self,
        folder: &Folder,
        best_round: &BestRound,
        listener: &dyn Listener,
    ) -> Option<&'static str> {
        let wanted = self.experiment.draft.evaluate.best != Some(false);
        let round =
            best_round.round().filter(|_| wanted && self.shares_a_model().unwrap_or(false))?;
        if best::is_held(folder.path(), round) {
            return Some(MODEL_BEST);
        }
        listener.warn(&format!(
            "warning: the model of round {}, the best on validation examples, is no longer in \
             {MODEL_BEST}",
            round + 1
        ));
        None
    }

    /// Every client's own model on the central test set; their mean is what a client can expect.
    fn central_scores(
        &self,
        fleet: &impl Fleet,
        global: &ParamValues,
    ) -> Result<Option<SetScores>> {
        let Prepared { model, shards, .. } = &self.prepared;
        let evaluator = self.evaluator();
        let mut each = Vec::new();
        for kept in fleet.states() {
            let state = kept.state()?;
            let mut own = global.clone();
            own.absorb(state.personal.clone());
            let params = to_params(&self.device, model.layout(), &own)?;
            let scores = evaluator.score(&params, &shards.central_test)?;
            each.push(scores.scored(Some(state.client)));
        }
        let set = || SetScores::new(EvaluationSet::CentralTest, each.clone());
        Ok((!each.is_empty()).then(set))
    }

    /// How the last model does on the central test set label by label, and what it answers to each
    /// example where that is asked for. Clients count what they answer, and say no more.
    fn by_label(&self, folder: &Folder, model: &ParamValues, summary: &mut Summary) -> Result<()> {
        let Prepared { shards, central_rows, .. } = &self.prepared;
        let evaluator = self.evaluator();
        let labelled = evaluator.can_examine() || shards.task == Task::Choice;
        let wanted = self.experiment.draft.evaluate.predictions;
        if shards.central_test.is_empty() || !(labelled || wanted) {
            return Ok(());
        }
        let params = to_params(&self.device, self.prepared.model.layout(), model)?;
        let on = set_name(EvaluationSet::CentralTest);
        let scores = if wanted {
            let mut lines: Vec<String> = Vec::new();
            let scores = evaluator.examine(&params, &shards.central_test, &mut |examined| {
                let row = central_rows.get(examined.example).copied();
                let place = Place { set: on, client: None, row: row.unwrap_or(examined.example) };
                let line = predictions::line(place, &examined, &shards.labels);
                lines.push(format!("{line}\n"));
            });
            let scores = scores.context("evaluate.predictions")?;
            folder.write_predictions(&lines.concat())?;
            scores
        } else {
            evaluator.score(&params, &shards.central_test)?
        };
        let by_label = scores.by_label(&shards.labels);
        summary.by_label.extend(by_label.map(|by_label| (on.to_owned(), by_label)));
        Ok(())
    }

    /// Puts a card into every model folder that the run has written.
    fn write_cards(&self, folder: &Folder, summary: &Summary) -> Result<()> {
        let Prepared { shards, .. } = &self.prepared;
        let has_best = summary.best.as_ref().is_some_and(|best| best.model.is_some());
        for (name, holds, round) in [
            (MODEL, Holds::Model, CardRound::Last),
            (ADAPTER, Holds::Adapter, CardRound::Last),
            (MODEL_BEST, Holds::Model, CardRound::Best),
            (ADAPTER_BEST, Holds::Adapter, CardRound::Best),
        ] {
            let path = folder.path().join(name);
            if path.is_dir() && (round == CardRound::Last || has_best) {
                let labels = shards.labels.names();
                let subject = CardSubject { task: shards.task, labels, holds, round };
                model_card::write(&path, subject, summary)?;
            }
        }
        Ok(())
    }

    fn evaluator(&self) -> Evaluator<'_> {
        let Prepared { model, shards, .. } = &self.prepared;
        Evaluator {
            model,
            device: &self.device,
            task: shards.task,
            labels: &shards.labels,
            tokens: Limits::default().tokens,
        }
    }

    /// Saves the whole model, and beside it the adapters of a model that others have too.
    fn save(
        &self,
        folder: &Folder,
        (name, adapter): (&str, &str),
        tensors: &ParamValues,
    ) -> Result<()> {
        let Prepared { model, companions, shards, problem, .. } = &self.prepared;
        let params = to_params(&self.device, model.layout(), tensors)?;
        let labels = Some(shards.labels.names().to_vec()).filter(|names| !names.is_empty());
        if let (ModelSource::Folder(base), Some(_)) = (&self.experiment.model, model.adapters()) {
            let base = base.to_string_lossy();
            let saving = AdapterSaving { base: Some(&base), labels: labels.as_deref() };
            peft::save(&folder.path().join(adapter), model, &params, saving)
                .context("cannot save the adapters")?;
        }
        let saving = Saving { precision: Precision::F32, labels, problem: *problem, companions };
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        save(&path, model, &params, &saving).context("cannot save the model")
    }
}

/// Writes the page. It is made from files that are all there, so that a run does not fail over it.
fn write_page(folder: &Folder, listener: &dyn Listener) {
    if let Err(error) = report::write_run(folder.path()) {
        listener.warn(&format!("warning: there is no page of this run: {}", error.in_words()));
    }
}

/// What a model folder lacks where clients keep parameters of their own.
fn own_parts(personal: &Scope) -> String {
    let sites: std::collections::BTreeSet<String> =
        personal.iter().map(|id| id.site.to_string()).collect();
    let sites: Vec<String> = sites.into_iter().collect();
    format!(
        "the folder {MODEL} is nobody's whole model: {} stay with each client, and there they are as \
         before the first round. Scores are those of the clients' own models",
        sites.join(", ")
    )
}
