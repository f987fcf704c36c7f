//! What a run left in its folder, as far as a page shows it; the run may still be on.
//!
//! Files may have been edited by hand. A line that is no report is an error with its number; the last line of
//! a run that is on may be torn, and is left out.

use std::fs;

use std::path::{Path, PathBuf};

use fedra_engine::{EvaluationSet, LogMark, RoundReport, SetScores};

use crate::config::{Experiment, ModelSource, Overrides};
use crate::error::{Context, Error, Result, refuse};
use crate::folder::client_names::ClientNames;
use crate::folder::summary::Summary;
use crate::folder::{json_file, round_log};
use crate::prepare::fingerprint::Inputs;
use crate::run_files::{EXPERIMENT, INPUTS, MODEL, ROUNDS, SUMMARY};
use crate::text::grid;
use crate::text::headline::{headline, headline_of, set_name};

/// How much of each round is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every client's own score.
    Clients,
    /// Means alone: scores of many clients and runs take much room.
    Means,
}

/// What a run left in its folder.
#[derive(Debug)]
pub struct RunRecord {
    /// The text of its experiment.
    pub text: String,
    /// The experiment, where it can still be opened: its files may be elsewhere by now.
    pub experiment: Option<Experiment>,
    /// Why it cannot.
    pub unopened: Option<String>,
    /// Its complete rounds.
    pub rounds: Vec<RoundReport>,
    /// What it came to; absent while it is on.
    pub summary: Option<Summary>,
    /// What it learns from, as digests.
    pub inputs: Option<Inputs>,
    /// Whose numbers the rounds have; empty in folders of earlier versions.
    pub clients: ClientNames,
    pub(super) folder: PathBuf,
}

impl RunRecord {
    /// Reads the folder of a run.
    pub fn read(folder: &Path, detail: Detail) -> Result<Self> {
        let path = folder.join(EXPERIMENT);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let opened = Experiment::open(&path, &Overrides::default());
        let unopened = opened.as_ref().err().map(Error::in_words);
        let experiment = opened.ok();
        let (rounds, mark) = read_rounds(&folder.join(ROUNDS), detail)?;
        let summary: Option<Summary> = json_file::read_if_there(&folder.join(SUMMARY), "summary")?;
        // Summaries of early versions have no mark.
        let told = summary.as_ref().map(|summary| summary.log).filter(|log| log.reports > 0);
        if let Some(told) = told.filter(|told| *told != mark) {
            refuse!(
                "{}: found {} that do not belong to {SUMMARY}, expected the log of {} that it marks",
                folder.join(ROUNDS).display(),
                grid::counted(mark.reports, "round"),
                grid::counted(told.reports, "round")
            );
        }
        let inputs = match &summary {
            Some(Summary { inputs: Some(inputs), .. }) => Some(inputs.clone()),
            Some(_) | None => json_file::read_if_there(&folder.join(INPUTS), "inputs")?,
        };
        let clients = ClientNames::read(folder)?;
        let folder = folder.to_owned();
        Ok(Self { text, experiment, unopened, rounds, summary, inputs, clients, folder })
    }

    /// What the run is called.
    pub fn name(&self) -> String {
        let summed = self.summary.as_ref().map(|summary| summary.name.clone());
        summed.or_else(|| self.value("name")).unwrap_or_else(|| "a run".to_owned())
    }

    /// The method.
    pub fn method(&self) -> String {
        let summed = self.summary.as_ref().map(|summary| summary.method.clone());
        let spelt = || self.value("method.name");
        summed.or_else(spelt).unwrap_or_else(|| "a custom method".to_owned())
    }

    /// How many rounds were asked for.
    pub fn asked(&self) -> Option<u64> {
        let opened = self.experiment.as_ref().map(|experiment| u64::from(experiment.rounds));
        opened.or_else(|| self.value("federation.rounds")?.parse().ok())
    }

