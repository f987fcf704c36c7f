//! `fedra attack membership`: which rows did a released model learn from?

mod findings;

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::listener::{Event, Listener, Rounds};
use fedra::study::compare::{CompareRequest, Variant, WorkPlan};
use fedra::study::shadow::{Released, ShadowModel, ShadowRequest};
use fedra::text::headline::round_line;
use fedra_client::Observer;

use fedra_engine::durable;

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Overrides;
use crate::files;
use crate::flags::{Quiet, Verbosity, whole};
use crate::hub;
use crate::interrupt;
use crate::progress::Stopping;
use crate::screen::TextLine;
use crate::study_folder::StudyFolder;
use findings::Attacked;

pub const HELP: &str = "\
Examples:
  fedra attack membership experiments/membership.toml
  fedra attack membership experiments/membership.toml --at-score 0.5
  fedra attack membership experiments/clinic-concepts.toml --sweep method.name=fedavg,fedadam \\
    --set data.clinic.notes=200 --set work.epochs=4 --shadows 32 --json

DIR/VARIANT holds one file for each model: the same command again trains only the missing ones.
docs/attack_methods.md describes the attacks and the reported rates.";

/// The whole command.
#[derive(Args)]
pub struct Membership {
    /// Experiment file in TOML; its [compare] table names variants
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceFlags,
    /// Give a key several values; several keys give all combinations
    #[arg(long = "sweep", value_name = "KEY=V1,V2,...")]
    sweeps: Vec<String>,
    /// Attack only these variants, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Shadow models for each attacked model; one more is trained, and each is attacked once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole::<u64>(7, Some(10_000)))]
    shadows: u64,
    /// Attack the first model whose test score is at least this, instead of the last one
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    at_score: Option<f64>,
    /// Where results go [default: runs/membership-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Membership {
    /// Trains what is missing, attacks, tells.
    pub fn run(&self) -> Result<ExitCode> {
        if self.at_score.is_some_and(|score| !score.is_finite()) {
            bail!("--at-score: found {:?}, expected a number", self.at_score);
        }
        let request = CompareRequest {
            files: vec![self.file.clone()],
            overrides: self.device.over(self.overrides.as_given()),
            seeds: Some(1),
            sweeps: self.sweeps.clone(),
            ..CompareRequest::default()
        };
        hub::provide(self.quiet.voice(), || WorkPlan::new(&request)?.open_all())?;
        let plan = WorkPlan::new(&request)?;
        let variants = self.chosen(&plan)?;
        let released = self.released();
        for variant in &variants {
            let experiment = plan.experiment(variant, &[], plan.seeds[0])?;
            ShadowModel::check(&experiment, released)
                .with_context(|| format!("variant {}", variant.name))?;
        }
        let usual = || Path::new("runs").join(format!("membership-{}", plan.name));
        let out = self.out.clone().unwrap_or_else(usual);
        let folder = StudyFolder::create(&out)?;

        let voice = self.quiet.voice();
        let follower = Follower::new(voice, variants.len() as u64 * (self.shadows + 1));
        let mut attacked = Vec::new();
        for variant in variants {
            let Some(models) = self.models(&plan, variant, &out, &follower)? else {
                follower.line.remove();
                console::say(format_args!(
                    "stopped; the same command resumes, and complete models are under {}",
                    out.display()
                ));
                return Ok(ExitCode::from(interrupt::STATUS));
            };
            attacked.push(Attacked::of(&variant.name, &models)?);
        }
        follower.line.remove();
        findings::write(&attacked, &folder)?;
        findings::print(&attacked, self.json)?;
        voice.say(format_args!("\nopen {}", folder.page().display()));
        Ok(ExitCode::SUCCESS)
    }

    fn released(&self) -> Released {
        self.at_score.map_or(Released::Final, Released::AtScore)
    }

