//! The one number that a task is judged by, out of all scores of a round.

use std::collections::BTreeMap;

use fedra_engine::{EvaluationSet, OWN_SCORE, RoundReport, SetScores};
use fedra_privacy::shown;

/// The scores that tasks are judged by, in order of preference.
const HEADLINES: [&str; 6] =
    ["span_f1", "macro_f1", "micro_f1", "negative_loss", "rouge_l", "preference_accuracy"];

/// A program's own score goes first. Codes are judged by micro F1, classes by macro F1; only codes have `exact`.
pub fn headline_of(scores: &BTreeMap<String, f64>) -> Option<(&'static str, f64)> {
    if let Some(own) = scores.get(OWN_SCORE) {
        return Some((OWN_SCORE, *own));
    }
    if let (Some(micro), true) = (scores.get("micro_f1"), scores.contains_key("exact")) {
        return Some(("micro_f1", *micro));
    }
    HEADLINES.into_iter().find_map(|name| Some((name, *scores.get(name)?)))
}

/// Name, value and set of the headline of a round that was scored; the central set goes first, and
/// what values are chosen by goes last.
pub fn headline(scores: &[SetScores]) -> Option<(&'static str, f64, EvaluationSet)> {
    let set =
        scores.iter().min_by_key(|set| (set.on == EvaluationSet::ClientValidation, set.on))?;
    let (name, value) = headline_of(&set.mean)?;
    Some((name, value, set.on))
}

/// How a round went, in a line: `round 3/20  loss 0.512  span_f1 0.430`.
pub fn round_line(report: &RoundReport, rounds: u32) -> String {
    let round = report.round.0 + 1;
    let loss = report.loss.map_or(String::new(), |loss| format!("  loss {loss:.3}"));
    let score = headline(&report.scores).map_or(String::new(), |(name, value, on)| {
        let of = if on == EvaluationSet::ClientValidation { "validation " } else { "" };
        format!("  {of}{name} {value:.3}")
    });
    let spent = report
        .privacy
        .as_ref()
        .map_or(String::new(), |privacy| format!("  epsilon {}", shown::up(privacy.epsilon, 2)));
    format!("round {round}/{rounds}{loss}{score}{spent}")
}

/// The name of a set in files.
pub fn set_name(on: EvaluationSet) -> &'static str {
    match on {
        EvaluationSet::CentralTest => "central_test",
        EvaluationSet::ClientValidation => "client_validation",
        EvaluationSet::ClientTest => "client_test",
    }
}
