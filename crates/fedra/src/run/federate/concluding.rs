//! What a run leaves when its rounds have finished: the models, the scores, the summary.

use crate::config::{DeviceReport, ModelSource};
use crate::error::{Context, Result};
use crate::folder::best::{self, BestRound};
use crate::folder::json_file;
use crate::folder::model_card::{self, CardSubject, Holds, WhichRound};
use crate::folder::predictions::{self, Place};
use crate::folder::regular_file;
use crate::folder::round_log;
use crate::folder::run_folder::Folder;
use crate::folder::summary::{Stopped, Summary};
use crate::forecast::private::{self, PrivacySummary, SIMULATED};
use crate::listener::Listener;
use crate::prepare::prepared::{Prepared, evaluator};
use crate::process::PeakMemory;
use crate::run_files::{
    ADAPTER, ADAPTER_BEST, BEST, MODEL, MODEL_BEST, PREDICTIONS, ROUNDS, SUMMARY,
};
use crate::text::headline::set_name;
use fedra_client::{Examined, Meter, Scores, to_params_over};
use fedra_compute::Device;
use fedra_data::Task;
use fedra_engine::{
    EngineError, EvaluationSet, Federation, Fleet, ParamValues, RoundReport, SetScores, SideMemory,
};
use fedra_hub::ModelName;
use fedra_model::hf::Precision;
use fedra_model::hf::companions::CHAT_TEMPLATE;
use fedra_model::peft::{self, AdapterSaving};
use fedra_model::{Saving, save};
use fedra_plan::Scope;
use std::collections::BTreeMap;

use super::Run;

