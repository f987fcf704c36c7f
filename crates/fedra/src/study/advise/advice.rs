//! Advice as it is told: tables for people, one JSON object for programs.

use std::collections::BTreeMap;

use fedra_plan::ByteCount;
use serde::Serialize;

use super::decision::{Gap, Proposal};
use super::pilot::{Drifting, End, Kernel, Measured, Pilot};
use crate::config::Experiment;
use crate::error::{Context, Result};
use crate::study::compare::Verdict;
use crate::text::grid::Grid;

/// Everything that was measured and what follows from it.
#[derive(Debug, Serialize)]
pub struct Advice {
    name: String,
    seed: u64,
    /// The method beneath.
    base: String,
    /// The score that was compared, on the clients' validation examples.
    score: &'static str,
    /// Rounds of the experiment.
    rounds: u32,
    /// Rounds that the pilot looked ahead.
    horizon: u32,
    /// Over so many last rounds scores are averaged.
    window: u32,
    /// How much score may be given up; no more than a tenth of what the trunk gained.
    tolerance: f64,
    /// Rounds of training that the pilot took.
    trained: u64,
    proposal: Proposal,
    /// The warm-up that `method.warmup` should have; all rounds for never.
    warmup: u32,
    reason: String,
    /// What to add to the command line.
    apply: String,
    never: Never,
    candidates: Vec<Candidate>,
    kernels: Vec<Kernel>,
}

/// The trunk.
#[derive(Debug, Serialize)]
struct Never {
    score: Option<f64>,
    bytes: u64,
    scores: BTreeMap<u32, f64>,
}

/// A branch.
#[derive(Debug, Serialize)]
struct Candidate {
    warmup: u32,
    end: End,
    /// Mean score of the clients, where it was compared.
    score: Option<f64>,
    /// Against the trunk over the same rounds.
    gap: Option<Gap>,
    finding: Verdict,
    /// What the whole run would send less, up and down.
    bytes_saved: u64,
    /// Its share of what a run that never freezes sends.
    share_saved: f64,
    scores: BTreeMap<u32, f64>,
}

