//! A whole federation in one process, from an experiment to its output folder.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use fedra_client::{NearFleet, Shards, to_params, to_tensors};
use fedra_compute::{Crew, Device, Params, Seed};
use fedra_engine::{
    Bytes, EvaluationSet, Federation, Fleet, Population, Recipe, SetScores, Tensors,
};
use fedra_model::hf::Precision;
use fedra_model::{Saving, save};
use fedra_plan::{Round, Scope, Selector, View};

use crate::baseline::Baseline;
use crate::bench::memory::peak_resident_bytes;
use crate::experiment::{Experiment, complaint_of};
use crate::folder::Folder;
use crate::forecast;
use crate::grid::{counted, grouped};
use crate::holdings::Holdings;
use crate::keeping::SCRATCH;
use crate::memory;
use crate::prepared::Prepared;
use crate::progress::{Progress, Voice};
use crate::remarks;
use crate::summary::Summary;

/// How a run ended.
pub enum Ending {
    /// All rounds are complete.
    Complete(Box<Summary>),
    /// It was interrupted after so many.
    Interrupted(u32),
}

/// A federation that is ready to start.
pub struct Run<'e> {
    experiment: &'e Experiment,
    prepared: Prepared,
    recipe: Recipe,
    device: Device,
    baseline: Option<Baseline>,
    remarks: Vec<String>,
}

