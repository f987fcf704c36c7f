//! `fedra lab bridge FILE.toml`: does the trade-off survive softmax and an MLP?

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use fedra::text::grid::Grid;
use fedra_lab::{
    Bridge as Study, BridgeSetting, Judgement, Student, Survival, Sweep, TunedAt, Verdict,
};
use fedra_report::{Chart, Point, Scale, Series, Stroke};

use super::plots::{Findings, by_level, lowest_of, progress};
use crate::flags::cores;
use crate::study_folder::StudyFolder;

const HELP: &str = "\
Examples:
  fedra lab bridge experiments/frozen_bridge.toml            about 100 s on two free cores
  fedra lab bridge experiments/frozen_bridge.toml --out runs/bridge --json

DIR/index.html shows the plots, results.json has every number. docs/lab.md describes the
criterion.";

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
    /// Override the seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the results as one JSON object instead of sentences
    #[arg(long)]
    json: bool,
}

impl Bridge {
    /// Runs, writes, prints.
    pub fn run(self) -> Result<()> {
        let begun = Instant::now();
        let shown = self.file.display();
        let mut setting: BridgeSetting = fedra::config::read_setting(&self.file)?;
        setting.seed = self.seed.unwrap_or(setting.seed);
        setting.check().with_context(|| shown.to_string())?;
        let folder = StudyFolder::create(&self.out)?;
        let study = Study::run(&setting, cores(), progress)?;
        let judgements = study.judge();
        let survival = Survival::of(&judgements);
        let charts = Student::ALL.into_iter().flat_map(|student| {
            let file = student.short();
            [
                (file.to_owned(), losses(&study, student)),
                (format!("{file}-gain"), gains(&study, student)),
            ]
        });
        let told = Findings {
            title: "From linear attention towards a Transformer".to_owned(),
            introduction: vec![survival.to_string(), introduction(&setting)],
            charts: charts.collect(),
            results: serde_json::json!({
                "study": &study,
                "judgements": &judgements,
                "survival": &survival,
                "conclusion": survival.to_string(),
            }),
            table: Some(table(&judgements)),
            verdicts: vec![survived(&survival)],
            conclusion: Some(survival.to_string()),
            runs: study.paths(),
            json: self.json,
        };
        told.tell(&folder, begun)
    }
}

fn introduction(setting: &BridgeSetting) -> String {
    let steps: Vec<String> = setting.rates.iter().map(f64::to_string).collect();
    let chosen = match (steps.len(), setting.tuned_at) {
        (1, _) => format!("Steps have size {}.", steps[0]),
        (_, TunedAt::Own) => format!(
            "Steps have the size, out of {}, with which no warm-up diverges and never freezing ends lowest in a further \
             world of the same heterogeneity.",
            steps.join(", ")
        ),
        (_, TunedAt::Zero) => format!(
            "Steps have the size, out of {}, with which no warm-up diverges and never freezing ends lowest in a further \
             world without heterogeneity.",
            steps.join(", ")
        ),
    };
    format!(
        "{} clients with {} samples each, {} rounds of {} local steps, {} worlds (seed {}). h is how far the clients' \
         teachers lie apart. {chosen} Lines are means over worlds, bands reach from the lowest to the highest. All \
         numbers are in results.json.",
        setting.clients,
        setting.samples,
        setting.rounds,
        setting.local_steps,
        setting.worlds,
        setting.seed
    )
}

/// A word, and what else a reader must know.
fn verdict(judged: &Judgement) -> String {
    let word = if judged.seen { "seen" } else { "not seen" };
    match (&judged.dip, judged.diverged) {
        (None, _) => format!("{word}: never freezing diverged"),
        (Some(_), 0) => word.to_owned(),
        (Some(_), runs) => format!("{word} ({runs} diverged)"),
    }
}

