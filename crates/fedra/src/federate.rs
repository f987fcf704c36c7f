//! A whole federation in one process, from an experiment to its output folder.

use std::sync::Arc;

use fedra_client::{LocalFleet, Middle, Shards, to_params, to_values};
use fedra_compute::{Device, Params, Seed, ThreadPool};
use fedra_engine::{
    Bytes, EvaluationSet, Federation, Fleet, ParamValues, Population, Recipe, RoundReport,
    SetScores,
};
use fedra_model::hf::Precision;
use fedra_model::peft::{self, AdapterSaving};
use fedra_model::{Saving, save};
use fedra_plan::{ByteCount, Scope};

use crate::baseline::Baseline;
use crate::best::{self, BestRound};
use crate::cutting;
use crate::error::Breakdown;
use crate::error::{Context, Result};
use crate::experiment::{Complaint, Experiment, ModelSource, complaint_of};
use crate::fingerprint::Inputs;
use crate::folder::Folder;
use crate::forecast::choices::Overlap;
use crate::forecast::{self, Forecast};
use crate::grid::{counted, grouped};
use crate::holdings::Holdings;
use crate::listener::{Heard, Listener, Rounds};
use crate::memory;
use crate::prepared::Prepared;
use crate::process::{available_bytes, peak_resident_bytes, resident_bytes};
use crate::remarks;
use crate::round_log::{self, RoundLog};
use crate::run_files::{ADAPTER, ADAPTER_BEST, EARLY, MODEL, MODEL_BEST, ROUNDS, SCRATCH};
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

/// A federation that is ready to start.
pub struct Run<'e> {
    experiment: &'e Experiment,
    prepared: Prepared,
    recipe: Recipe,
    device: Device,
    inputs: Inputs,
    baseline: Option<Baseline>,
    remarks: Vec<String>,
}

impl<'e> Run<'e> {
    /// Reads the data, opens the model and settles what is scored.
    pub fn prepare(experiment: &'e Experiment) -> Result<Self> {
        let device = Device::cpu();
        let holdings = Holdings::of(experiment)?;
        let inputs = Inputs::of(experiment, &holdings)?;
        let (mut remarks, baseline) = (remarks::of_data(&holdings), Baseline::of(&holdings));
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
        let longest = experiment.draft.data.max_tokens.unwrap_or(prepared.model.longest());
        remarks.extend(remarks::of_tokens(&prepared.shards, longest));
        let now = recipe.clone();
        let mut run = Self { experiment, prepared, recipe: now, device, inputs, baseline, remarks };
        recipe.evaluation.on = run.sets()?;
        run.recipe = recipe;
        Ok(run)
    }

    /// What is about to learn from what, in a sentence.
    pub fn introduction(&self) -> String {
        let Prepared { model, shards, .. } = &self.prepared;
        let parameters = grouped(model.layout().elements() as u64);
        let examples: usize = shards.clients.iter().map(|shard| shard.train.len()).sum();
        let parties = self.experiment.draft.federation.clients.unwrap_or(shards.clients.len());
        format!(
            "{} with {} training examples, {} for testing; a fresh encoder of {} \
             blocks and {parameters} parameters",
            counted(parties as u64, "client"),
            grouped(examples as u64),
            grouped(shards.central_test.len() as u64),
            model.blocks(),
        )
    }

