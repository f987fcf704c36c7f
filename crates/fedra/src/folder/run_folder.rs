//! The output folder of a run, and nothing in it that another run left behind.
//!
//! ```text
//! experiment.toml   as resolved; `fedra run` takes it
//! inputs.json       digests of what it learns from
//! rounds.jsonl      one report a round; `"round": 0` is the first
//! rounds.csv        the same as a table, and rounds.parquet, where `log` asks for them
//! tensorboard/      the same for TensorBoard
//! checkpoint.fedra  the last complete round
//! best.json         the best round so far, where validation examples decide
//! sites.json        what the server remembers of its sites, where clients are on other machines
//! status.json       how far the run is, while it is on
//! events.jsonl      who came and went, where clients are on other machines
//! summary.json      there once the run has finished
//! report.html       the run as a page
//! predictions.jsonl each central test example's truth and answer, under `evaluate.predictions`
//! model/            Hugging Face layout
//! model-best/       the same of the best round
//! adapter/          under `model.lora`: the adapters and the head alone, in PEFT layout
//! adapter-best/     the same of the best round
//! fedra.lock        while a process is at work there
//! ```
//!
//! While a run is on there may be a scratch file too, which has no name and ends with the process
//! ([`crate::forecast::state_placement`]). Whoever writes here holds the folder's lock (`lock.rs`). Files that tell
//! what a run came to are written whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Experiment;
use crate::error::{Context, Result, refuse};

use crate::folder::lock::Lock;
use crate::folder::round_files::is_event_file;
use crate::folder::summary::{Stopped, Summary};
use crate::folder::{held_ledger, json_file, model_card, regular_file, round_log};
use crate::prepare::fingerprint::{Change, Inputs};
use crate::run_files::{
    CHECKPOINT, EXPERIMENT, FILES, FOLDERS, INPUTS, LEDGER, ROUNDS, SITES, SUMMARY, TENSORBOARD,
};
use fedra_engine::durable;

/// A folder for one run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    lock: Option<Lock>,
    /// Folders that were made for it, the innermost first; they go again if nothing came of it.
    made: Vec<PathBuf>,
}

impl Folder {
    /// Makes a folder and locks it. Where nothing is written to it, nothing of it stays.
    pub fn claim(path: &Path) -> Result<Self> {
        let shown = path.display();
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = path.ancestors().take_while(missing).map(Path::to_owned).collect();
        let mut folder = Self { path: path.to_owned(), lock: None, made };
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {shown}"))?;
        folder.lock = Some(Lock::take(path)?);
        Ok(folder)
    }

    /// Claims a folder and starts anew in it.
    pub fn create(path: &Path, experiment: &Experiment) -> Result<Self> {
        check_model(path)?;
        let folder = Self::claim(path)?;
        folder.begin(experiment)?;
        Ok(folder)
    }

    /// Starts anew. What an earlier run wrote there is removed and nothing else is; whether it may
    /// be is for the caller to ask ([`crate::folder::output_folder`]).
    pub fn begin(&self, experiment: &Experiment) -> Result<()> {
        check_model(&self.path)?;
        self.clear().with_context(|| format!("cannot clear the folder {}", self.path.display()))?;
        regular_file::write(&self.path.join(EXPERIMENT), experiment.to_toml()?.as_bytes())
    }

    /// Removes what a run wrote.
    fn clear(&self) -> std::io::Result<()> {
        for name in FILES {
            durable::remove(&self.path.join(name))?;
        }
        for path in event_files(&self.path) {
            durable::remove(&path)?;
        }
        let events = self.path.join(TENSORBOARD);
        if is_empty(&events) {
            fs::remove_dir(&events)?;
        }
        for model in FOLDERS {
            let model = self.path.join(model);
            let files = fedra_model::hf::Folder::files().chain(fedra_model::peft::files());
            for name in files.chain([model_card::FILE]) {
                durable::remove(&model.join(name))?;
            }
            // A folder in which somebody else keeps files stays.
            if is_empty(&model) {
                fs::remove_dir(&model)?;
            }
        }
        Ok(())
    }

    /// Takes back all that was written: the run was refused before its first round.
    pub fn abandon(self) {
        // Whatever cannot be removed has an error before it that says more.
        let _left = self.clear();
    }

    /// Locks the folder of an earlier run to go on with it.
    pub fn lock(&mut self) -> Result<()> {
        self.lock = Some(Lock::take(&self.path)?);
        Ok(())
    }

