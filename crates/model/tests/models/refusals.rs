//! Refusals: what a model cannot run is said in words, with what was found and what was expected.

use crate::step::{Answers, Step};
use fedra_compute::Tape;
use fedra_model::{BlockProbe, Head, Model, ModelError, Reading, Relevant, Targets};

fn loss(step: &Step) -> Result<f32, ModelError> {
    let mut tape = Tape::new(&step.device);
    let (weights, targets) = (step.params.frozen(), step.answers.targets());
    Ok(step.model.loss(&mut tape, weights, &step.batch, targets)?.tensor.item())
}

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T, ModelError>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[test]
fn a_token_outside_the_vocabulary() {
    for step in Step::every_tiny() {
        let words = step.params.get("embedding.token.weight".parse().unwrap()).unwrap().rows();
        let step = step.on(&[vec![1, 2], vec![3, words as u32]]);
        let expected = format!(
            "embedding: token {words} at place 3 is out of range, expected less than {words}"
        );
        let mut tape = Tape::new(&step.device);
        let logits = step.model.logits(&mut tape, step.params.frozen(), &step.batch);
        check(logits, &expected);
    }
}

#[test]
fn a_sequence_longer_than_the_positions() {
    for step in Step::every_tiny() {
        assert_eq!(step.model.longest(), 32);
        let hidden = step.on(&[vec![1; 32]]).hidden_states();
        assert_eq!(hidden[0].rows(), 32);
        let long = step.on(&[vec![1], vec![1; 33]]);
        let expected = "batch: length of sequence is 33, expected at most 32";
        check(loss(&long), expected);
        let (mut tape, weights) = (Tape::new(&long.device), long.params.frozen());
        let constant = tape.constant(hidden[0].clone());
        let run = long.model.run_blocks(
            &mut tape,
            weights,
            constant,
            long.batch.packing(),
            0..1,
            &Reading::All,
        );
        check(run, expected);
    }
}

#[test]
fn blocks_that_the_model_does_not_have() {
    let step = &Step::every_tiny()[0];
    let run = |range| {
        let mut tape = Tape::new(&step.device);
        let hidden = tape.constant(step.hidden_states()[0].clone());
        let weights = step.params.frozen();
        step.model.run_blocks(
            &mut tape,
            weights,
            hidden,
            step.batch.packing(),
            range,
            &Reading::All,
        )
    };
    let (mut tape, targets) = (Tape::new(&step.device), step.answers.targets());
    let hidden = tape.constant(step.hidden_states()[0].clone());
    let weights = step.params.frozen();
    let loss = step.model.loss_from(&mut tape, weights, (hidden, 4), &step.batch, targets);
    check(loss, "block range: found 4..3, expected inside 0..3");
    check(run(2..4), "block range: found 2..4, expected inside 0..3");
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = 2..1;
    check(run(reversed), "block range: found 2..1, expected inside 0..3");
}

#[test]
fn targets_that_do_not_fit_the_head() {
    for step in Step::every_tiny() {
        let with = |answers| loss(&Step { answers, ..step.clone() });
        let classes = |count| Answers::Classes(vec![Some(0); count]);
        match step.model.head() {
            Head::Sequence { .. } => {
                let expected = "cross-entropy: number of targets is 3, expected 4";
                check(with(classes(3)), expected);
                let expected = "multi-label loss: number of targets is 19, expected 20";
                check(with(Answers::Labels(vec![0.0; 19])), expected);
                let expected =
                    "cross-entropy: label 5 at place 3 is out of range, expected less than 5";
                check(with(Answers::Classes(vec![Some(0), None, Some(1), Some(5)])), expected);
            }
            Head::Tokens { .. } | Head::Language => {
                let expected =
                    "batch: number of targets is 4 for 23 tokens, expected one class per token";
                check(with(classes(4)), expected);
                let found = format!("{:?}", step.model.head());
                let expected = format!(
                    "batch: head for these targets is {found}, expected one class per token"
                );
                check(with(Answers::Labels(vec![0.0; 4])), &expected);
            }
            Head::Bare => unreachable!("every task has a head"),
        }
        let none = Answers::Classes(vec![None; 23]);
        if !matches!(step.model.head(), Head::Sequence { .. }) {
            check(with(none), "cross-entropy: set of labelled rows is empty");
        }
    }
}

#[test]
fn a_loss_without_a_head_or_a_head_without_classes() {
    let step = &Step::every_tiny()[0];
    let bare = Model::new(step.model.config().clone(), Head::Bare, None).unwrap();
    let bare = Step { model: bare, ..step.clone() };
    check(loss(&bare), "batch: head for these targets is Bare, expected a head");
    for head in [Head::Sequence { classes: 0, pooler: true }, Head::Tokens { classes: 0 }] {
        let model = Model::new(step.model.config().clone(), head, None);
        check(model, "number of classes: found 0, expected at least 1");
    }
}

#[test]
fn rows_that_a_block_cannot_read() {
    for step in Step::every_tiny() {
        let read = |rows: &[u32]| {
            let mut tape = Tape::new(&step.device);
            let hidden = tape.constant(step.hidden_states()[0].clone());
            let (reading, all) = (Reading::Rows(rows.to_vec()), 0..step.model.blocks());
            let weights = step.params.frozen();
            step.model.run_blocks(&mut tape, weights, hidden, step.batch.packing(), all, &reading)
        };
        // The sequences start in rows 0, 7, 8 and 20.
        let missing = "batch: number of rows read from a sequence is 0, expected at least 1";
        check(read(&[0, 7, 20]), missing);
        check(read(&[7, 0, 8, 20]), missing);
        assert!(read(&[0, 7, 8, 23]).is_err());
        assert!(read(&[0, 7, 8, 20, 23]).is_err());
        let gap = read(&[0, 2, 7, 8, 20]);
        if step.model.is_decoder() {
            check(gap, "batch: number of rows read from a decoder is 5, expected 4");
        } else {
            assert_eq!(gap.unwrap().tensor.rows(), 5);
        }
    }
}

#[test]
fn marks_of_another_batch() {
    let step = &Step::every_tiny()[0];
    let mut probe = BlockProbe::new(Relevant::Marked(vec![true; 22]));
    let mut tape = Tape::new(&step.device);
    let probed = step.model.probe_blocks(&mut tape, step.params.frozen(), &step.batch, &mut probe);
    check(probed, "batch: number of marks is 22, expected 23");
    assert!(probe.by_example().is_empty());
}

#[test]
fn a_parameter_that_is_not_there() {
    let mut step = Step::every_tiny().swap_remove(0);
    step.params.remove("block.1.up.bias".parse().unwrap());
    let targets = Targets::Classes(&[Some(0); 4]);
    let mut tape = Tape::new(&step.device);
    let loss = step.model.loss(&mut tape, step.params.frozen(), &step.batch, targets);
    check(loss, "parameter block.1.up.bias is not among the parameters");
}
