//! Tiny models of every task against PyTorch and transformers: every number they answered.

use crate::agreement::{Agreement, HIDDEN, LOGITS, LOSS, PROBE};
use crate::golden::{self, Case, TinyCase};
use crate::step::{Outcome, Step, is_transposed, tensors, transpose};
use fedra_compute::Tape;
use fedra_model::hf::Architecture;
use fedra_model::{BlockProbe, Relevant};

#[test]
fn tiny_bert_answers_as_transformers_does_in_every_task() {
    println!("{}", check("tiny_bert.json", 4).join("\n"));
}

#[test]
fn tiny_llama_answers_as_transformers_does_in_every_task() {
    println!("{}", check("tiny_llama.json", 4).join("\n"));
}

#[test]
fn every_family_answers_as_transformers_does() {
    println!("{}", check("families.json", 64).join("\n"));
}

#[track_caller]
fn check(file: &str, tasks: usize) -> Vec<String> {
    let cases: Vec<TinyCase> = golden::cases(file);
    assert_eq!(cases.len(), tasks);
    let check = |golden: &TinyCase| {
        let step = Step::tiny(golden);
        let mut agreement = Agreement::default();
        check_forward(&mut agreement, &step, golden);
        check_probes(&mut agreement, &step, &golden.case);
        let architecture = step.model.config().architecture().unwrap();
        for outcome in [step.take(&step.everything()), step.take_over_all_rows(&step.everything())]
        {
            check_outcome(&mut agreement, &step, architecture, (&outcome, &golden.case));
        }
        format!("{}: {agreement}", step.name)
    };
    cases.iter().map(check).collect()
}

fn check_forward(agreement: &mut Agreement, step: &Step, golden: &TinyCase) {
    let name = &step.name;
    let logits = step.logits();
    assert_eq!(<[usize; 2]>::from(logits.shape()), golden.case.logits_shape.unwrap(), "{name}");
    agreement.array(LOGITS, &logits.to_host(), &golden.logits, name);
    let last = step.last_hidden_state();
    agreement.array(HIDDEN, &last.to_host(), &golden.last_hidden_state, name);
    let Some(hidden) = &golden.hidden else { return };
    let states = step.hidden_states();
    assert_eq!(states.len(), hidden.len(), "{name}");
    for (stage, (found, expected)) in states.iter().zip(hidden).enumerate() {
        let what = format!("{name}, stage {stage}");
        agreement.array(HIDDEN, &found.to_host(), expected, what);
    }
}

/// Loss and every gradient.
pub fn check_outcome(
    agreement: &mut Agreement,
    step: &Step,
    architecture: Architecture,
    (outcome, case): (&Outcome, &Case),
) {
    let name = &step.name;
    agreement.number(LOSS, outcome.loss, case.loss.unwrap(), name);
    let (tensors, whole) = (tensors(&step.model, architecture), case.gradient_norm.unwrap());
    assert_eq!(outcome.gradients.iter().len(), step.model.layout().len(), "{name}");
    assert_eq!(tensors.len(), case.gradients.len(), "{name}");
    for entry in &case.gradients {
        let gradient = |id| outcome.gradients.get(id).unwrap().to_dense();
        let ids = &tensors[&entry.name];
        let mut found: Vec<f32> = ids.iter().flat_map(|id| gradient(*id)).collect();
        if is_transposed(&step.model, &entry.name) {
            found = transpose(&found, entry.shape[0]);
        }
        let what = format!("{name}, {}", entry.name);
        agreement.gradient(&found, (&entry.compact, &entry.first), whole, what);
    }
}

/// The attention scores of every block and example.
pub fn check_probes(agreement: &mut Agreement, step: &Step, case: &Case) {
    let odd = step.batch.packing().positions().iter().map(|position| position % 2 == 1).collect();
    let ones: Vec<Vec<f64>> = vec![vec![1.0; case.ids.len()]; step.model.blocks()];
    for (relevant, expected) in [
        (Relevant::First, Some(&case.attention.first_token)),
        (Relevant::Marked(odd), Some(&case.attention.odd_positions)),
        (Relevant::FromLast, case.attention.last_query.as_ref()),
        (Relevant::All, Some(&ones)),
    ] {
        let Some(expected) = expected else { continue };
        let mut probe = BlockProbe::new(relevant.clone());
        let mut tape = Tape::new(&step.device);
        step.model.probe_blocks(&mut tape, step.params.frozen(), &step.batch, &mut probe).unwrap();
        assert_eq!(probe.by_example().len(), expected.len(), "blocks");
        for (block, (found, expected)) in probe.by_example().iter().zip(expected).enumerate() {
            assert_eq!(found.len(), expected.len(), "examples");
            for (f, e) in found.iter().zip(expected) {
                let what = format!("{}, {relevant:?}, block {block}", step.name);
                agreement.note(PROBE, (f - e).abs(), what);
            }
        }
    }
}

#[test]
fn scores_of_several_batches_are_those_of_one() {
    let step = &Step::every_tiny()[0];
    let score = |batches: &[Vec<Vec<u32>>]| {
        let mut probe = BlockProbe::new(Relevant::First);
        for sequences in batches {
            let step = step.on(sequences);
            let (mut tape, weights) = (Tape::new(&step.device), step.params.frozen());
            step.model.probe_blocks(&mut tape, weights, &step.batch, &mut probe).unwrap();
        }
        (probe.by_example().to_vec(), probe.means())
    };
    let sequences = step.sequences();
    let (first, rest) = sequences.split_at(1);
    assert_eq!(score(&[first.to_vec(), rest.to_vec()]), score(std::slice::from_ref(&sequences)));
}