    /// A value of the experiment's text, as it would be spoken.
    pub(super) fn value(&self, key: &str) -> Option<String> {
        let table: toml::Table = self.text.parse().ok()?;
        let mut keys = key.split('.');
        let first = table.get(keys.next()?)?;
        let value = keys.try_fold(first, |value, key| value.get(key))?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Whether who took part is what its guarantee hides: differential privacy of whole clients.
    pub fn hides_clients(&self) -> bool {
        self.value("privacy.unit").as_deref() == Some("client")
    }

    /// Blocks of the model, where that is known from anything.
    pub fn blocks(&self) -> Option<u16> {
        let fresh = self.experiment.as_ref().and_then(|experiment| match &experiment.model {
            ModelSource::Fresh(config, _) => u16::try_from(config.num_hidden_layers).ok(),
            ModelSource::Folder(path) => blocks_in(path),
        });
        let seen = || {
            let chosen = self.rounds.iter().filter_map(|report| report.selection.as_ref());
            let counted = chosen.map(|selection| selection.clients.len() as u16).max();
            let learned = self.rounds.iter().filter_map(|report| report.blocks.last());
            counted.max(learned.max().map(|last| last.saturating_add(1)))
        };
        fresh.or_else(|| blocks_in(&self.folder.join(MODEL))).max(seen())
    }

    /// The last headline: the name of the score, its value, and the set.
    pub fn last_score(&self) -> Option<(&'static str, f64, EvaluationSet)> {
        self.rounds.iter().rev().find_map(|report| headline(&report.scores))
    }

    /// What the clients' own examples say, where there are any: their test sets, or else those by which
    /// the best round is found.
    pub fn client_set(&self) -> Option<EvaluationSet> {
        [EvaluationSet::ClientTest, EvaluationSet::ClientValidation].into_iter().find(|on| {
            self.rounds.iter().any(|report| report.scores.iter().any(|set| set.on == *on))
        })
    }

    /// What it is judged by, the name of a score and of a set: of a run that is on, its last headline.
    pub fn judged(&self) -> Option<(String, String)> {
        let summed = self.summary.as_ref().and_then(|summary| summary.score.as_ref());
        let last =
            || self.last_score().map(|(name, _, on)| (name.to_owned(), set_name(on).to_owned()));
        summed.map(|score| (score.name.clone(), score.on.clone())).or_else(last)
    }

    /// What it had spent and reached after each round, by a score on a set. Where clients keep parameters of
    /// their own, the central score comes at the end alone.
    pub fn curve(&self, name: &str, on: &str) -> Vec<CurvePoint> {
        let effort: u64 = self.rounds.iter().map(|report| report.effort).sum();
        let all = self.summary.as_ref().map_or(0, |summary| summary.multiply_adds) as f64;
        let (mut bytes, mut work) = (0.0, 0.0);
        let mut points = Vec::with_capacity(self.rounds.len());
        for report in &self.rounds {
            bytes += (report.bytes.up + report.bytes.down).0 as f64;
            work += report.effort as f64 * all / effort.max(1) as f64;
            let set = report.scores.iter().find(|set| set_name(set.on) == on);
            let score = set.and_then(|set| set.mean.get(name)).copied();
            points.push(CurvePoint { rounds: report.round.0 + 1, bytes, work, score });
        }
        let score = self.summary.as_ref().and_then(|summary| summary.score.as_ref());
        let score = score.filter(|score| score.name == name && score.on == on);
        if let (Some(last), Some(score)) = (points.last_mut(), score) {
            last.score = Some(score.value);
        }
        points
    }

    /// Each scored round with its scores on a set, counted from 1.
    pub fn scored(&self, on: EvaluationSet) -> impl Iterator<Item = (f64, &SetScores)> {
        self.rounds.iter().filter_map(move |report| {
            Some((counted(report), report.scores.iter().find(|set| set.on == on)?))
        })
    }
}

/// Where a run was after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Complete rounds.
    pub rounds: u32,
    /// Bytes so far, up and down.
    pub bytes: f64,
    /// What clients computed so far, in multiply-adds; 0 while the run is on.
    pub work: f64,
    /// The score, where the round was scored.
    pub score: Option<f64>,
}

/// A round as people count it.
pub(super) fn counted(report: &RoundReport) -> f64 {
    f64::from(report.round.0) + 1.0
}

/// The name of a set, for people.
pub(super) fn set_in_words(on: EvaluationSet) -> &'static str {
    match on {
        EvaluationSet::CentralTest => "central test",
        EvaluationSet::ClientTest => "clients' test",
        EvaluationSet::ClientValidation => "clients' validation",
    }
}

fn blocks_in(folder: &Path) -> Option<u16> {
    let text = fs::read_to_string(folder.join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_str(&text).ok()?;
    config.get("num_hidden_layers")?.as_u64()?.try_into().ok()
}

/// The reports in a log; a last line without its end is a round that is being written.
fn read_rounds(path: &Path, detail: Detail) -> Result<(Vec<RoundReport>, LogMark)> {
    let shown = path.display();
    let (mut reports, mut mark) = (Vec::new(), LogMark::default());
    round_log::whole_lines(path, &mut |line| {
        let mut report: RoundReport = serde_json::from_slice(line)
            .with_context(|| format!("{shown}: line {} is no report", reports.len() + 1))?;
        mark = mark.with(line).with_context(|| format!("cannot read {shown}"))?;
        report.scores.iter_mut().for_each(|set| slim(set, detail));
        reports.push(report);
        Ok(true)
    })?;
    Ok((reports, mark))
}

/// Keeps of each client the one number that is drawn.
fn slim(set: &mut SetScores, detail: Detail) {
    let headline = headline_of(&set.mean).filter(|_| detail == Detail::Clients);
    let Some((headline, _)) = headline else { return set.each.clear() };
    for one in &mut set.each {
        one.tallies.clear();
        one.scores.retain(|name, _| name == headline);
    }
}