    fn chosen<'p>(&self, plan: &'p WorkPlan) -> Result<Vec<&'p Variant>> {
        let names: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
        if let Some(unknown) = self.only.iter().find(|name| !names.contains(&name.as_str())) {
            bail!("--only: found {unknown:?}, expected some of {}", names.join(", "));
        }
        let is_chosen =
            |variant: &&Variant| self.only.is_empty() || self.only.contains(&variant.name);
        let chosen: Vec<&Variant> = plan.variants.iter().filter(is_chosen).collect();
        if let Some(tuned) = chosen.iter().find(|variant| !variant.tuned.is_empty()) {
            bail!(
                "compare.tune is not supported here: {} has keys to tune; put the chosen values into the file",
                tuned.name
            );
        }
        Ok(chosen)
    }

    /// All models of a variant, those of an earlier call among them; `None` when told to stop.
    fn models(
        &self,
        plan: &WorkPlan,
        variant: &Variant,
        out: &Path,
        follower: &Follower,
    ) -> Result<Option<Vec<ShadowModel>>> {
        let experiment = plan.experiment(variant, &[], plan.seeds[0])?;
        let folder = out.join(&variant.name);
        files::make_folder(&folder)?;
        let released = self.released();
        let mut models = Vec::new();
        for number in 0..=self.shadows {
            let scratch = folder.join(format!("model-{number}.run"));
            let request =
                ShadowRequest { experiment: &experiment, number, released, scratch: &scratch };
            let file = folder.join(format!("model-{number}.json"));
            let (model, of) = (number + 1, self.shadows + 1);
            follower.name(format!("{}, model {model} of {of}", variant.name));
            let model = if let Some(model) = earlier(&file, &request)? {
                model
            } else {
                let begun = Instant::now();
                let Some(model) = ShadowModel::train(&request, follower)? else { return Ok(None) };
                durable::write(&file, &serde_json::to_vec(&model)?)
                    .with_context(|| format!("cannot write {}", file.display()))?;
                follower.trained(&model, begun.elapsed().as_secs_f64());
                model
            };
            follower.done.update(|done| done + 1);
            models.push(model);
        }
        Ok(Some(models))
    }
}

/// The model of an earlier call, if its file holds the one that is asked for.
fn earlier(file: &Path, request: &ShadowRequest<'_>) -> Result<Option<ShadowModel>> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    let Ok(model) = serde_json::from_str::<ShadowModel>(&text) else { return Ok(None) };
    Ok(model.answers(request)?.then_some(model))
}

/// Shows the models as they are trained: a live line on a terminal, a line for each elsewhere.
struct Follower {
    voice: Verbosity,
    line: TextLine,
    /// Models in all, and how many of them are done.
    models: u64,
    done: Cell<u64>,
    name: RefCell<String>,
    rounds: Cell<u32>,
    noted: RefCell<Vec<String>>,
}

impl Follower {
    fn new(voice: Verbosity, models: u64) -> Self {
        let line = TextLine::new(voice == Verbosity::Lively);
        let (name, noted) = (RefCell::default(), RefCell::default());
        Self { voice, line, models, done: Cell::new(0), name, rounds: Cell::new(0), noted }
    }

    fn name(&self, name: String) {
        self.name.replace(name);
        self.show("");
    }

    fn show(&self, more: &str) {
        let (done, models) = (self.done.get(), self.models);
        self.line.set(format!("{done}/{models}  {}{more}", self.name.borrow()));
    }

    fn trained(&self, model: &ShadowModel, seconds: f64) {
        let score = model.score.as_ref();
        let score = score.map_or(String::new(), |one| format!("{} {:.3} ", one.name, one.value));
        let missed = if model.is_reached { "" } else { ": never reached --at-score" };
        let (name, rounds) = (self.name.borrow(), model.rounds);
        self.voice
            .say(format_args!("{name}: {score}after {rounds} rounds, {seconds:.0} s{missed}"));
    }
}

impl Listener for Follower {
    fn hear(&self, event: Event<'_>) {
        match event {
            // The same experiment is run many times: what there is to know about it is said once.
            Event::Note(line) | Event::Warning(line) => {
                if !self.noted.borrow().iter().any(|noted| noted == line) {
                    self.noted.borrow_mut().push(line.to_owned());
                    self.voice.say(line);
                }
            }
            Event::Round(report) => {
                let line = round_line(report, self.rounds.get());
                self.show(&format!("  {line}"));
            }
            Event::Preparing(_) | Event::Prepared | Event::Model(..) | Event::End => {}
        }
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        self.rounds.set(rounds.rounds);
        Arc::new(Stopping)
    }

    fn stops(&self) -> bool {
        interrupt::interrupted()
    }
}