impl Advice {
    /// What follows from a pilot.
    pub fn of(
        experiment: &Experiment,
        trunk: &Experiment,
        (pilot, measured): (&Pilot<'_>, Measured),
    ) -> Result<Self> {
        let (horizon, window) = (pilot.plan.horizon, pilot.plan.window());
        let tolerance = measured.tolerance;
        let total = |bytes: fedra_engine::Bytes| bytes.up.0 + bytes.down.0;
        let never = total(pilot.bytes(None)?);
        let mut candidates = Vec::new();
        for branch in &measured.branches {
            let until = branch.end.last_scored(horizon);
            let gap = pilot.gap(branch, (&measured.trunk, 0), until);
            let finding = match (branch.end, gap) {
                (End::Horizon, Some(gap)) => gap.finding(tolerance),
                (End::Horizon, None) => Verdict::NoDifferenceSeen,
                (End::Behind(_) | End::Diverged(_), _) => Verdict::Worse,
            };
            let saved = never.saturating_sub(total(pilot.bytes(Some(branch.warmup))?));
            candidates.push(Candidate {
                warmup: branch.warmup,
                end: branch.end,
                score: branch.course.mean(until, window.min(until - branch.warmup)),
                gap,
                finding,
                bytes_saved: saved,
                share_saved: saved as f64 / never.max(1) as f64,
                scores: branch.course.by_round(),
            });
        }
        let told = |one: &Candidate| {
            (one.warmup, one.finding, one.gap.map_or(f64::NEG_INFINITY, |gap| gap.mean))
        };
        let proposal = Proposal::of(&candidates.iter().map(told).collect::<Vec<_>>());
        Ok(Self {
            name: experiment.name.clone(),
            seed: experiment.seed.0,
            base: base_of(trunk),
            score: measured.trunk.score.context("no client scored the model")?,
            rounds: experiment.rounds,
            horizon,
            window,
            tolerance,
            trained: measured.rounds,
            proposal,
            warmup: proposal.warmup().unwrap_or(experiment.rounds),
            reason: proposal.reason(tolerance),
            apply: apply(experiment, trunk, proposal),
            never: Never {
                score: measured.trunk.mean(horizon, window),
                bytes: never,
                scores: measured.trunk.by_round(),
            },
            candidates,
            kernels: measured.kernels,
        })
    }

    /// The tables, on lines of so many characters, and the sentence.
    pub fn text(&self, width: usize) -> String {
        let Self { score, horizon, rounds, window, .. } = self;
        let ahead = if horizon == rounds {
            format!("after all {rounds} rounds")
        } else {
            format!("after {horizon} of {rounds} rounds")
        };
        let over = match window {
            1 => String::new(),
            window => format!(", mean of the last {window}"),
        };
        let warmup = match self.proposal.warmup() {
            Some(1) => "1 round".to_owned(),
            Some(warmup) => format!("{warmup} rounds"),
            None => "never: all rounds".to_owned(),
        };
        let saved = self.candidates.iter().find(|one| Some(one.warmup) == self.proposal.warmup());
        let saved = saved.map_or(String::new(), |one| {
            format!("\nit saves          {}", share(one.bytes_saved, one.share_saved))
        });
        format!(
            "{score} on the clients' validation examples {ahead}{over}\n{}\n\n\
             query and key on the trunk, round by round\n{}\n\n\
             proposed warm-up  {warmup}\nbecause           {}{saved}\nuse it with       {}",
            self.candidates().within(width),
            self.kernels().within(width),
            self.reason,
            self.apply,
        )
    }

    fn candidates(&self) -> Grid {
        let mut grid = Grid::new([">warm-up", ">score", "against never", "", "saved of all bytes"]);
        for one in &self.candidates {
            let gap = one.gap.map_or(String::new(), |Gap { mean, margin }| match margin {
                Some(margin) => format!("{mean:+.4} ± {margin:.4}"),
                None => format!("{mean:+.4}"),
            });
            let words = match one.end {
                End::Horizon => one.finding.words().to_owned(),
                End::Behind(round) => format!("clearly behind after round {round}, stopped"),
                End::Diverged(round) => format!("diverged in round {round}"),
            };
            grid.row([
                one.warmup.to_string(),
                one.score.map_or("-".to_owned(), |score| format!("{score:.4}")),
                gap,
                words,
                share(one.bytes_saved, one.share_saved),
            ]);
        }
        let score = self.never.score.map_or("-".to_owned(), |score| format!("{score:.4}"));
        grid.row(["never".to_owned(), score, String::new(), String::new(), String::new()]);
        grid
    }

    fn kernels(&self) -> Grid {
        let mut grid =
            Grid::new([">warm-up", ">loss", ">bias", ">QK drift", ">disagreement", ">noise"]);
        for kernel in &self.kernels {
            let next = |show: fn(&Drifting) -> f64| {
                kernel.next.as_ref().map_or("-".to_owned(), |next| format!("{:.3}", show(next)))
            };
            grid.row([
                kernel.warmup.to_string(),
                format!("{:.4}", kernel.loss),
                kernel.bias.map_or("-".to_owned(), |bias| format!("{bias:.3}")),
                next(|next| next.drift),
                next(|next| next.disagreement),
                next(|next| next.noise),
            ]);
        }
        grid
    }
}

fn share(bytes: u64, share: f64) -> String {
    format!("{}, {:.1} %", ByteCount(bytes), 100.0 * share)
}

/// The method beneath, as it is written in a file.
fn base_of(trunk: &Experiment) -> String {
    let base = trunk.raw.method.settings.get("base");
    base.map_or("{ name = \"fedavg\" }".to_owned(), ToString::to_string)
}

/// How the proposal gets into a run of the same file.
fn apply(experiment: &Experiment, trunk: &Experiment, proposal: Proposal) -> String {
    let frozen = experiment.raw.method.name == "fedfrozen";
    match (frozen, proposal.warmup()) {
        (true, warmup) => {
            format!("--set method.warmup={}", warmup.unwrap_or(experiment.rounds))
        }
        (false, None) => "the file as it is".to_owned(),
        (false, Some(warmup)) => {
            let base = base_of(trunk);
            format!("--set 'method={{ name = \"fedfrozen\", warmup = {warmup}, base = {base} }}'")
        }
    }
}
