//! `fedra lab frozen`: what warm-up, freezing and drift do to federated linear attention.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use fedra_lab::{Curves, Phi, Run, Setting, Study, Verdict, mean};
use fedra_report::{Chart, Scale, Series, Stroke};

use super::plots::{Findings, by_level, lowest_of, progress, summarised};
use crate::flags::{cores, one_of};
use crate::study_folder::StudyFolder;

const HELP: &str = "\
Examples:
  fedra lab frozen                       about 50 s on two free cores
  fedra lab frozen --quick               a few seconds, a smaller problem
  fedra lab frozen --seed 2 --out runs/another
  fedra lab frozen --phi relu --rate 0.5 --local-steps 12    larger local steps, where drift matters
  fedra lab frozen --json | jq '.verdicts[] | {shape, seen}'

DIR/index.html shows the plots, results.json has every number. docs/lab.md has the formulas.";

/// The whole command.
#[derive(Args)]
#[command(after_help = HELP)]
pub struct Frozen {
    /// Where plots and numbers go
    #[arg(long, value_name = "DIR", default_value = "runs/lab-frozen")]
    out: PathBuf,
    /// A smaller problem that takes seconds; its curves may differ
    #[arg(long)]
    quick: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The feature map of teachers and students
    #[arg(long, default_value = "identity", value_parser = one_of(Phi::ALL.map(|phi| (phi.name(), phi))))]
    phi: Phi,
    /// Learning rate [default: 0.1, or 0.03 for elu-plus-one]
    #[arg(long, value_name = "ETA")]
    rate: Option<f64>,
    /// Local steps per round where they are not swept [default: 5]
    #[arg(long, value_name = "E")]
    local_steps: Option<u32>,
    /// Print the results as one JSON object instead of sentences
    #[arg(long)]
    json: bool,
}

impl Frozen {
    /// Runs, writes, prints.
    pub fn run(self) -> Result<()> {
        let begun = Instant::now();
        let setting = self.setting()?;
        let folder = StudyFolder::create(&self.out)?;
        let study = Study::run(&setting, self.seed, cores(), progress);
        let verdicts = Verdict::all(&study);
        let mut charts = Vec::new();
        for (cohort, suffix, words) in [
            (setting.clients, "", "all clients every round".to_owned()),
            (
                setting.cohort,
                "-share",
                format!("{} of {} clients per round", setting.cohort, setting.clients),
            ),
        ] {
            let view = View { study: &study, cohort, words };
            charts.push((format!("profile{suffix}"), view.profile()));
            charts.push((format!("tracking{suffix}"), view.tracking()));
            charts.push((format!("local-steps{suffix}"), view.local_steps()));
            charts.push((format!("warmup{suffix}"), view.warmup()));
        }
        let findings = Findings {
            title: "Federated linear attention: warm up, freeze, compare".to_owned(),
            introduction: introduction(&study),
            charts,
            results: serde_json::json!({ "study": &study, "verdicts": &verdicts }),
            verdicts,
            table: None,
            conclusion: None,
            runs: study.runs.len(),
            json: self.json,
        };
        findings.tell(&folder, begun)
    }

    /// The settings that the flags spell.
    fn setting(&self) -> Result<Setting> {
        let mut setting = if self.quick { Setting::quick() } else { Setting::standard() };
        setting.phi = self.phi;
        if self.phi == Phi::EluPlusOne {
            // Its features are several times larger, and with them the curvature that a step respects.
            setting.rate = ELU_RATE;
        }
        if let Some(rate) = self.rate {
            if !(rate.is_finite() && rate > 0.0) {
                bail!("--rate: found {rate}, expected a number above 0");
            }
            setting.rate = rate;
        }
        if let Some(steps) = self.local_steps {
            if !(1..=1000).contains(&steps) {
                bail!("--local-steps: found {steps}, expected a whole number from 1 to 1000");
            }
            setting.local_steps = steps;
            setting.local_step_sweep.push(steps);
            setting.local_step_sweep.sort_unstable();
            setting.local_step_sweep.dedup();
        }
        Ok(setting)
    }
}

/// The step for elu + 1, chosen so that stage 2 contracts at the kernels that training meets.
const ELU_RATE: f64 = 0.03;

fn introduction(study: &Study) -> Vec<String> {
    let setting = &study.setting;
    vec![
        format!(
            "{} clients with {} samples each learn f = Z V, Z = phi(HQ) phi(HK)^T H / n with phi = {}, by \
             federated averaging: {} rounds, {} local steps of size {} unless the plot says otherwise. \
             Teachers differ by client; h is how far their kernels and values lie apart, next to a shared part \
             of size 1. Targets have mean square 1 and two outputs, so predicting nothing costs 1.",
            setting.clients,
            setting.samples,
            setting.phi.name(),
            setting.rounds,
            setting.local_steps,
            setting.rate
        ),
        format!(
            "Lines are means over {} worlds (seed {}), bands reach from the lowest to the highest; the sweep over \
             warm-ups has {} worlds where clients differ and all take part. All numbers are in results.json.",
            setting.seeds, study.seed, setting.sweep_seeds
        ),
    ]
}

/// A name, how its line is drawn, and which loss of a run it shows.
type Kind = (&'static str, Stroke, fn(&Run) -> Option<f64>);

/// A study as seen with one kind of cohort.
struct View<'s> {
    study: &'s Study,
    cohort: usize,
    words: String,
}

