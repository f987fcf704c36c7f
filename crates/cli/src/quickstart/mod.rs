//! `fedra quickstart`: the whole story on notes that no patient wrote.
//!
//! A public model first, then every variant of one experiment file from that model, one after another in
//! this process. `fedra compare` takes the same file and runs it with several seeds, so nothing that the
//! table shows is known to this command alone.

mod story;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::folder::output_folder::{self, OverwritePolicy};
use fedra::folder::run_folder::Folder;
use fedra::folder::summary::duration;
use fedra::forecast::cutting::Cuts;
use fedra::process::forget_peak;
use fedra::report::{self, Variant};
use fedra::run::federate::{Ending, Run};
use fedra::{Experiment, Overrides, Summary};

use crate::console;
use crate::flags::{Quiet, Verbosity, parse_seed};
use crate::interrupt;
use crate::keyed_errors::{COMPARE, in_flags};
use crate::terminal::Terminal;
use story::{Story, Way};

const PUBLIC: &str = include_str!("../../../../experiments/quickstart_public.toml");
const EXPERIMENT: &str = include_str!("../../../../experiments/quickstart.toml");
/// The public model before it is there, so that all runs can be checked before the first begins.
const FRESH: &str =
    "model={ preset = \"tiny-encoder\", blocks = 4, width = 32, vocabulary = 1000 }";
/// The public model's folder, and what its run is called.
const START: &str = "public";

const EXAMPLES: &str = "\
Examples:
  fedra quickstart
  fedra quickstart --seed 2 --out runs/another
  fedra quickstart --set data.clinic.notes=400      smaller and faster; scores are lower