impl Run {
    /// What the rounds came to, and their model.
    pub(super) fn conclude(
        &self,
        folder: &Folder,
        (federation, fleet): (&Federation, &mut impl Fleet),
        (best_round, listener, meter): (&BestRound, &dyn Listener, &Meter<'_>),
    ) -> Result<Box<Summary>> {
        federation.check_arrivals()?;
        federation.check_losses()?;
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
        let patience = self.experiment.raw.evaluate.patience;
        let mut summary = Summary {
            name: self.experiment.name.clone(),
            method: self.recipe.method.clone(),
            seed: self.experiment.seed.0,
            rounds: self.experiment.rounds,
            best: best_round.best(self.best_model(folder, best_round, listener)),
            privacy: self.spent(federation)?.map(|spent| spent.over(&reports)),
            noise: self.noise(),
            model: self.shares_a_model()?.then(|| self.model_folder().to_owned()),
            inputs: Some(self.inputs.clone()),
            log: federation.log(),
            tokens: self.census.mean_tokens(),
            foreseen_memory: self.foreseen_memory(&reports),
            clients: self.census.clients.len(),
            examples: self.census.examples(),
            parameters: model.layout().elements() as u64,
            // What the commonest answer scores is a count of clients' labels.
            baseline: self.baseline.clone().filter(|_| self.recipe.privacy.is_none()),
            ..Summary::default()
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
            if let Some(set) = self.central_scores(fleet, federation.model(), meter)? {
                summary.add_scores(&set);
            }
        }
        check_finite(&summary)?;
        if personal.is_empty() {
            self.by_label(folder, federation.model(), (&mut summary, meter))?;
        }
        if summary.model.is_some() {
            self.save(folder, (MODEL, ADAPTER), federation.model())?;
            self.write_cards(folder, &summary)?;
            if !personal.is_empty() {
                listener.warn(&own_parts(&personal));
            }
        }
        summary.device = Some(DeviceReport::of(&self.device));
        let peak = PeakMemory::of(&self.device);
        (summary.device_peak_bytes, summary.peak_rss_bytes) = (peak.gpu, peak.resident);
        json_file::write(&folder.path().join(SUMMARY), &summary)?;
        Ok(Box::new(summary))
    }

    /// What each side would hold on a machine of its own; `None` where that was measured, and where clients
    /// are elsewhere, whose batches nobody here has seen.
    fn foreseen_memory(&self, reports: &[RoundReport]) -> Option<SideMemory> {
        let measured = reports.iter().any(|report| report.memory.is_some());
        let elsewhere = self.prepared.shards.clients.iter().all(|shard| shard.train.is_empty());
        self.foreseen.get().copied().filter(|_| !measured && !elsewhere)
    }

    /// The guarantee, and what was spent.
    pub(super) fn spent(&self, federation: &Federation) -> Result<Option<PrivacySummary>> {
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
    pub(super) fn noise(&self) -> Option<String> {
        self.recipe.split.as_ref()?.describe_noise()
    }

    /// Saves the model if the round that it comes from is the best so far.
    pub(super) fn keep_best(
        &self,
        folder: &Folder,
        federation: &Federation,
        best_round: &BestRound,
    ) -> Result<()> {
        let completed = federation.completed().0;
        let is_best = best_round.best.as_ref().is_some_and(|best| best.round + 1 == completed);
        if !self.experiment.raw.evaluate.keeps_best() || !is_best || !self.shares_a_model()? {
            return Ok(());
        }
        // It is about to be written.
        regular_file::remove(&folder.path().join(BEST))?;
        self.save(folder, (MODEL_BEST, ADAPTER_BEST), federation.model())?;
        best::remember(folder.path(), completed - 1)
    }

    /// The folder of the best model, if it is there; somebody may have taken it away.
    pub(super) fn best_model(
        &self,
        folder: &Folder,
        best_round: &BestRound,
        listener: &dyn Listener,
    ) -> Option<&'static str> {
        let wanted = self.experiment.raw.evaluate.keeps_best();
        let best = best_round.best.as_ref().filter(|_| wanted);
        let round = best.filter(|_| self.shares_a_model().unwrap_or(false))?.round;
        if let Some(place) = best::held_in(folder.path(), round) {
            return Some(place);
        }
        listener.warn(&format!(
            "warning: the model of round {}, the best on validation examples, is no longer in \
             {MODEL_BEST}",
            round + 1
        ));
        None
    }

    /// Every client's own model on the central test set; their mean is what a client can expect.
    pub(super) fn central_scores(
        &self,
        fleet: &impl Fleet,
        global: &ParamValues,
        meter: &Meter<'_>,
    ) -> Result<Option<SetScores>> {
        let Prepared { model, base, shards, .. } = &self.prepared;
        let evaluator = evaluator(model, &self.device, shards);
        let mut each = Vec::new();
        for kept in fleet.states() {
            let state = kept.state()?;
            let mut own = global.clone();
            own.absorb(state.personal.clone());
            let params = to_params_over(&self.device, (model.layout(), base), &own)?;
            let examples = (&shards.central_test, Some(state.client));
            let own = self.experiment.parts.as_deref();
            each.push(evaluator.judged(&params, examples, (own, meter))?);
        }
        Ok((!each.is_empty()).then(|| SetScores::new(EvaluationSet::CentralTest, each)))
    }

    /// How the last model does label by label, and what it answers to each central test example where that is asked
    /// for: on the central test set, or, where there is none, on the clients' test sets as one set. The latter
    /// takes rows of clients, so it is there only where their rows are in this process, and never in a private
    /// run: what is true and answered at clients is nothing that its guarantee covers.
    fn by_label(
        &self,
        folder: &Folder,
        model: &ParamValues,
        (summary, meter): (&mut Summary, &Meter<'_>),
    ) -> Result<()> {
        let Prepared { model: structure, shards, central_rows, .. } = &self.prepared;
        let evaluator = evaluator(structure, &self.device, shards);
        let labelled = evaluator.can_examine() || shards.task == Task::Choice;
        let (on, sets) = if !shards.central_test.is_empty() {
            (EvaluationSet::CentralTest, vec![&shards.central_test])
        } else if self.recipe.privacy.is_none() {
            let tests = shards.clients.iter().map(|shard| &shard.test);
            (EvaluationSet::ClientTest, tests.filter(|test| !test.is_empty()).collect())
        } else {
            return Ok(());
        };
        let is_central = on == EvaluationSet::CentralTest;
        let wanted = is_central && self.experiment.raw.evaluate.predictions;
        if sets.is_empty() || !(labelled || wanted) {
            return Ok(());
        }
        let over = (structure.layout(), &self.prepared.base);
        let params = to_params_over(&self.device, over, model)?;
        let on = set_name(on);
        let mut all = Scores::new(shards.task, &shards.labels);
        if wanted {
            let mut lines: Vec<String> = Vec::new();
            let mut each = |examined: Examined| {
                let row = central_rows.get(examined.example).copied();
                let place = Place { set: on, client: None, row: row.unwrap_or(examined.example) };
                let line = predictions::line(place, &examined, &shards.labels);
                lines.push(format!("{line}\n"));
            };
            let each: &mut dyn FnMut(Examined) = &mut each;
            let scores = evaluator.examine_counted(&params, &shards.central_test, (meter, each));
            all = scores.context("evaluate.predictions")?;
            let path = folder.path().join(PREDICTIONS);
            regular_file::write(&path, lines.concat().as_bytes())?;
        } else {
            for set in sets {
                all.merge(&evaluator.score_counted(&params, set, meter)?);
            }
        }
        let by_label = all.by_label(&shards.labels);
        summary.by_label.extend(by_label.map(|by_label| (on.to_owned(), by_label)));
        Ok(())
    }

    /// Puts a card into every model folder that the run has written.
    pub(super) fn write_cards(&self, folder: &Folder, summary: &Summary) -> Result<()> {
        let Prepared { shards, model, .. } = &self.prepared;
        let reads_images = model.config().image.is_some();
        let has_best = summary.best.as_ref().is_some_and(|best| best.model.is_some());
        for (name, holds, round) in [
            (MODEL, Holds::Model, WhichRound::Last),
            (ADAPTER, Holds::Adapter, WhichRound::Last),
            (MODEL_BEST, Holds::Model, WhichRound::Best),
            (ADAPTER_BEST, Holds::Adapter, WhichRound::Best),
        ] {
            let path = folder.path().join(name);
            if path.is_dir() && (round == WhichRound::Last || has_best) {
                let labels = shards.labels.names();
                let task = shards.task;
                let subject = CardSubject { task, reads_images, labels, holds, round };
                model_card::write(&path, subject, summary)?;
            }
        }
        Ok(())
    }

    /// The folder that has the model of the last round.
    fn model_folder(&self) -> &'static str {
        if self.leaves_adapters_alone() { ADAPTER } else { MODEL }
    }

    /// Whether the model is its adapters over a base that stays where it is: merged in f32 it would be several times
    /// as large as what the run computed with.
    fn leaves_adapters_alone(&self) -> bool {
        let is_folder = matches!(self.experiment.model, ModelSource::Folder(_));
        is_folder && self.prepared.model.adapters().is_some() && !self.prepared.base.is_empty()
    }

    /// Saves the whole model, and beside it the adapters of a model that others have too.
    pub(super) fn save(
        &self,
        folder: &Folder,
        (name, adapter): (&str, &str),
        tensors: &ParamValues,
    ) -> Result<()> {
        let Prepared { model, companions, shards, problem, .. } = &self.prepared;
        // What is written is read in main memory.
        let host =
            if let Device::Cuda(_) = self.device { Device::cpu() } else { self.device.clone() };
        let over = (model.layout(), &self.prepared.base);
        let params = to_params_over(&host, over, tensors)?;
        let labels = Some(shards.labels.names().to_vec()).filter(|names| !names.is_empty());
        if let (ModelSource::Folder(base), Some(_)) = (&self.experiment.model, model.adapters()) {
            let name = self.hub_model();
            let base =
                name.as_ref().map_or_else(|| base.to_string_lossy(), |it| it.repository().into());
            let saving = AdapterSaving {
                base: Some(&base),
                revision: name.as_ref().and_then(ModelName::commit),
                labels: labels.as_deref(),
                problem: *problem,
            };
            peft::save(&folder.path().join(adapter), model, &params, saving)
                .context("cannot save the adapters")?;
            // Adapters learnt what conversations look like in this template, which is not always that of their base.
            let template = companions.get(CHAT_TEMPLATE);
            if let (Task::Chat | Task::Preference, Some(template)) = (shards.task, template) {
                regular_file::write(&folder.path().join(adapter).join(CHAT_TEMPLATE), template)?;
            }
            if self.leaves_adapters_alone() {
                return Ok(());
            }
        }
        let saving = Saving { precision: Precision::F32, labels, problem: *problem, companions };
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let saved = save(&path, model, &params, &saving).context("cannot save the model");
        drop(params);
        self.device.rest();
        saved
    }
}

/// What a model folder lacks where clients keep parameters of their own.
fn own_parts(personal: &Scope) -> String {
    let sites: std::collections::BTreeSet<String> =
        personal.iter().map(|id| id.layer.to_string()).collect();
    let sites: Vec<String> = sites.into_iter().collect();
    let stay = if sites.len() == 1 { "stays" } else { "stay" };
    format!(
        "the folder {MODEL} is not the model of any client: {} {stay} at each client, and the folder has the \
         initial values. Scores are those of the clients' own models",
        sites.join(", ")
    )
}

/// Refuses to call good what was scored at the end with a loss that is no number.
fn check_finite(summary: &Summary) -> Result<()> {
    let is_finite =
        |scores: &BTreeMap<String, f64>| scores.get("loss").is_none_or(|loss| loss.is_finite());
    if let Some((set, _)) = summary.scores.iter().find(|(_, scores)| !is_finite(scores)) {
        let of = format!("the {}", set.replace('_', " "));
        return Err(EngineError::LossDiverged { of, round: summary.rounds }.into());
    }
    Ok(())
}
