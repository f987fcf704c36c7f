//! The output folder of a run, and nothing in it that another run left behind.
//!
//! ```text
//! experiment.toml   as resolved; `fedra run` takes it
//! rounds.jsonl      one report a round; `"round": 0` is the first
//! checkpoint.fedra  the last complete round
//! summary.json      there once the run is over
//! model/            Hugging Face layout
//! ```
//!
//! While a run is on there may be a scratch file too, which has no name and ends with the process
//! ([`crate::keeping`]).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fedra_engine::{EngineError, RoundReport, Sink};
use serde::Serialize;

use crate::experiment::Experiment;
use crate::summary::Summary;

pub(crate) const EXPERIMENT: &str = "experiment.toml";
pub(crate) const ROUNDS: &str = "rounds.jsonl";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const CHECKPOINT: &str = "checkpoint.fedra";
pub(crate) const MODEL: &str = "model";

/// A folder for one run.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Starts anew in a folder. What an earlier run wrote there is removed and nothing else is;
    /// whether it may be is for the caller to ask ([`crate::vacancy`]).
    pub fn create(path: &Path, experiment: &Experiment) -> Result<Self> {
        let folder = Self { path: path.to_owned() };
        let shown = path.display();
        check_model(path)?;
        let make = || {
            fs::create_dir_all(path)?;
            // The summary goes first: without it nobody takes the rest for a complete run.
            for name in [SUMMARY, CHECKPOINT, ROUNDS] {
                remove(fs::remove_file(path.join(name)))?;
            }
            let model = path.join(MODEL);
            for name in fedra_model::hf::Folder::files() {
                remove(fs::remove_file(model.join(name)))?;
            }
            // A folder in which somebody else keeps files stays.
            if is_empty(&model) { fs::remove_dir(&model) } else { Ok(()) }
        };
        make().with_context(|| format!("cannot make the folder {shown}"))?;
        folder.write(EXPERIMENT, experiment.to_toml()?.as_bytes())?;
        Ok(folder)
    }

    /// Opens the folder of an earlier run, and reads its experiment.
    pub fn open(path: &Path) -> Result<(Self, Experiment)> {
        let file = path.join(EXPERIMENT);
        if !file.is_file() {
            bail!("--resume: found no {EXPERIMENT} in {}, expected a run's folder", path.display());
        }
        let experiment = Experiment::open(&file, &crate::experiment::Overrides::default())?;
        Ok((Self { path: path.to_owned() }, experiment))
    }

    /// The summary, if all rounds that the experiment asks for are in it.
    pub fn complete(&self, experiment: &Experiment) -> Result<Option<Summary>> {
        let path = self.path.join(SUMMARY);
        if !path.is_file() {
            return Ok(None);
        }
        let shown = path.display();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let summary: Summary = serde_json::from_str(&text)
            .with_context(|| format!("{shown}: found no summary of this version"))?;
        Ok(Some(summary).filter(|summary| summary.rounds >= experiment.rounds))
    }

    /// What a folder holds of an experiment; the number of threads and the place of idle clients'
    /// states make no other experiment.
    pub fn standing(path: &Path, experiment: &Experiment) -> Standing {
        if !path.join(EXPERIMENT).is_file() {
            return Standing::Absent;
        }
        let Ok((_, held)) = Self::open(path) else { return Standing::Other };
        let mut held = held.draft;
        (held.threads, held.keep) = (experiment.draft.threads, experiment.draft.keep);
        if held != experiment.draft {
            return Standing::Other;
        }
        match (Self { path: path.to_owned() }).complete(experiment) {
            // Whoever reads a summary that cannot be read says what is wrong with it.
            Ok(Some(_)) | Err(_) => Standing::Complete,
            Ok(None) => Standing::Unfinished,
        }
    }

    /// Removes the summary of fewer rounds than are now asked for: a run that goes on is not
    /// complete, whatever becomes of it.
    pub fn forget_summary(&self) -> Result<()> {
        let path = self.path.join(SUMMARY);
        remove(fs::remove_file(&path)).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Copies a complete run, less its checkpoint; the summary comes last, as it does in a run.
    pub fn copy(from: &Path, to: &Path) -> Result<()> {
        let copy = || {
            fs::create_dir_all(to)?;
            if from.join(MODEL).is_dir() {
                fs::create_dir_all(to.join(MODEL))?;
                for entry in fs::read_dir(from.join(MODEL))? {
                    let entry = entry?;
                    fs::copy(entry.path(), to.join(MODEL).join(entry.file_name()))?;
                }
            }
            for name in [ROUNDS, EXPERIMENT, SUMMARY] {
                fs::copy(from.join(name), to.join(name))?;
            }
            std::io::Result::Ok(())
        };
        copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
    }

    /// Where the summary of the run in a folder is.
    pub fn summary_of(path: &Path) -> PathBuf {
        path.join(SUMMARY)
    }

    /// Where the reports of the run in a folder are.
    pub fn rounds_of(path: &Path) -> PathBuf {
        path.join(ROUNDS)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the model goes.
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }

    /// Writes the summary.
    pub fn write_summary(&self, summary: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(summary)?;
        text.push('\n');
        self.write(SUMMARY, text.as_bytes())
    }

    /// The reports of the rounds before this one; later ones, which no checkpoint holds, are cut.
    pub fn rounds_before(&self, round: u32) -> Result<Vec<RoundReport>> {
        let path = self.path.join(ROUNDS);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(Vec::new()) };
        let (mut reports, mut kept) = (Vec::<RoundReport>::new(), String::new());
        for line in text.lines() {
            // A torn last line belongs to a round that is not complete either.
            let Ok(report) = serde_json::from_str::<RoundReport>(line) else { break };
            if report.round.0 < round && report.round.0 as usize == reports.len() {
                // Only the last round's scores are looked at; a thousand clients' are many.
                if let Some(earlier) = reports.last_mut() {
                    earlier.scores.clear();
                }
                reports.push(report);
                kept.extend([line, "\n"]);
            }
        }
        if kept != text {
            let unfinished = self.path.join(format!("{ROUNDS}.part"));
            fs::write(&unfinished, kept)?;
            fs::rename(&unfinished, &path)?;
        }
        Ok(reports)
    }

    /// The log of rounds, to be continued.
    pub fn round_log(&self) -> Result<RoundLog> {
        let path = self.path.join(ROUNDS);
        let file = File::options().append(true).create(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(RoundLog { file, path })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// What a folder holds of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Absent,
    /// Another experiment, or something that cannot be read.
    Other,
    /// The experiment, without a summary of all its rounds: it was interrupted or never began.
    Unfinished,
    /// All of it.
    Complete,
}

/// `rounds.jsonl`.
pub struct RoundLog {
    file: File,
    path: PathBuf,
}

impl Sink for RoundLog {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        let failed = |error: &dyn std::fmt::Display| {
            EngineError::Sink(format!("{}: {error}", self.path.display()))
        };
        let mut line = serde_json::to_vec(report).map_err(|error| failed(&error))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| failed(&error))
    }
}