Eight synthetic hospitals mark problems, tests and treatments in their notes. docs/tutorial.md
explains the rows of the table; experiments/quickstart.toml has the settings. The files of each
run are under DIR/NAME.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Quickstart {
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "runs/quickstart")]
    out: PathBuf,
    /// Override the seed
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<u64>,
    /// Override one key of experiments/quickstart.toml in every run, as in federation.rounds=8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Quickstart {
    /// Runs everything, and prints one table, one picture and what to try next.
    pub fn run(self) -> Result<ExitCode> {
        let begun = Instant::now();
        let voice = self.quiet.voice();
        self.check_sets()?;
        let public =
            Experiment::from_text(PUBLIC, "quickstart_public.toml", START, &Overrides::default())?;
        // Its own earlier runs may be replaced; any other is refused before the first begins.
        output_folder::check_for_several(&self.out, "the quickstart")
            .map_err(|refused| in_flags(fedra::Error::from(refused).into(), COMPARE))?;
        let at = |name: &str| self.out.join(folder_of(name));
        output_folder::check(&at(START), &public, OverwritePolicy::Namesake)?;
        for (name, experiment) in self.experiments(FRESH)? {
            output_folder::check(&at(&name), &experiment, OverwritePolicy::Namesake)?;
        }
        // Held to the end: another one would take turns with this one.
        let whole = Folder::claim(&self.out)?;
        let folder = Folder::create(&at(START), &public)?;
        if rounds(START, Run::prepare(&public)?, &folder, voice)?.is_none() {
            return Ok(stopped());
        }
        let model = std::path::absolute(at(START).join("model"))
            .with_context(|| format!("cannot resolve the path {}", self.out.display()))?;
        // A JSON string is a TOML string.
        let model = serde_json::to_string(&model.display().to_string())?;
        let experiments = self.experiments(&format!("model.path={model}"))?;
        let mut story = Story::default();
        for (name, experiment) in &experiments {
            forget_peak();
            let run = Run::prepare(experiment)?;
            if story.ways.is_empty() {
                story.floor =
                    run.baseline.as_ref().and_then(|floor| floor.score("central_test", "span_f1"));
                voice.say(format_args!("{}\n", run.introduction()));
            }
            let client_memory = fedra::plan_of(&run, Cuts::default())?.client_memory;
            let folder = Folder::create(&at(name), experiment)?;
            let Some(summary) = rounds(name, run, &folder, voice)? else { return Ok(stopped()) };
            story.ways.push(Way { name: name.clone(), client_memory, summary });
        }
        let page = self.page(&story)?;
        drop(whole);
        voice.say("");
        console::table(&story.table());
        voice.say(format_args!("\n{}\n", story.picture()));
        for line in story.words() {
            voice.say(line);
        }
        voice.say(format_args!("\n{} in all\n", duration(begun.elapsed().as_secs_f64())));
        voice.say(story::next(&self.out, &page));
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses keys in which the runs differ by design.
    fn check_sets(&self) -> Result<()> {
        for set in &self.sets {
            let key = set.split_once('=').map_or(set.as_str(), |(key, _)| key).trim();
            match key.split('.').next() {
                Some("method") => bail!(
                    "--set: found {key}, expected a key that all runs share: each run is another method\n\
                     hint: the files of one run are those of an experiment, as in\n  \
                     fedra run {}/fedavg/experiment.toml --set {set} --out runs/another",
                    self.out.display()
                ),
                Some("name") => bail!(
                    "--set: found name, expected another key: runs are named after their methods, and --out DIR \
                     names the folder"
                ),
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// The public model as it is, then every variant of the file, with their names.
    fn experiments(&self, model: &str) -> Result<Vec<(String, Experiment)>> {
        let common = Overrides::new(vec![model.to_owned()], self.seed);
        let read = |name: &str, overrides: &Overrides| {
            let overrides = self.sets.iter().fold(overrides.clone(), |all, one| all.set(one));
            let overrides = overrides.set(&format!("name=quickstart-{}", folder_of(name)));
            Experiment::from_text(EXPERIMENT, "quickstart.toml", "quickstart", &overrides)
        };
        // At rate 0 nothing is learnt: this is how a model is scored on the test notes of the others.
        let unchanged = ["work.optimiser.rate=0.0", "work.max_steps=1", "federation.rounds=1"];
        let unchanged = unchanged.iter().fold(common.clone(), |all, one| all.set(one));
        let first = read(story::UNCHANGED, &unchanged)?;
        let (seed, table) = (first.seed.0, first.compare.clone().unwrap_or_default());
        let mut all = vec![(story::UNCHANGED.to_owned(), first)];
        for variant in table.variants {
            let assigned: Vec<_> = variant.set.into_iter().collect();
            all.push((variant.name.clone(), read(&variant.name, &common.with(&assigned, seed))?));
        }
        Ok(all)
    }

    /// One page of all of them.
    fn page(&self, story: &Story) -> Result<PathBuf> {
        let variants: Vec<Variant> = story
            .ways
            .iter()
            .filter(|way| way.name != story::UNCHANGED)
            .map(|way| Variant {
                name: way.name.clone(),
                runs: vec![(String::new(), self.out.join(folder_of(&way.name)))],
            })
            .collect();
        let lead = story.lead();
        let heading = ("Fedra's quickstart", lead.as_str());
        let document = report::side_by_side(heading, story.contents(), &variants, &self.out);
        Ok(report::write_page(&self.out, &document)?)
    }
}

/// The rounds of one run in its folder; `None` if it was interrupted.
fn rounds(name: &str, run: Run, folder: &Folder, voice: Verbosity) -> Result<Option<Summary>> {
    let ended = run.run(folder, None, &Terminal::named(name, voice))?;
    fedra::apply::pages::write(folder.path())?;
    match ended {
        Ending::Complete(summary) => Ok(Some(*summary)),
        Ending::Interrupted { .. } => Ok(None),
    }
}

/// Where the run of that name lies under the output.
fn folder_of(name: &str) -> &str {
    if name == story::UNCHANGED { "unchanged" } else { name }
}

fn stopped() -> ExitCode {
    console::say("stopped; the same command starts again");
    ExitCode::from(interrupt::STATUS)
}
