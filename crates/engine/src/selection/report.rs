//! What a round tells about its choice of blocks, and when it warns.
//!
//! Three things go wrong with selection and none of them shows in a loss: the choice *collapses* to
//! the same blocks for ever, blocks *starve*, and the consensus *mismatches* what clients would have
//! chosen. Each has a number in every report and a warning in words.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Plan};
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use super::memory::Memory;
use super::settings::{Masks, Selection};

/// Rounds before a repeated choice counts as collapse.
const PATIENCE: u32 = 5;
/// Entropy, as a share of the most there can be, below which one block holds nearly all the score.
const PEAKED: f64 = 0.05;
/// Scores that all lie within this share of their mean rank blocks by noise.
const FLAT: f64 = 0.01;
/// The mean share of their own choice that clients should find in the consensus.
const AGREEMENT: f64 = 0.5;

/// How the blocks of a round were chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectionReport {
    /// The clients' mean score of each block, as last measured; empty if nobody measures.
    pub scores: Vec<f64>,
    /// Entropy of the scores as a share of the most there can be: 1 is flat, 0 is one block.
    pub entropy: Option<f64>,
    /// Blocks that learn now and did not in the last round; absent in the first.
    pub churn: Option<u16>,
    /// Blocks that have never learned so far.
    pub never: BTreeSet<u16>,
    /// How many clients train each block.
    pub clients: Vec<u32>,
    /// The mean share of a client's own choice that the consensus has too, where clients measured.
    pub agreement: Option<f64>,
    /// Bytes of the clients' scores; part of the round's bytes up.
    pub scores_up: ByteCount,
    /// Bytes that told clients what to train; part of the round's bytes down.
    pub masks_down: ByteCount,
    /// What measuring took, in multiply-adds for one token an example; part of the round's effort.
    #[serde(default)]
    pub effort: u64,
    /// What looks wrong.
    pub warnings: Vec<Warning>,
}

/// Something that looks wrong, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Its kind, so that a person need not read it twice.
    pub kind: WarningKind,
    /// What was seen and what to try.
    pub text: String,
}

/// What can look wrong with a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The same blocks again and again, or one that holds all the score.
    Collapse,
    /// Scores that say nothing.
    Uninformative,
    /// Blocks that never learn.
    Starvation,
    /// Clients that would have chosen otherwise.
    Mismatch,
}

/// One round as the report sees it.
pub(crate) struct Observed<'a> {
    pub selection: &'a Selection,
    pub masks: Masks,
    pub k: u16,
    pub blocks: u16,
    pub plans: &'a BTreeMap<ClientId, Plan>,
    /// The blocks that may learn somewhere.
    pub chosen: &'a BTreeSet<u16>,
    pub agreements: &'a [f64],
}