/// One row for each curve.
fn table(judgements: &[Judgement]) -> (String, Grid) {
    let mut grid = Grid::new([
        "student",
        ">h",
        ">step",
        "chosen W",
        ">gain on W 0",
        ">gain on never",
        ">still falling",
        "verdict",
    ]);
    for judged in judgements {
        // The verdict says why.
        let missing = || "-".to_owned();
        let dip = judged.dip.as_ref();
        let chosen = |dip: &fedra_lab::Dip| {
            dip.chosen.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
        };
        grid.row([
            judged.student.short().to_owned(),
            judged.heterogeneity.to_string(),
            judged.rate.to_string(),
            dip.map_or_else(missing, chosen),
            dip.map_or_else(missing, |dip| dip.against_none.to_string()),
            dip.map_or_else(missing, |dip| dip.against_never.to_string()),
            judged.still_falling.map_or_else(missing, |share| format!("{:.1} %", 100.0 * share)),
            verdict(judged),
        ]);
    }
    let caption = format!(
        "Verdict: a minimum inside is counted if {}. Chosen W: the warm-up of each world. A frozen run that \
         diverged counts with its initial loss. Still falling: which share of its loss never freezing lost over the \
         last sixth of the rounds.",
        Judgement::CRITERION
    );
    (caption, grid)
}

fn survived(survival: &Survival) -> Verdict {
    let count = |one: &fedra_lab::Shown| {
        let zero = if one.seen_at_zero { ", and at h = 0 too" } else { "" };
        format!("{} at {} of {}{zero}", one.student.name(), one.seen, one.of)
    };
    Verdict {
        seen: survival.survives,
        shape: "the trade-off holds from linear attention to softmax to softmax with an MLP",
        criterion: Survival::CRITERION,
        numbers: survival.students.iter().map(count).collect::<Vec<_>>().join("; "),
    }
}

/// Final loss by warm-up.
fn losses(study: &Study, student: Student) -> Chart {
    let mut series = lines(study, student, |sweep| {
        sweep.iter().map(|(warmup, loss)| (f64::from(*warmup), *loss)).collect()
    });
    series.push(lowest_of(&series));
    Chart {
        title: format!("Final loss by warm-up: {}", student.name()),
        caption: format!(
            "Global loss after {} rounds when query and key are frozen after W of them and everything else \
             continues to learn; at the right end they are never frozen.",
            study.setting.rounds
        ),
        x: ("warm-up rounds W".to_owned(), Scale::Linear),
        y: ("final global loss".to_owned(), Scale::Linear),
        series,
    }
}

/// The right arm of the same curves where clients differ: next to W = 0 it is too low to be seen.
fn gains(study: &Study, student: Student) -> Chart {
    let from = study.setting.rounds / 2;
    let mut series = lines(study, student, |sweep| {
        let never = sweep.last().and_then(|(_, loss)| *loss);
        let gain = |loss: Option<f64>| Some(100.0 * (1.0 - loss? / never?));
        let late = sweep.iter().filter(|(warmup, _)| *warmup >= from);
        late.map(|(warmup, loss)| (f64::from(*warmup), gain(*loss))).collect()
    });
    // The first heterogeneity is 0: there clients do not differ.
    series.remove(0);
    if series.iter().any(|line| !line.points.is_empty()) {
        let ends = [from, study.setting.rounds].map(|warmup| Point::new(f64::from(warmup), 0.0));
        let (name, points) = ("never frozen".to_owned(), ends.to_vec());
        series.push(Series { name, points, stroke: Stroke::Dashed, colour: 6 });
    }
    Chart {
        title: format!("Gain on never freezing: {}", student.name()),
        caption: format!(
            "How much lower the final loss is than never freezing's in the same world, for warm-ups of {from} rounds \
             and more: above the dashed line freezing pays. A line's best point is chosen on what the line shows; \
             the table's gains are not."
        ),
        x: ("warm-up rounds W".to_owned(), Scale::Linear),
        y: ("gain on never freezing, %".to_owned(), Scale::Linear),
        series,
    }
}

/// One line for each heterogeneity; `values` gives x and y of one world's sweep.
fn lines(
    study: &Study,
    student: Student,
    values: impl Fn(&Sweep) -> Vec<(f64, Option<f64>)>,
) -> Vec<Series> {
    by_level(&study.setting.heterogeneities, Stroke::Marked, |h| {
        study.select(student, h).iter().map(|run| values(&run.final_by_warmup)).collect()
    })
}
