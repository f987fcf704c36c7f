//! What a run comes to: `summary.json` and the table at its end.

use std::collections::BTreeMap;

use fedra_data::ByLabel;
use fedra_engine::{
    Bytes, EvaluationSet, LogMark, RoundReport, SetScores, SideMemory, StageReport,
};
use fedra_plan::ByteCount;
use serde::{Deserialize, Deserializer, Serialize};

use crate::config::DeviceReport;
use crate::folder::best::{Best, TIED};
use crate::forecast::private::PrivacySummary;
use crate::prepare::baseline::Baseline;
use crate::prepare::fingerprint::Inputs;
use crate::process::PeakMemory;
use crate::text::grid::{Grid, counted, grouped};
use crate::text::headline::{headline_of, set_name};

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The experiment.
    pub name: String,
    /// The method.
    pub method: String,
    /// The seed.
    pub seed: u64,
    /// Complete rounds.
    pub rounds: u32,
    /// The number the task is judged by; absent when nobody has test examples.
    pub score: Option<Score>,
    /// Every score on every set.
    #[serde(deserialize_with = "scores_or_nulls")]
    pub scores: BTreeMap<String, BTreeMap<String, f64>>,
    /// The last model label by label, on the sets for which labels were counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_label: BTreeMap<String, ByLabel>,
    /// The round that did best on the clients' validation examples, where that is followed.
    #[serde(default)]
    pub best: Option<Best>,
    /// That the run stopped before its last round, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// What an answer without a model scores on the same sets; absent where the task has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// What travelled, summed over rounds and clients.
    pub bytes: Bytes,
    /// What the clients computed in training, in multiply-adds; an estimate to compare runs by.
    pub multiply_adds: u64,
    /// The folder of the global model; absent when there is none because clients keep all of it.
    pub model: Option<String>,
    /// Digests of what the run learned from.
    #[serde(default)]
    pub inputs: Option<Inputs>,
    /// The log that this was summed up from.
    #[serde(default)]
    pub log: LogMark,
    /// The guarantee, and what was spent; null: no guarantee.
    pub privacy: Option<PrivacySummary>,
    /// What was added to rows that crossed a cut, where anything was; it is no guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<String>,
    /// Since when a method of two stages is in its second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageReport>,
    /// How long the rounds took.
    pub seconds: f64,
    /// The most memory the process held.
    pub peak_rss_bytes: u64,
    /// Which device computed; absent in summaries of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReport>,
    /// The most of a GPU's memory that was in use; absent where the processor computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_peak_bytes: Option<u64>,
    /// What a client and a server on machines of their own would hold, about, as `fedra plan` foresees it;
    /// absent where both were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreseen_memory: Option<SideMemory>,
    /// Clients.
    pub clients: usize,
    /// Training examples of all clients.
    pub examples: u64,
    /// Elements of the model.
    pub parameters: u64,
    /// Tokens of a training example, in the mean.
    pub tokens: f64,
}

/// That a run stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// After so many scorings without a better one.
    Patience(u32),
    /// Before a round that the budget of a guarantee did not bear.
    Budget,
}

impl Stopped {
    /// Why, in words.
    pub fn in_words(self) -> String {
        match self {
            Self::Patience(patience) => {
                let scorings = counted(u64::from(patience), "scoring");
                format!("no improvement in {scorings} in a row")
            }
            Self::Budget => "the next round would exceed privacy.epsilon".to_owned(),
        }
    }
}

/// The number the task is judged by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(deserialize_with = "number_or_null")]
    pub value: f64,
    /// On whose examples.
    pub on: String,
}

impl Summary {
    /// Adds up the reports of a run.
    pub fn add_up(mut self, reports: &[RoundReport]) -> Self {
        self.rounds = reports.len() as u32;
        self.seconds = reports.iter().map(|report| report.seconds).sum();
        for report in reports {
            self.bytes += report.bytes;
        }
        let effort: u64 = reports.iter().map(|report| report.effort).sum();
        self.multiply_adds = (effort as f64 * self.tokens) as u64;
        self.stage = reports.last().and_then(|last| last.stage.clone());
        for set in reports.last().map_or(&[][..], |last| &last.scores) {
            self.add_scores(set);
        }
        self
    }