impl Observed<'_> {
    /// The report, without bytes; the memory learns of the choice.
    pub(crate) fn report(&self, memory: &mut Memory) -> SelectionReport {
        let trained: Vec<BTreeSet<u16>> =
            self.plans.values().map(|plan| plan.learns().blocks()).collect();
        let churn = memory.note(self.chosen);
        let looks = self.selection.criterion.looks_at_data();
        let scores = match &memory.profile {
            Some(profile) if looks => profile.scores.0.clone(),
            Some(_) | None => Vec::new(),
        };
        let clients = (0..self.blocks)
            .map(|block| trained.iter().filter(|blocks| blocks.contains(&block)).count() as u32)
            .collect();
        let count = self.agreements.len() as f64;
        let agreement = (looks && !self.agreements.is_empty())
            .then(|| self.agreements.iter().sum::<f64>() / count);
        let mut report = SelectionReport {
            entropy: entropy(&scores),
            scores,
            churn,
            never: (0..self.blocks).filter(|block| !memory.ever.contains(block)).collect(),
            clients,
            agreement,
            ..SelectionReport::default()
        };
        report.warnings = self.warnings(&report, memory);
        report
    }

    fn warnings(&self, report: &SelectionReport, memory: &Memory) -> Vec<Warning> {
        let chosen = self.chosen;
        let mut warnings = Vec::new();
        let mut warn = |kind, text: String| warnings.push(Warning { kind, text });
        let all = chosen.len() == usize::from(self.blocks);
        let moves = !self.selection.criterion.is_fixed() && self.selection.settle.is_none();
        let looks = self.selection.criterion.looks_at_data();
        if looks && moves && !all && memory.same >= PATIENCE {
            let (blocks, rounds) = (listed(chosen), memory.same);
            warn(
                WarningKind::Collapse,
                format!(
                    "collapse: the same choice (blocks {blocks}) in {rounds} rounds in a row, so the score no \
                     longer matters. Try explore = 1, or selector = \"corrected\", \
                     \"cover\" or \"even\""
                ),
            );
        } else if let Some(entropy) = report.entropy.filter(|entropy| *entropy < PEAKED) {
            warn(
                WarningKind::Collapse,
                format!("collapse: one block holds nearly all of the score (entropy {entropy:.3})"),
            );
        }
        if !all && flat(&report.scores) {
            warn(
                WarningKind::Uninformative,
                "uninformative: the scores of all blocks lie within 1 % of their mean, so their \
                 order is noise. Try another selector, or another `relevant`"
                    .to_owned(),
            );
        }
        let turns = u32::from(self.blocks).div_ceil(u32::from(self.k.max(1)));
        let long = memory.rounds >= PATIENCE.max(2 * turns);
        if moves && long && !report.never.is_empty() {
            let (blocks, rounds) = (listed(&report.never), memory.rounds);
            warn(
                WarningKind::Starvation,
                format!(
                    "starvation: blocks {blocks} have never learned in {rounds} rounds. Try \
                     explore = 1 or selector = \"cyclic\""
                ),
            );
        }
        let apart = report.agreement.filter(|agreement| *agreement < AGREEMENT);
        if let (Masks::Consensus, Some(agreement)) = (self.masks, apart) {
            let share = 100.0 * agreement;
            warn(
                WarningKind::Mismatch,
                format!(
                    "mismatch: on average {share:.0} % of a client's own choice is in the \
                     consensus. Try mask = \"per_client\""
                ),
            );
        }
        warnings
    }
}

/// Entropy of scores as shares of their sum, between 0 and 1; none for no scores.
fn entropy(scores: &[f64]) -> Option<f64> {
    let sum: f64 = scores.iter().sum();
    if scores.len() < 2 || scores.iter().any(|score| *score < 0.0) || sum <= 0.0 {
        return None;
    }
    let shares = scores.iter().map(|score| score / sum).filter(|share| *share > 0.0);
    Some(shares.map(|share| -share * share.ln()).sum::<f64>() / (scores.len() as f64).ln())
}

fn flat(scores: &[f64]) -> bool {
    if scores.len() < 2 {
        return false;
    }
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    most - least <= FLAT * mean.abs()
}

fn listed(blocks: &BTreeSet<u16>) -> String {
    blocks.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_one_for_equal_scores_and_zero_for_a_single_one() {
        assert!((entropy(&[0.2, 0.2, 0.2]).expect("scores") - 1.0).abs() < 1e-12);
        assert_eq!(entropy(&[0.0, 0.7, 0.0]), Some(0.0));
        assert_eq!(entropy(&[]), None);
        let between = entropy(&[0.5, 0.25]).expect("scores");
        // -(2/3 ln 2/3 + 1/3 ln 1/3) / ln 2
        assert!((between - 0.918_295_834).abs() < 1e-9, "{between}");
    }

    #[test]
    fn scores_within_a_hundredth_of_their_mean_are_flat() {
        assert!(flat(&[1.0, 1.005, 0.999]));
        assert!(!flat(&[1.0, 1.1]));
        assert!(!flat(&[]));
    }
}