    /// What a person should know before it runs, a line each: about the model, and what is odd about
    /// the data.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let about_model = self.prepared.notes.iter().map(|note| format!("note: {note}"));
        about_model.chain(self.remarks.iter().cloned())
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
        if shards.clients.iter().any(|shard| !shard.test.is_empty()) {
            sets.push(EvaluationSet::ClientTest);
        }
        let validation = shards.clients.iter().any(|shard| !shard.validation.is_empty());
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
            Some(pool) => pool.install(|| self.rounds(params, folder, listener)),
            None => self.rounds(params, folder, listener),
        }
    }

    fn rounds(&self, params: Params, folder: &Folder, listener: &dyn Listener) -> Result<Ending> {
        let Prepared { model, shards, .. } = &self.prepared;
        let (clients, rounds) = (shards.clients.len(), self.experiment.rounds);
        let seed = Seed(self.experiment.draft.seed);
        folder.settle_inputs(&self.inputs)?;

        let placement = forecast::placement(self.experiment, &self.prepared, &self.recipe)?;
        let initial = to_values(&params);
        let fleet = LocalFleet::new(model.clone(), params, self.device.clone(), shards.clone())?
            .with_depths(&self.recipe.depths)?;
        let mut fleet = placement.furnish(fleet, &folder.path().join(SCRATCH))?;
        let recipe = self.recipe.clone();
        let mut federation = Federation::new(recipe, model.layout().clone(), initial, seed)?;
        if let Some(split) = &self.recipe.split {
            let model = (model.clone(), self.device.clone());
            let middle = Arc::new(Middle::new(model, split.clone(), fleet.clients()));
            federation.with_middle(middle.clone());
            fleet = fleet.with_middle(middle, seed.of("noise"));
        }
        federation.keep_checkpoints(folder.path());
        federation.spill_to(folder.path().join(EARLY));
        if !federation.resume(folder.path(), &mut fleet)? {
            round_log::check_begun(&folder.path().join(ROUNDS))?;
        }
        let mut done = federation.completed().0;
        let mut best_round = BestRound::default();
        let mut log = RoundLog::open(folder.path(), federation.log(), &mut |report| {
            best_round.note(&report);
        })?;
        // What can be refused has been: from here on the folder is this run's.
        folder.forget_summary()?;

        let label = self.recipe.method.as_str();
        let about = Rounds { label, title: None, done, rounds, clients: clients as u64 };
        let mut fleet = fleet.with_observer(listener.begin(&about));
        let (mut heard, stops) = (Heard(listener), || listener.stops());
        let broken = |error, done| Breakdown::of(error, (done, rounds), folder.path());
        self.keep_best(folder, &federation, &best_round).map_err(|error| broken(error, done))?;
        while done < rounds && !self.has_waited(&best_round) && !stops() {
            // One round at a time, because what follows a round's checkpoint is done here.
            let sinks: &mut [&mut dyn fedra_engine::Sink] =
                &mut [&mut log, &mut best_round, &mut heard];
            let complete = federation.advance(&mut fleet, sinks, rounds, &stops);
            if !complete.map_err(|error| broken(error.into(), done))? {
                break;
            }
            done = federation.completed().0;
            self.keep_best(folder, &federation, &best_round)
                .map_err(|error| broken(error, done))?;
        }
        listener.end();
        if done < rounds && !self.has_waited(&best_round) {
            return Ok(Ending::Interrupted { rounds: done, of: rounds });
        }
        let summary = self.conclude(folder, (&federation, &mut fleet), (&best_round, listener));
        summary.map(Ending::Complete).map_err(|error| broken(error, done))
    }

    /// What the rounds came to, and their model.
    fn conclude(
        &self,
        folder: &Folder,
        (federation, fleet): (&Federation, &mut LocalFleet),
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
            best: best_round.best(self.best_model(folder, best_round, listener)),
            stopped: None,
            bytes: Bytes::default(),
            privacy: None,
            multiply_adds: 0,
            model: self.shares_a_model()?.then(|| MODEL.to_owned()),
            inputs: Some(self.inputs.clone()),
            log: federation.log(),
            tokens: mean_tokens(shards),
            stage: None,
            seconds: 0.0,
            peak_rss_bytes: 0,
            clients: shards.clients.len(),
            examples: shards.clients.iter().map(|shard| shard.train.len() as u64).sum(),
            parameters: model.layout().elements() as u64,
            baseline: self.baseline.clone(),
        }
        .add_up(&reports);
        if federation.completed().0 < self.experiment.rounds {
            summary.stopped = patience.map(|patience| Stopped { patience });
        }
        // Where nothing is decided by it within a run, it is asked for once.
        let on = EvaluationSet::ClientValidation;
        if !self.recipe.evaluation.on.contains(&on)
            && let Some(set) = federation.examine(fleet, on)?
        {
            summary.add_scores(&set);
        }
        if !personal.is_empty() && !shards.central_test.is_empty() {
            let set = self.central_scores(fleet, federation.model())?;
            summary.add_scores(&set);
        }
        if summary.model.is_some() {
            self.save(folder, (MODEL, ADAPTER), federation.model())?;
        }
        summary.peak_rss_bytes = peak_resident_bytes().unwrap_or(0);
        folder.write_summary(&summary)?;
        Ok(Box::new(summary))
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
    fn central_scores(&self, fleet: &LocalFleet, global: &ParamValues) -> Result<SetScores> {
        let Prepared { model, shards, .. } = &self.prepared;
        let mut each = Vec::new();
        for kept in fleet.states() {
            let state = kept.state()?;
            let mut own = global.clone();
            own.absorb(state.personal.clone());
            let params = to_params(&self.device, model.layout(), &own)?;
            let scores = fleet.score(&params, &shards.central_test)?;
            each.push(scores.scored(Some(state.client)));
        }
        Ok(SetScores::new(EvaluationSet::CentralTest, each))
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

/// Tokens of a training example, in the mean over all clients.
fn mean_tokens(shards: &Shards) -> f64 {
    let encoded = || shards.clients.iter().flat_map(|shard| shard.train.encoded());
    let tokens: usize = encoded().map(|example| example.ids.len()).sum();
    tokens as f64 / encoded().count().max(1) as f64
}