    /// Adds the scores on a set; those on the central test set make the headline.
    ///
    /// Client sets have two readings: the mean of the clients' scores by examples, and, where a
    /// score is an F1 of counts, `pooled_` of all their examples as if they were one set.
    pub fn add_scores(&mut self, set: &SetScores) {
        let on = set_name(set.on);
        let mut all = set.mean.clone();
        all.insert("loss".to_owned(), set.loss);
        if set.each.len() > 1 {
            let pooled = set.pooled.iter();
            all.extend(pooled.map(|(name, value)| (format!("pooled_{name}"), *value)));
        }
        self.scores.insert(on.to_owned(), all);
        // What values are chosen by is not what a run is judged by.
        if set.on != EvaluationSet::ClientValidation
            && (self.score.is_none() || set.on == EvaluationSet::CentralTest)
            && let Some((name, value)) = headline_of(&set.mean)
        {
            self.score = Some(Score { name: name.to_owned(), value, on: on.to_owned() });
        }
    }

    /// What the answer without a model is, and its value of this score.
    pub(crate) fn floor(&self, score: &Score) -> Option<(&str, f64)> {
        let baseline = self.baseline.as_ref()?;
        Some((&baseline.answer, baseline.score(&score.on, &score.name)?))
    }

    /// That a score is no better than that of an answer without a model, where it is not, and what to do
    /// about it; in words that go on after "the model is".
    pub fn below_baseline(&self, score: &Score) -> Option<String> {
        let (answer, value) = self.floor(score).filter(|(_, value)| score.value <= *value)?;
        let is_fresh = self.inputs.as_ref().is_some_and(|inputs| inputs.weights.is_none());
        let hint = if is_fresh {
            "it started from fresh weights, which know no language: a pretrained model (model.path) needs far \
             fewer rows"
        } else {
            "more rounds, or another work.optimiser.rate (fedra compare --tune), may do better"
        };
        Some(format!(
            "no better than {answer} ({} {:.3} against {value:.3} on the {}): {hint}",
            score.name,
            score.value,
            score.on.replace('_', " ")
        ))
    }

    /// The table at the end of a run.
    pub fn table(&self) -> String {
        let mut grid = Grid::new(["", ""]);
        let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
        fact("experiment", format!("{} (seed {})", self.name, self.seed));
        fact("method", format!("{}, {}", self.method, counted(u64::from(self.rounds), "round")));
        let (clients, examples) =
            (grouped(self.clients as u64), counted(self.examples, "training example"));
        fact("clients", format!("{clients} with {examples}"));
        fact("parameters", grouped(self.parameters));
        if let Some(score) = &self.score {
            let on = score.on.replace('_', " ");
            fact("score", format!("{} {:.3} on the {on}", score.name, score.value));
            if let Some((answer, value)) = self.floor(score) {
                fact("baseline", format!("{} {value:.3} by {answer}", score.name));
            }
        }
        if let Some(below) = self.score.as_ref().and_then(|score| self.below_baseline(score)) {
            fact("note", format!("the model is {below}"));
        }
        for (set, scores) in &self.scores {
            if scores.get("loss").is_some_and(|loss| !loss.is_finite()) {
                let set = set.replace('_', " ");
                fact("warning", format!("the loss on the {set} is not finite: the model diverged"));
            }
        }
        if let Some(best) = &self.best {
            let (round, kept) = (best.round + 1, best.model.as_ref());
            let kept = kept.map_or(String::new(), |model| format!(", kept in {model}"));
            let tied = if best.tied { format!(" ({TIED})") } else { String::new() };
            let Best { name, score, .. } = best;
            fact("best", format!("round {round}: {name} {score:.3} on validation{tied}{kept}"));
        }
        if let Some(stopped) = self.stopped {
            fact("stopped early", stopped.in_words());
        }
        if let Some(stage) = &self.stage {
            let from = |round: fedra_plan::Round| format!("from round {}", round.0 + 1);
            let begun = |round: &fedra_plan::Round| round.0 < self.rounds;
            let rounds = stage.since.filter(begun).map(from);
            fact("second stage", rounds.unwrap_or_else(|| "not reached".to_owned()));
        }
        let Bytes { up, down, full_up, full_down, crossing, .. } = self.bytes;
        fact("bytes up", travelled((up, crossing.up()), full_up));
        fact("bytes down", travelled((down, crossing.down()), full_down));
        fact("privacy", self.privacy.as_ref().map_or("none".to_owned(), PrivacySummary::in_words));
        for line in self.privacy.iter().filter_map(PrivacySummary::signal_in_words) {
            fact("signal-to-noise ratio", line);
        }
        if let Some(noise) = &self.noise {
            fact("noise", noise.clone());
        }
        if self.model.is_none() {
            fact("model", "none saved: every client keeps its own model".to_owned());
        }
        fact("time", duration(self.seconds));
        if let Some(device) = self.device.as_ref().filter(|device| device.name.is_some()) {
            fact("device", device.in_words());
        }
        let peak = PeakMemory { gpu: self.device_peak_bytes, resident: self.peak_rss_bytes };
        fact("memory", peak.to_string());
        grid.lines()[1..].join("\n")
    }
}

