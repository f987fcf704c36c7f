//! Tuning: each variant chooses its own values, on examples that no table reports.
//!
//! What is chosen from is a [`Trial`], which has a place for the score on the clients' validation
//! examples and none for any other, and it is read by a type that knows no other set either.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Value;

use super::variants::Assignment;
use super::written::Axis;
use crate::error::{Context, Result};
use crate::folder::json_file;
use crate::text::headline::headline_of;

/// One candidate after its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The tuned keys with their values.
    pub assigned: Vec<Assignment>,
    /// The mean validation score over the tuning seeds; absent when a run failed.
    pub validation: Option<f64>,
}

/// The place of the best candidate, the first of equals; `None` when every one failed.
pub fn best(trials: &[Trial]) -> Option<usize> {
    let finite = |trial: &Trial| trial.validation.filter(|score| score.is_finite());
    let places = trials.iter().enumerate();
    let scored = places.filter_map(|(place, trial)| Some((place, finite(trial)?)));
    scored.rev().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(place, _)| place)
}

/// The tuned keys whose chosen number has no candidate on one of its sides.
pub fn at_edge(grid: &[Axis], chosen: &[Assignment]) -> Vec<String> {
    let on_edge = |axis: &&Axis| {
        let numbers: Option<Vec<f64>> = axis.values.iter().map(number).collect();
        let value = chosen.iter().find(|(key, _)| *key == axis.key).and_then(|(_, v)| number(v));
        let (Some(numbers), Some(value)) = (numbers, value) else { return false };
        let is_inside = numbers.iter().any(|n| *n < value) && numbers.iter().any(|n| *n > value);
        numbers.len() > 1 && !is_inside
    };
    grid.iter().filter(on_edge).map(|axis| axis.key.clone()).collect()
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// The score on the clients' validation examples after the last round of a run.
pub fn validation_score(summary: &Path) -> Result<f64> {
    #[derive(Deserialize)]
    struct Summary {
        scores: Scores,
    }
    #[derive(Deserialize)]
    struct Scores {
        client_validation: Option<BTreeMap<String, f64>>,
    }
    let shown = summary.display();
    let read: Summary = json_file::read(summary, "summary")?;
    let scores = read.scores.client_validation;
    let headline = scores.as_ref().and_then(headline_of);
    let (_, value) = headline.with_context(|| {
        format!("{shown}: found no client_validation score, expected one to tune by")
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rate: f64, validation: Option<f64>) -> Trial {
        Trial { assigned: vec![("work.rate".to_owned(), Value::Float(rate))], validation }
    }

    #[test]
    fn the_highest_validation_score_wins_and_failures_do_not() {
        let trials = [trial(0.1, Some(0.5)), trial(0.2, None), trial(0.3, Some(0.6))];
        assert_eq!(best(&trials), Some(2));
        assert_eq!(best(&[trial(0.1, Some(0.5)), trial(0.2, Some(0.5))]), Some(0));
        assert_eq!(best(&[trial(0.1, None), trial(0.2, Some(f64::NAN))]), None);
    }

    #[test]
    fn a_candidate_is_judged_by_validation_where_the_test_set_says_the_opposite() {
        let folder = tempfile::tempdir().expect("a folder");
        let judged = |name: &str, validation: f64, test: f64| {
            let file = folder.path().join(name);
            let summary = serde_json::json!({
                "score": { "name": "span_f1", "value": test, "on": "central_test" },
                "scores": {
                    "central_test": { "span_f1": test, "loss": 1.0 },
                    "client_test": { "span_f1": test, "loss": 1.0 },
                    "client_validation": { "span_f1": validation, "loss": 1.0 },
                },
            });
            std::fs::write(&file, summary.to_string()).expect("written");
            validation_score(&file).ok()
        };
        let trials = [trial(0.1, judged("low", 0.9, 0.1)), trial(0.2, judged("high", 0.2, 0.8))];
        assert_eq!(best(&trials), Some(0));
        assert_eq!(trials[0].validation, Some(0.9));
    }

    #[test]
    fn a_run_without_validation_examples_cannot_be_tuned_by() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("summary.json");
        std::fs::write(&file, r#"{"scores":{"central_test":{"span_f1":0.5}}}"#).expect("written");
        let error = validation_score(&file).expect_err("refused").to_string();
        assert!(error.contains("no client_validation score"), "{error}");
    }

    #[test]
    fn the_ends_of_a_grid_are_its_edges_in_any_order() {
        let values = [0.3, 0.1, 0.2].map(Value::Float).to_vec();
        let grid = [Axis { key: "work.rate".to_owned(), values }];
        let edges = |rate: f64| at_edge(&grid, &trial(rate, None).assigned);
        assert_eq!((edges(0.1).len(), edges(0.2).len(), edges(0.3).len()), (1, 0, 1));
    }
}