impl<'e> Run<'e> {
    /// Reads the data, opens the model and settles what is scored.
    pub fn prepare(experiment: &'e Experiment) -> Result<Self> {
        let device = Device::cpu();
        let holdings = Holdings::of(experiment)?;
        let mut prepared = Prepared::of(experiment, &holdings, &device)?;
        let mut recipe = experiment.recipe.clone();
        if recipe.population == Population::Pooled {
            prepared.shards = prepared.shards.pooled();
        }
        recipe.check(prepared.shards.clients.len())?;
        if let Some(budget) = recipe.selection.budget.take() {
            let k = memory::blocks_within(budget, &prepared.model, (&recipe, experiment))?;
            recipe.learns = recipe.learns.with_block_count(k);
            recipe.check(prepared.shards.clients.len()).map_err(complaint_of)?;
        }
        let names: Vec<&str> =
            prepared.shards.clients.iter().map(|shard| shard.name.as_str()).collect();
        recipe.check_model(prepared.model.layout(), &names).map_err(complaint_of)?;
        recipe.fits(prepared.model.layout())?;
        let remarks = {
            let longest = experiment.draft.data.max_tokens.unwrap_or(prepared.model.longest());
            let mut remarks = remarks::of_data(&holdings);
            remarks.extend(remarks::of_tokens(&prepared.shards, longest));
            remarks
        };
        let baseline = Baseline::of(&holdings);
        drop(holdings);
        let recipe_now = recipe.clone();
        let mut run = Self { experiment, prepared, recipe: recipe_now, device, baseline, remarks };
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

    /// What is odd about its data, a line each.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What its scores are to be compared with.
    pub fn baseline(&self) -> Option<&Baseline> {
        self.baseline.as_ref()
    }

    /// What it starts from, and the recipe it follows.
    pub fn parts(&self) -> (&Prepared, &Recipe) {
        (&self.prepared, &self.recipe)
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
        Ok(sets)
    }

    fn personal(&self) -> Result<Scope> {
        let layout = self.prepared.model.layout();
        let view = View { layout, round: Round(0), scores: None };
        Ok(self.recipe.personal.select(view)?)
    }

    /// Runs the rounds in a folder, from its checkpoint if it has one.
    pub fn run(mut self, folder: &Folder, voice: Voice) -> Result<Ending> {
        // The first weights are the fleet's from here on: what a download changes is not kept twice.
        let params = std::mem::take(&mut self.prepared.params);
        match self.experiment.draft.threads {
            Some(threads) => Crew::new(threads)?.install(|| self.rounds(params, folder, voice)),
            None => self.rounds(params, folder, voice),
        }
    }

    fn rounds(&self, params: Params, folder: &Folder, voice: Voice) -> Result<Ending> {
        let Prepared { model, shards, .. } = &self.prepared;
        let (clients, rounds) = (shards.clients.len(), self.experiment.rounds);
        let examples = shards.clients.iter().map(|shard| shard.train.len() as u64).sum();
        let seed = Seed(self.experiment.draft.seed);

        let keeping = forecast::keeping(self.experiment, &self.prepared, &self.recipe)?;
        let initial = to_tensors(&params);
        let fleet = NearFleet::new(model.clone(), params, self.device.clone(), shards.clone())?
            .with_depths(&self.recipe.depths)?;
        let mut fleet = keeping.furnish(fleet, &folder.path().join(SCRATCH))?;
        let recipe = self.recipe.clone();
        let mut federation = Federation::new(recipe, model.layout().clone(), initial, seed)?;
        federation.keep_checkpoints(folder.path());
        federation.resume(folder.path(), &mut fleet)?;
        let done = federation.completed().0;
        folder.rounds_before(done)?;

        let label = self.recipe.method.as_str();
        let mut progress = Progress::new(label, (done, rounds), clients as u64, voice);
        let mut fleet = fleet.with_observer(progress.observer());
        let mut log = folder.round_log()?;
        federation.run(&mut fleet, &mut [&mut log, &mut progress], rounds, &interrupted)?;
        progress.finish();
        if federation.completed().0 < rounds {
            return Ok(Ending::Interrupted(federation.completed().0));
        }

        let personal = self.personal()?;
        let mut summary = Summary {
            name: self.experiment.name.clone(),
            method: self.recipe.method.clone(),
            seed: seed.0,
            rounds,
            score: None,
            scores: std::collections::BTreeMap::new(),
            bytes: Bytes::default(),
            privacy: None,
            multiply_adds: 0,
            model: (personal.len() < model.layout().len()).then(|| "model".to_owned()),
            tokens: mean_tokens(shards),
            stage: None,
            seconds: 0.0,
            peak_rss_bytes: 0,
            clients,
            examples,
            parameters: model.layout().elements() as u64,
            baseline: self.baseline.clone(),
        }
        .add_up(&folder.rounds_before(rounds)?);
        // Nothing is decided by it within a run, so it is asked for once.
        if let Some(set) = federation.examine(&mut fleet, EvaluationSet::ClientValidation)? {
            summary.add_scores(&set);
        }
        if !personal.is_empty() && !shards.central_test.is_empty() {
            let set = self.central_scores(&fleet, federation.model())?;
            summary.add_scores(&set);
        }
        if summary.model.is_some() {
            self.save(folder, federation.model())?;
        }
        summary.peak_rss_bytes = peak_resident_bytes().unwrap_or(0);
        folder.write_summary(&summary)?;
        Ok(Ending::Complete(Box::new(summary)))
    }

    /// Every client's own model on the central test set; their mean is what a client can expect.
    fn central_scores(&self, fleet: &NearFleet, global: &Tensors) -> Result<SetScores> {
        let Prepared { model, shards, .. } = &self.prepared;
        let mut each = Vec::new();
        for kept in fleet.kept() {
            let state = kept.state()?;
            let mut own = global.clone();
            own.absorb(state.personal.clone());
            let params = to_params(&self.device, model.layout(), &own)?;
            let scores = fleet.score(&params, &shards.central_test)?;
            each.push(scores.scored(Some(state.client)));
        }
        Ok(SetScores::new(EvaluationSet::CentralTest, each))
    }

    fn save(&self, folder: &Folder, tensors: &Tensors) -> Result<()> {
        let Prepared { model, companions, shards, problem, .. } = &self.prepared;
        let params = to_params(&self.device, model.layout(), tensors)?;
        let labels = Some(shards.labels.names().to_vec()).filter(|names| !names.is_empty());
        let saving = Saving { precision: Precision::F32, labels, problem: *problem, companions };
        let path = folder.model();
        std::fs::create_dir_all(&path)?;
        save(&path, model, &params, &saving).context("cannot save the model")
    }
}

/// Tokens of a training example, in the mean over all clients.
fn mean_tokens(shards: &Shards) -> f64 {
    let encoded = || shards.clients.iter().flat_map(|shard| shard.train.encoded());
    let tokens: usize = encoded().map(|example| example.ids.len()).sum();
    tokens as f64 / encoded().count().max(1) as f64
}

static PRESSED: AtomicBool = AtomicBool::new(false);

/// Stops after the round that is on once standard input ends, as if Ctrl-C had been pressed: a
/// comparison holds the other end and lets go of it when it stops or dies.
pub fn stop_with_standard_input() {
    std::thread::spawn(|| {
        let _ended = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        PRESSED.store(true, Ordering::SeqCst);
    });
}

/// Whether Ctrl-C was pressed. A second press ends the process at once.
pub fn interrupted() -> bool {
    static LISTENING: LazyLock<bool> = LazyLock::new(|| {
        ctrlc::set_handler(|| {
            if PRESSED.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            crate::console::say("\nstopping after this round; press Ctrl-C again to stop at once");
        })
        .is_ok()
    });
    *LISTENING && PRESSED.load(Ordering::SeqCst)
}