/// A loss that is not finite is written as null, and is read as what it was.
fn scores_or_nulls<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, BTreeMap<String, f64>>, D::Error> {
    let read: BTreeMap<String, BTreeMap<String, Option<f64>>> =
        BTreeMap::deserialize(deserializer)?;
    let numbers = |set: BTreeMap<String, Option<f64>>| {
        set.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect()
    };
    Ok(read.into_iter().map(|(set, scores)| (set, numbers(scores))).collect())
}

fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Bytes, and what share of sending every parameter in f32 those of parameters are. What of them
/// crossed a cut are no parameters: they are told apart.
pub fn travelled((bytes, crossing): (ByteCount, ByteCount), full: ByteCount) -> String {
    if full.0 == 0 {
        return "none".to_owned();
    }
    let parameters = ByteCount(bytes.0.saturating_sub(crossing.0));
    let share = 100.0 * parameters.0 as f64 / full.0 as f64;
    let of_everything = format!("{share:.1} % of FedAvg's bytes in f32");
    if crossing.0 == 0 {
        return format!("{bytes}, {of_everything}");
    }
    format!("{bytes}: {crossing} across the cut, {parameters} of parameters, {of_everything}")
}

/// Seconds as people say them.
pub fn duration(seconds: f64) -> String {
    // The sum of no rounds is a zero with a sign.
    match seconds + 0.0 {
        seconds if seconds < 100.0 => format!("{seconds:.1} s"),
        seconds if seconds < 6000.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
impl Summary {
    /// A summary of so many rounds in which nothing happened.
    pub fn of_nothing(rounds: u32) -> Self {
        Self {
            name: "tiny".to_owned(),
            method: "fedavg".to_owned(),
            seed: 3,
            rounds,
            clients: 3,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_not_finite_comes_back_from_the_file_and_is_told() {
        let mut summary = Summary::of_nothing(1);
        let scores = [("loss".to_owned(), f64::INFINITY), ("macro_f1".to_owned(), 0.5)];
        summary.scores.insert("central_test".to_owned(), scores.into());
        let text = serde_json::to_string(&summary).unwrap();
        let read: Summary = serde_json::from_str(&text).unwrap();
        assert!(read.scores["central_test"]["loss"].is_nan());
        assert!(read.table().contains("is not finite"), "{}", read.table());
    }

    #[test]
    fn what_crossed_a_cut_is_no_share_of_the_parameters() {
        let bytes = ByteCount(29_400_082);
        let crossed = ByteCount(29_400_000);
        assert_eq!(
            travelled((bytes, crossed), ByteCount(82)),
            "29.4 MB: 29.4 MB across the cut, 82 B of parameters, 100.0 % of FedAvg's bytes in f32"
        );
        let all = (ByteCount(500), ByteCount(0));
        assert_eq!(travelled(all, ByteCount(1000)), "500 B, 50.0 % of FedAvg's bytes in f32");
    }
}
