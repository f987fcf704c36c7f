//! `fedra lab bridge FILE.toml`: does the trade-off survive softmax and an MLP?

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use fedra_lab::{Bridge as Study, BridgeSetting, Student, Valley, mean, valley};
use fedra_report::{Chart, Scale, Series, Stroke};

use super::plots::{Findings, Plots, Shape, lowest_of, progress, summarised, threads};

const HELP: &str = "\
Examples:
  fedra lab bridge experiments/frozen_bridge.toml
  fedra lab bridge experiments/frozen_bridge.toml --out runs/bridge --json

Three students learn the same federated task: linear attention, softmax attention, softmax attention with an MLP.
For each, the final loss by warm-up is drawn side by side, and one sentence says whether a minimum inside was
seen: a warm-up that beats both freezing at once and never freezing by more than 0.1 %, in every world.";

/// The whole command.
#[derive(Args)]
#[command(after_help = HELP)]
pub struct Bridge {
    /// The file with all settings
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Where plots and numbers go
    #[arg(long, value_name = "DIR", default_value = "runs/lab-bridge")]
    out: PathBuf,
    /// Another seed than the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the results as one JSON object instead of sentences
    #[arg(long)]
    json: bool,
}

/// What became of one curve.
#[derive(serde::Serialize)]
struct Finding {
    student: Student,
    heterogeneity: f64,
    inside: bool,
    valleys: Vec<Option<Valley>>,
}

impl Bridge {
    /// Runs, writes, prints.
    pub fn run(self) -> Result<()> {
        let begun = Instant::now();
        let shown = self.file.display();
        let mut setting: BridgeSetting = crate::experiment::read_setting(&self.file)?;
        setting.seed = self.seed.unwrap_or(setting.seed);
        setting.check().with_context(|| shown.to_string())?;
        let plots = Plots::create(&self.out)?;
        let study = Study::run(&setting, threads(), progress)?;
        let findings = findings(&study);
        let charts: Vec<(String, Chart)> = Student::ALL
            .into_iter()
            .zip(["linear", "softmax", "softmax-mlp"])
            .map(|(student, file)| (file.to_owned(), chart(&study, student)))
            .collect();
        let told = Findings {
            title: "From linear attention towards a Transformer: final loss by warm-up".to_owned(),
            introduction: vec![format!(
                "{} clients with {} samples each, {} rounds of {} local steps, {} worlds (seed {}). Lines are means \
                 over worlds, bands reach from the lowest to the highest.",
                setting.clients,
                setting.samples,
                setting.rounds,
                setting.local_steps,
                setting.worlds,
                setting.seed
            )],
            charts,
            results: serde_json::json!({ "study": &study, "findings": &findings }),
            shapes: findings.iter().map(Finding::shape).collect(),
            conclusion: Some(conclusion(&findings)),
            runs: study.runs.len(),
        };
        told.tell(&plots, self.json.into(), begun)
    }
}

impl Finding {
    fn shape(&self) -> Shape {
        let (student, h) = (self.student.name(), self.heterogeneity);
        let name = format!("{student}, h {h}: a minimum inside");
        Shape { seen: self.inside, name, criterion: None, numbers: self.numbers() }
    }

    fn numbers(&self) -> String {
        let known = || self.valleys.iter().flatten();
        let show =
            |loss: Option<f64>| loss.map_or("diverged".to_owned(), |loss| format!("{loss:.4}"));
        let best: Vec<String> = known().map(|valley| valley.best.to_string()).collect();
        format!(
            "W 0 {}, best {} at W {}, never frozen {}",
            show(mean(known().map(|valley| valley.never))),
            show(mean(known().map(|valley| Some(valley.lowest)))),
            best.join(" and "),
            show(mean(known().map(|valley| valley.always))),
        )
    }
}

fn findings(study: &Study) -> Vec<Finding> {
    let mut findings = Vec::new();
    for student in Student::ALL {
        for &heterogeneity in &study.setting.heterogeneities {
            let runs = study.select(student, heterogeneity);
            let valleys: Vec<Option<Valley>> =
                runs.iter().map(|run| valley(&run.final_by_warmup)).collect();
            let inside = valleys.iter().all(|valley| valley.is_some_and(|valley| valley.inside));
            findings.push(Finding { student, heterogeneity, inside, valleys });
        }
    }
    findings
}

/// The sentence that the bridge is for.
fn conclusion(findings: &[Finding]) -> String {
    let seen = |student: Student| {
        let mut mine = findings.iter().filter(|finding| finding.student == student);
        mine.any(|finding| finding.heterogeneity > 0.0 && finding.inside)
    };
    let words: Vec<String> = Student::ALL
        .into_iter()
        .map(|student| {
            let word = if seen(student) { "yes" } else { "no" };
            format!("{} {word}", student.name())
        })
        .collect();
    format!("A warm-up that pays, at some heterogeneity: {}.", words.join(", "))
}

fn chart(study: &Study, student: Student) -> Chart {
    let lines = study.setting.heterogeneities.iter().enumerate();
    let mut series: Vec<Series> = lines
        .map(|(colour, &h)| {
            let worlds: Vec<Vec<(f64, Option<f64>)>> = study
                .select(student, h)
                .iter()
                .map(|run| {
                    run.final_by_warmup.iter().map(|(w, loss)| (f64::from(*w), *loss)).collect()
                })
                .collect();
            let points = summarised(&worlds);
            Series { name: format!("h = {h}"), points, stroke: Stroke::Marked, colour }
        })
        .collect();
    series.push(lowest_of(&series));
    Chart {
        title: format!("Final loss by warm-up: {}", student.name()),
        caption: format!(
            "Global loss after {} rounds when query and key are frozen after W of them and everything else goes on; \
             at the right end they never are.",
            study.setting.rounds
        ),
        x: ("warm-up rounds W".to_owned(), Scale::Linear),
        y: ("final global loss".to_owned(), Scale::Linear),
        series,
    }
}