impl View<'_> {
    fn curves(&self, heterogeneity: f64) -> Vec<&Curves> {
        let runs = self.study.select(heterogeneity, self.study.setting.local_steps, self.cohort);
        runs.into_iter().filter_map(|run| run.curves.as_ref()).collect()
    }

    /// One line for each heterogeneity; `values` gives x and y of one world.
    fn by_heterogeneity(&self, values: impl Fn(&Curves) -> Vec<(f64, Option<f64>)>) -> Vec<Series> {
        let worlds = |h| self.curves(h).into_iter().map(&values).collect();
        by_level(&self.study.setting.heterogeneities, Stroke::Solid, worlds)
    }

    fn profile(&self) -> Chart {
        let rounds = |curves: &Curves| by_round(&curves.profile);
        Chart {
            title: format!("Profile objective of the kernel ({})", self.words),
            caption: "The loss that the best value block could reach with the kernel (Q, K) that full training has \
                      after each round. Freezing at a round means keeping its height, up to the floor of stage 2."
                .to_owned(),
            x: ("round".to_owned(), Scale::Linear),
            y: ("profile objective".to_owned(), Scale::Linear),
            series: self.by_heterogeneity(rounds),
        }
    }

    fn tracking(&self) -> Chart {
        let setting = &self.study.setting;
        let mut series = self.by_heterogeneity(|curves| by_round(&curves.tracking));
        let from = f64::from(setting.warmup);
        let to = f64::from(setting.rounds);
        for (colour, &h) in setting.heterogeneities.iter().enumerate() {
            let floor = mean(self.curves(h).iter().map(|curves| curves.floor));
            // One local step has no floor, and zero has no place on a logarithmic axis.
            let Some(floor) = floor.filter(|&floor| floor > 1e-12) else { continue };
            let points = summarised(&[vec![(from, Some(floor)), (to, Some(floor))]]);
            let name = format!("floor, h = {h}");
            series.push(Series { name, points, stroke: Stroke::Dashed, colour });
        }
        Chart {
            title: format!("Tracking error of the value block ({})", self.words),
            caption: format!(
                "|V - V*| after each round; the kernel is frozen after round {}. Dashed: |V_inf - V*|, the closed \
                 form of where stage 2 ends when every client takes part every round.",
                setting.warmup
            ),
            x: ("round".to_owned(), Scale::Linear),
            y: ("|V - V*|".to_owned(), Scale::Log),
            series,
        }
    }

    fn local_steps(&self) -> Chart {
        let setting = &self.study.setting;
        // A heterogeneity has the colour that it has in the other plots.
        let levels = || setting.heterogeneities.iter().enumerate();
        let ends = [levels().next(), levels().next_back()];
        let mut series = Vec::new();
        for (colour, &h) in ends.into_iter().flatten() {
            let kinds: [Kind; 2] = [
                ("full", Stroke::Marked, |run| run.full),
                ("frozen", Stroke::DashedMarked, |run| run.frozen),
            ];
            for (kind, stroke, loss) in kinds {
                let world = |world: usize| -> Vec<(f64, Option<f64>)> {
                    let at = |&steps: &u32| {
                        let runs = self.study.select(h, steps, self.cohort);
                        (f64::from(steps), runs.get(world).and_then(|run| loss(run)))
                    };
                    setting.local_step_sweep.iter().map(at).collect()
                };
                let worlds: Vec<_> = (0..setting.seeds as usize).map(world).collect();
                let name = format!("{kind}, h = {h}");
                series.push(Series { name, points: summarised(&worlds), stroke, colour });
            }
        }
        Chart {
            title: format!("Final loss by local steps ({})", self.words),
            caption: format!(
                "Global loss after {} rounds. Full: everything trains to the end. Frozen: the kernel stops after round \
                 {}. More local steps are also more training, so lines fall before drift can lift them.",
                setting.rounds, setting.warmup
            ),
            x: ("local steps E".to_owned(), Scale::Log),
            y: ("final global loss".to_owned(), Scale::Linear),
            series,
        }
    }

    fn warmup(&self) -> Chart {
        let setting = &self.study.setting;
        let place = |&(warmup, loss): &(u32, Option<f64>)| (f64::from(warmup), loss);
        let worlds = |h| {
            let runs = self.study.select(h, setting.local_steps, self.cohort).into_iter();
            runs.filter_map(|run| Some(run.by_warmup()?.iter().map(place).collect())).collect()
        };
        let mut series = by_level(&setting.heterogeneities, Stroke::Marked, worlds);
        series.push(lowest_of(&series));
        Chart {
            title: format!("Final loss by warm-up ({})", self.words),
            caption: format!(
                "Global loss after {} rounds when the kernel is frozen after W of them; at the right end it never is. \
                 A minimum inside would be the trade-off between a kernel that is not learned yet and one that drifted.",
                self.study.setting.rounds
            ),
            x: ("warm-up rounds W".to_owned(), Scale::Linear),
            y: ("final global loss".to_owned(), Scale::Linear),
            series,
        }
    }
}

fn by_round(values: &[f64]) -> Vec<(f64, Option<f64>)> {
    values.iter().enumerate().map(|(round, value)| (round as f64, Some(*value))).collect()
}
