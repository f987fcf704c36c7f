//! `fedra compare`: several experiments over seeds, side by side.
//!
//! ```text
//! files, [compare], --sweep, --tune --> variants x seeds --> checked, all of them
//!     --> tuning runs (validation examples) --> runs --> Comparison --> compare.json, compare.md
//! ```
//!
//! Every run is an ordinary run in an ordinary folder. What is complete is not run again, what was
//! interrupted goes on, and what has changed in the file, the data or the weights runs anew.

mod comparison;
mod page;
mod process_pool;
mod results;
mod statistics;
mod tune;
mod variants;
mod work_plan;
mod written;

pub use statistics::quantile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::console;
use crate::durable;
use crate::experiment::{Experiment, Overrides};
use crate::folder::Folder;
use crate::interrupt;
use crate::lock::Lock;
use crate::progress::Voice;
use comparison::{Comparison, Entry};
use page::Page;
use process_pool::ProcessPool;
use results::RunResult;
use variants::Subject;
use work_plan::{Progression, WorkPlan};

const EXAMPLES: &str = "\
Examples:
  fedra compare experiments/clinic-concepts.toml --sweep method.name=fedavg,fedadam,fedprox
  fedra compare experiments/safl_k_sweep.toml --seeds 5 --jobs 2
  fedra compare a.toml b.toml --tune work.optimiser.rate=3e-4,1e-3,3e-3

Every combination of the swept values is a variant, and every variant runs with every seed. A tuned
key gets, for each variant by itself, the value with the best score on the clients' validation
examples (data.shares.validation), with the first seed; the test set is not looked at. Differences
to the baseline are taken seed by seed with a 95 % interval; where zero is inside, the table says
\"no difference seen\", and fewer than three seeds give no verdict. Three tables, because three budgets can be equal: rounds, bytes, and the
clients' compute.