    /// Takes note of what the run learns from, or refuses to go on with something else.
    pub fn settle_inputs(&self, inputs: &Inputs) -> Result<()> {
        let shown = self.path.display();
        let Some(held) = Self::inputs(&self.path)? else {
            if self.path.join(CHECKPOINT).exists() {
                refuse!(
                    "{shown}: {INPUTS} is missing beside the checkpoint, so the inputs of the run are \
                     unknown\nhint: start a new run"
                );
            }
            return json_file::write(&self.path.join(INPUTS), inputs);
        };
        let changes: Vec<String> = held.changes(inputs).iter().map(Change::to_string).collect();
        if !changes.is_empty() {
            refuse!(
                "{shown}: found {} than the run began with\n\
                 hint: restore its inputs, or start a new run",
                changes.join(" and ")
            );
        }
        Ok(())
    }

    /// What the run in a folder began with; `None` when it has not begun.
    pub(crate) fn inputs(path: &Path) -> Result<Option<Inputs>> {
        json_file::read_if_there(&path.join(INPUTS), "inputs")
    }

    /// Opens the folder of an earlier run, and reads its experiment.
    pub fn open(path: &Path) -> Result<(Self, Experiment)> {
        let file = path.join(EXPERIMENT);
        if !file.is_file() {
            refuse!("{}: found no {EXPERIMENT}, expected a run's folder", path.display());
        }
        let experiment = Experiment::open(&file, &crate::config::Overrides::default())?;
        Ok((Self { path: path.to_owned(), lock: None, made: Vec::new() }, experiment))
    }

    /// Opens the folder of an earlier run of this very experiment.
    pub fn of(path: &Path, experiment: &Experiment) -> Result<Self> {
        let (file, shown) = (path.join(EXPERIMENT), path.display());
        let held = fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
        if held != experiment.to_toml()? {
            refuse!("{shown}: this is another experiment than the one to resume");
        }
        Ok(Self { path: path.to_owned(), lock: None, made: Vec::new() })
    }

    /// The summary, if all rounds that the experiment asks for are in it; refuses a private run whose ledger is
    /// not whole.
    pub fn complete(&self, experiment: &Experiment) -> Result<Option<Summary>> {
        let summary = Self::summary(&self.path, experiment)?;
        if summary.as_ref().is_some_and(|summary| summary.privacy.is_some()) {
            held_ledger::read(&self.path.join(LEDGER))?;
        }
        Ok(summary)
    }

    fn summary(path: &Path, experiment: &Experiment) -> Result<Option<Summary>> {
        let summary = json_file::read_if_there(&path.join(SUMMARY), "summary")?;
        let patience = experiment.raw.evaluate.patience;
        let whole = |summary: &Summary| {
            let stopped = summary.stopped.is_some_and(|stopped| match stopped {
                Stopped::Patience(waited) => Some(waited) == patience,
                Stopped::Budget => experiment.recipe.privacy.is_some(),
            });
            summary.rounds >= experiment.rounds || stopped
        };
        Ok(summary.filter(whole))
    }

    /// What a folder holds of an experiment with these inputs; the number of threads, the place of
    /// idle clients' states and further logs make no other experiment.
    pub fn standing(path: &Path, experiment: &Experiment, inputs: &Inputs) -> Standing {
        if !path.join(EXPERIMENT).is_file() {
            return Standing::Absent;
        }
        let Ok((_, held)) = Self::open(path) else { return Standing::OtherExperiment };
        let mut held = held.raw;
        (held.threads, held.keep) = (experiment.raw.threads, experiment.raw.keep);
        held.log.clone_from(&experiment.raw.log);
        if held != experiment.raw {
            return Standing::OtherExperiment;
        }
        let begun = [CHECKPOINT, SUMMARY].iter().any(|name| path.join(name).exists());
        match Self::inputs(path) {
            Ok(Some(held)) => {
                let changes = held.changes(inputs);
                if !changes.is_empty() {
                    return Standing::OtherInputs(changes);
                }
            }
            Ok(None) if !begun => {}
            Ok(None) | Err(_) => return Standing::OtherInputs(Vec::new()),
        }
        // Whether the log is the one that the summary was made of.
        let log_is = |mark| round_log::read(&path.join(ROUNDS), mark, &mut |_| {}).is_ok();
        match Self::summary(path, experiment) {
            Ok(Some(summary)) if !log_is(summary.log) => Standing::OtherLog,
            // Whoever reads a summary that cannot be read says what is wrong with it.
            Ok(Some(_)) | Err(_) => Standing::Complete,
            Ok(None) => Standing::Unfinished,
        }
    }

