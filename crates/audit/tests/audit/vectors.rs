//! The reference vectors of audit bounds, where they are at hand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use fedra_audit::{Confidence, OneRun, most_found};
use fedra_seed::Seed;
use serde_json::Value;

fn vectors(table: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/vectors/robust_and_audit_vectors.json");
    let text = fs::read_to_string(file).unwrap();
    let whole: Value = serde_json::from_str(&text).unwrap();
    let rows = whole["audit"][table].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "{table}");
    rows
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn count(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

#[track_caller]
fn close(found: f64, expected: f64, row: &Value) {
    // The reference halves its interval thirty times.
    assert!((found - expected).abs() < 1e-8 * expected.max(1.0), "found {found}: {row}");
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn most_found_under_a_guarantee_agrees_with_the_reference() {
    for row in vectors("max_TPR_at_FPR_for_eps_delta") {
        let found = most_found(number(&row, "eps"), number(&row, "delta"), number(&row, "fpr"));
        close(found, number(&row, "max_tpr"), &row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn one_run_bounds_agree_with_the_reference() {
    for row in vectors("one_run_eps_lower_bound(Steinke2023)") {
        let run = OneRun::new(count(&row, "m"), count(&row, "r"), count(&row, "v")).unwrap();
        let trust = Confidence::new(number(&row, "delta"), 1.0 - number(&row, "p")).unwrap();
        close(run.epsilon(trust), number(&row, "eps_lb"), &row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn canaries_in_gaussian_noise_give_the_bounds_of_the_reference() {
    for row in vectors("simulated_gradient_canary_audit") {
        let (sigma, canaries) = (number(&row, "sigma"), count(&row, "m") as usize);
        let guesses = count(&row, "r") as usize;
        let trust = Confidence::new(1e-5, 0.95).unwrap();
        let bound = |trial: u64| {
            let mut generator = Seed(9).with(trial).generator();
            let mut seen: Vec<(f64, bool)> = (0..canaries)
                .map(|_| {
                    let inside = generator.uniform() < 0.5;
                    (f64::from(u8::from(inside)) + sigma * generator.normal(), inside)
                })
                .collect();
            seen.sort_by(|left, right| right.0.total_cmp(&left.0));
            let top = seen[..guesses / 2].iter().filter(|(_, inside)| *inside).count();
            let bottom = seen[canaries - guesses / 2..].iter().filter(|(_, inside)| !*inside);
            let right = (top + bottom.count()) as u64;
            OneRun::new(canaries as u64, guesses as u64, right).unwrap().epsilon(trust)
        };
        let bounds: Vec<f64> = (0..20).map(bound).collect();
        let mean = bounds.iter().sum::<f64>() / bounds.len() as f64;
        let spread = number(&row, "eps_lb_max") - number(&row, "eps_lb_min");
        let expected = number(&row, "eps_lb_mean");
        assert!((mean - expected).abs() < 0.25 * spread, "found {mean}: {row}");
        let claim = number(&row, "true_eps_delta1e5");
        assert!(bounds.iter().all(|bound| *bound < claim), "{bounds:?}: {row}");
    }
}