A file can hold all that itself:
  [compare]
  seeds = 3
  baseline = \"fedavg\"
  variants = [
    { name = \"fedavg\" },
    { name = \"fedprox\", set = { \"method.name\" = \"fedprox\", \"method.mu\" = 0.1 } },
  ]
  sweep.\"data.partition.alpha\" = [0.1, 1.0]
  tune.\"work.optimiser.rate\" = [3e-4, 1e-3, 3e-3]

DIR/VARIANT/seed-N holds the files of each run, DIR/compare.json and compare.md the tables. The same
command again runs only what is missing; Ctrl-C stops after the rounds that are on.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Compare {
    /// Experiment files in TOML
    #[arg(value_name = "FILE.toml", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// How many seeds, counted up from the experiment's [default: the file's, or 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seeds: Option<u32>,
    /// Give a key several values; several keys give all combinations
    #[arg(long = "sweep", value_name = "KEY=V1,V2,...")]
    sweeps: Vec<String>,
    /// Choose a key's value for each variant, on validation examples
    #[arg(long = "tune", value_name = "KEY=V1,V2,...")]
    tunes: Vec<String>,
    /// What the others are held against: a variant, or one of its parts [default: the first]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Where results go [default: runs/compare-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many runs at a time, which share the threads
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Print compare.json instead of tables
    #[arg(long)]
    json: bool,
    /// Print the result and nothing else
    #[arg(long, short)]
    quiet: bool,
}

impl Compare {
    /// Runs what is missing and prints the tables.
    pub fn run(self) -> Result<ExitCode> {
        let voice = if self.quiet { Voice::Quiet } else { Voice::Lively };
        let (name, plan) = self.plan()?;
        let out = match &self.out {
            Some(out) => out.clone(),
            None => Path::new("runs").join(format!("compare-{name}")),
        };
        if out.exists() && !out.is_dir() {
            bail!("--out: found the file {}, expected a folder", out.display());
        }
        Lock::check(&out, "--out")?;
        let (fingerprints, notes) = plan.check()?;
        if voice == Voice::Lively {
            notes.iter().for_each(console::say);
        }
        let shown = out.display();
        // Held until the tables are written.
        let _held = Folder::claim(&out)?;

        let mut progression = Progression::new(&plan, (&out, fingerprints), voice);
        let Some(done) = progression.run(self.process_pool())? else {
            console::say(format_args!(
                "stopped; the same command goes on where it was, what is complete is under {shown}"
            ));
            return Ok(ExitCode::from(interrupt::STATUS));
        };

        let mut entries = Vec::new();
        for (variant, ((place, folders), baseline)) in
            plan.variants.iter().zip(done.folders.iter().enumerate().zip(&plan.baselines))
        {
            let read = |(seed, folder): (&u64, &PathBuf)| Ok((*seed, RunResult::read(folder)?));
            entries.push(Entry {
                name: variant.name.clone(),
                tuned: done.chosen[place].clone(),
                baseline: *baseline,
                runs: folders.iter().map(read).collect::<Result<BTreeMap<_, _>>>()?,
            });
        }
        let mut comparison = Comparison::of(&name, &plan.seeds, &entries);
        comparison.notes.extend(done.notes);
        let page = Page::of(&comparison);
        let mut json = serde_json::to_string_pretty(&comparison)?;
        json.push('\n');
        for (name, text) in [("compare.json", &json), ("compare.md", &page.markdown())] {
            durable::write(&out.join(name), text.as_bytes())
                .with_context(|| format!("cannot write {name}"))?;
        }
        console::data(if self.json { json.trim_end().to_owned() } else { page.text() });
        if voice == Voice::Lively {
            console::say(format_args!("\nresults in {shown}"));
        }
        Ok(if done.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Reads the files and lays out all runs; nothing is checked together yet.
    fn plan(&self) -> Result<(String, WorkPlan)> {
        let mut subjects = Vec::new();
        let (mut seeds, mut tune_seeds) = (self.seeds, None);
        let (mut first_seed, mut baseline) = (None, self.baseline.clone());
        for file in &self.files {
            let base = Experiment::open(file, &self.overrides)?;
            let table = base.compare.unwrap_or_default();
            let mut sweep = written::axes(&table.sweep, "compare.sweep")?;
            let mut tune = written::axes(&table.tune, "compare.tune")?;
            for (flag, texts, axes) in
                [("--sweep", &self.sweeps, &mut sweep), ("--tune", &self.tunes, &mut tune)]
            {
                for text in texts {
                    let axis = written::axis(text, flag)?;
                    // What the command line says of a key goes before what the file says.
                    axes.retain(|other| other.key != axis.key);
                    axes.push(axis);
                }
            }
            seeds = seeds.or(table.seeds);
            tune_seeds = tune_seeds.or(table.tune_seeds);
            baseline = baseline.or(table.baseline);
            first_seed = first_seed.or(Some(base.draft.seed));
            let (file, name) = (file.clone(), base.name);
            subjects.push(Subject { file, name, variants: table.variants, sweep, tune });
        }
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        let name = variants::folder_name(&names.join("+"));
        let variants = variants::expand(&subjects)?;
        let baselines = variants::baselines(&variants, baseline.as_deref())?;
        let first = first_seed.unwrap_or(1);
        let count = |key: &str, wanted: Option<u32>, usual: u64| match wanted {
            Some(0) => Err(crate::experiment::Complaint::new(key, 0, "at least 1")),
            Some(some) => Ok(u64::from(some)),
            None => Ok(usual),
        };
        let seeds: Vec<u64> = (first..).take(count("compare.seeds", seeds, 3)? as usize).collect();
        let tune_seeds = count("compare.tune_seeds", tune_seeds, 1)?.min(seeds.len() as u64);
        let tune_seeds = seeds[..tune_seeds as usize].to_vec();
        let overrides = self.overrides.clone();
        Ok((name, WorkPlan { overrides, variants, baselines, seeds, tune_seeds }))
    }

    fn process_pool(&self) -> ProcessPool {
        ProcessPool {
            jobs: usize::from(self.jobs),
            threads: fedra_compute::ThreadPool::current_threads(),
        }
    }
}
