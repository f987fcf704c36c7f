//! Published checkpoints against PyTorch and transformers, where they are beside this checkout.

use crate::agreement::{Agreement, Bound, HIDDEN, LOGITS};
use crate::golden::{self, CheckpointCase, Hidden, Logits};
use crate::step::{Answers, Step, names, tensor};
use crate::tiny::{check_outcome, check_probes};
use fedra_compute::{Device, Seed, Tensor};
use fedra_model::hf::Architecture;
use fedra_model::{ClassKind, Head, load};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
#[ignore = "needs ../shared/models/minilm-l6: tools/test-shared"]
fn minilm_answers_as_transformers_does() {
    let dir = golden::published("minilm-l6");
    for case in golden::cases("minilm.json") {
        println!("minilm-l6 {}", check(&dir, &case));
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn stories260k_answers_as_transformers_does() {
    let dir = golden::published("stories260k");
    for case in golden::cases("stories260k.json") {
        println!("stories260k {}", check(&dir, &case));
    }
}

#[track_caller]
fn check(dir: &Path, golden: &CheckpointCase) -> String {
    let case = &golden.case;
    let device = Device::cpu();
    let loaded = load(dir, case.head(), None, (&device, Seed(1))).unwrap();
    let family = loaded.model.config().family;
    let kind = match case.head() {
        Head::Sequence { .. } => ClassKind::Sequences,
        Head::Tokens { .. } => ClassKind::Tokens,
        Head::Language => ClassKind::Language,
        Head::Bare => ClassKind::Base,
    };
    let architecture = Architecture { family, kind };
    let names = names(&loaded.model, architecture);
    let fresh: BTreeSet<_> = loaded.report.fresh.iter().map(|fresh| fresh.id).collect();
    assert_eq!(fresh, golden.head.keys().map(|name| names[name]).collect());
    let mut step = Step {
        name: format!("{:?}", case.task),
        device,
        model: loaded.model,
        params: loaded.params,
        batch: case.batch(),
        answers: case.answers().unwrap_or(Answers::Classes(Vec::new())),
    };
    for (name, spec) in &golden.head {
        step.params.insert(names[name], tensor(&step.device, spec));
    }

    let mut agreement = Agreement::default();
    check_hidden(&mut agreement, &step, golden);
    check_probes(&mut agreement, &step, case);
    if let Some(expected) = &golden.logits {
        agreement.array(LOGITS, &step.logits().to_host(), expected, &step.name);
    }
    if let Some(expected) = &golden.logits_compact {
        check_logits(&mut agreement, &step, expected);
    }
    if case.loss.is_some() {
        let everything = step.everything();
        for outcome in [step.take(&everything), step.take_over_all_rows(&everything)] {
            check_outcome(&mut agreement, &step, architecture, (&outcome, case));
        }
    }
    format!("{}: {agreement}", step.name)
}

fn check_hidden(agreement: &mut Agreement, step: &Step, golden: &CheckpointCase) {
    let mut states = step.hidden_states();
    let last = step.last_hidden_state();
    states.push(last.clone());
    assert_eq!(states.len(), golden.hidden.len());
    for (stage, (found, expected)) in states.iter().zip(&golden.hidden).enumerate() {
        let what = format!("{}, stage {stage}", step.name);
        let Hidden { compact, first_tokens } = expected;
        agreement.compact(HIDDEN, &found.to_host(), compact, &what);
        for (row, values) in step.batch.packing().first_rows().into_iter().zip(first_tokens) {
            check_row(agreement, HIDDEN, (found, row as usize), values, &what);
        }
    }
    for (&row, values) in &golden.positions {
        let what = format!("{}, row {row}", step.name);
        check_row(agreement, HIDDEN, (&last, row), values, &what);
    }
    for (row, norm) in (0..).step_by(64).zip(&golden.row_norms) {
        let found = last.row_range(&step.device, row, 1).unwrap().sum_of_squares().sqrt() as f32;
        agreement.number(HIDDEN, found, *norm, format!("{}, norm of row {row}", step.name));
    }
}

/// The first values of a row, relative to the norm of all of it.
fn check_row(
    agreement: &mut Agreement,
    bound: Bound,
    (found, row): (&Tensor, usize),
    values: &[f64],
    what: &str,
) {
    let all = &found.to_host()[row * found.cols()..][..found.cols()];
    let norm = all.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    for (found, expected) in all.iter().zip(values) {
        agreement.note(bound, (f64::from(*found) - expected).abs() / norm, what);
    }
}

fn check_logits(agreement: &mut Agreement, step: &Step, expected: &Logits) {
    let logits = step.logits();
    let (host, name) = (logits.to_host(), &step.name);
    agreement.compact(LOGITS, &host, &expected.compact, name);
    let rows = || host.chunks_exact(logits.cols());
    for (row, first) in expected.first.iter().enumerate() {
        check_row(agreement, LOGITS, (&logits, row), first, name);
    }
    for ((row, argmax), max) in rows().zip(&expected.argmax).zip(&expected.max) {
        let largest = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(largest, *argmax, "{name}");
        agreement.number(LOGITS, row[largest], *max, name);
    }
    assert_eq!(logits.rows(), expected.argmax.len());
}