/// Refuses a folder whose `model` is a link: what is behind it belongs to another place.
pub(crate) fn check_model(folder: &Path) -> Result<()> {
    let model = folder.join(MODEL);
    if fs::symlink_metadata(&model).is_ok_and(|found| found.is_symlink()) {
        bail!(
            "--out: found {} to be a link to another place, expected a folder or nothing\n\
             hint: another --out, or remove the link",
            model.display()
        );
    }
    Ok(())
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// What is not there need not be removed.
fn remove(outcome: std::io::Result<()>) -> std::io::Result<()> {
    match outcome {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Overrides;

    #[test]
    fn a_summary_of_fewer_rounds_is_no_complete_run() {
        let of_rounds = |rounds: u32| {
            let overrides = Overrides::new(vec![format!("federation.rounds={rounds}")], None);
            let text = include_str!("../tests/tiny.toml");
            Experiment::from_text(text, "tiny.toml", "tiny", &overrides).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(Folder::standing(path, &of_rounds(3)), Standing::Absent);
        let run = Folder::create(path, &of_rounds(3)).unwrap();
        for (rounds, standing) in [(1, Standing::Unfinished), (3, Standing::Complete)] {
            run.write_summary(&Summary::of_nothing(rounds)).unwrap();
            assert_eq!(Folder::standing(path, &of_rounds(3)), standing);
        }
        assert_eq!(Folder::standing(path, &of_rounds(4)), Standing::Other);
        run.forget_summary().unwrap();
        run.forget_summary().unwrap();
        assert_eq!(Folder::standing(path, &of_rounds(3)), Standing::Unfinished);
    }
}