    /// Copies a complete run, less its checkpoint; the summary comes last, as it does in a run.
    pub fn copy(from: &Path, to: &Path) -> Result<()> {
        let copy = || {
            fs::create_dir_all(to)?;
            for model in FOLDERS {
                if !from.join(model).is_dir() {
                    continue;
                }
                fs::create_dir_all(to.join(model))?;
                for entry in fs::read_dir(from.join(model))? {
                    let entry = entry?;
                    fs::copy(entry.path(), to.join(model).join(entry.file_name()))?;
                }
            }
            for path in event_files(from) {
                fs::create_dir_all(to.join(TENSORBOARD))?;
                let name = path.file_name().unwrap_or_default();
                fs::copy(&path, to.join(TENSORBOARD).join(name))?;
            }
            for name in FILES.into_iter().rev().filter(|name| ![CHECKPOINT, SITES].contains(name)) {
                if from.join(name).exists() {
                    fs::copy(from.join(name), to.join(name))?;
                }
            }
            std::io::Result::Ok(())
        };
        copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.lock.take());
        for folder in &self.made {
            // A folder that holds something stays, and so do those around it.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// What a folder holds of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Absent,
    /// Another experiment, or something that cannot be read.
    OtherExperiment,
    /// The experiment, on other rows, labels or weights; none is named where they are not known.
    OtherInputs(Vec<Change>),
    /// The experiment, with a log that is not the one its summary was made of.
    OtherLog,
    /// The experiment, without a summary of all its rounds: it was interrupted or never began.
    Unfinished,
    /// All of it.
    Complete,
}

/// Refuses a folder whose `model` (or another folder that a run fills) is a link: what is behind it belongs to another place.
pub(crate) fn check_model(folder: &Path) -> Result<()> {
    for model in FOLDERS.into_iter().chain([TENSORBOARD]).map(|name| folder.join(name)) {
        if fs::symlink_metadata(&model).is_ok_and(|found| found.is_symlink()) {
            refuse!(
                "{}: this is a link; a folder is needed\n\
                 hint: remove the link, or use another folder",
                model.display()
            );
        }
    }
    Ok(())
}

/// `TensorBoard`'s events that a run wrote in a folder.
pub(crate) fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(TENSORBOARD)).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| is_event_file(&entry.file_name().to_string_lossy()));
    ours.map(|entry| entry.path()).collect()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use crate::prepare::partitioned_data::PartitionedData;

    #[test]
    fn a_summary_of_fewer_rounds_is_no_complete_run() {
        let of_rounds = |rounds: u32| {
            let overrides = Overrides::new(vec![format!("federation.rounds={rounds}")], None);
            let text = include_str!("../../tests/tiny.toml");
            Experiment::from_text(text, "tiny.toml", "tiny", &overrides).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let inputs =
            Inputs::of(&of_rounds(3), &PartitionedData::of(&of_rounds(3)).unwrap()).unwrap();
        let standing = |rounds: u32| Folder::standing(path, &of_rounds(rounds), &inputs);
        assert_eq!(standing(3), Standing::Absent);
        let run = Folder::create(path, &of_rounds(3)).unwrap();
        assert_eq!(standing(3), Standing::Unfinished);
        json_file::write(&run.path().join(SUMMARY), &Summary::of_nothing(3)).unwrap();
        assert_eq!(standing(3), Standing::OtherInputs(Vec::new()));
        run.settle_inputs(&inputs).unwrap();
        for (rounds, expected) in [(1, Standing::Unfinished), (3, Standing::Complete)] {
            json_file::write(&run.path().join(SUMMARY), &Summary::of_nothing(rounds)).unwrap();
            assert_eq!(standing(3), expected);
        }
        assert_eq!(standing(4), Standing::OtherExperiment);
        regular_file::remove(&run.path().join(SUMMARY)).unwrap();
        regular_file::remove(&run.path().join(SUMMARY)).unwrap();
        assert_eq!(standing(3), Standing::Unfinished);

        let other = Inputs { labels: inputs.rows, ..inputs.clone() };
        assert!(matches!(
            Folder::standing(path, &of_rounds(3), &other),
            Standing::OtherInputs(changes) if changes.len() == 1 && changes[0].what == "labels"
        ));
        let refused = run.settle_inputs(&other).unwrap_err().to_string();
        assert!(refused.contains(": found other labels (found "), "{refused}");
        fs::remove_file(path.join(INPUTS)).unwrap();
        fs::write(path.join(CHECKPOINT), "").unwrap();
        let refused = run.settle_inputs(&inputs).unwrap_err().to_string();
        assert!(refused.contains("inputs.json is missing beside the checkpoint"), "{refused}");
    }

    #[test]
    fn a_folder_that_nothing_came_of_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("runs/deep/one");
        drop(Folder::claim(&path).unwrap());
        assert!(!place.path().join("runs").exists());
        let folder = Folder::claim(&path).unwrap();
        fs::write(place.path().join("runs/mine"), "mine").unwrap();
        drop(folder);
        assert!(
            !place.path().join("runs/deep").exists() && place.path().join("runs/mine").exists()
        );
    }
}
