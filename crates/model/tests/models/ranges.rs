//! Any range of blocks: cutting a model anywhere changes no bit, forward or backward.

use crate::step::{Outcome, Step, bits};
use fedra_compute::{Tape, Tensor};
use fedra_model::{Model, Reading};
use std::ops::Range;

fn run(step: &Step, hidden: Tensor, range: Range<usize>, reading: &Reading) -> Tensor {
    let mut tape = Tape::new(&step.device);
    let (hidden, weights) = (tape.constant(hidden), step.params.frozen());
    let model: &Model = &step.model;
    model
        .run_blocks(&mut tape, weights, hidden, step.batch.packing(), range, reading)
        .unwrap()
        .tensor
}

#[test]
fn blocks_in_two_runs_give_the_bits_of_one_run() {
    for step in Step::every_tiny() {
        let (embedded, blocks) = (step.hidden_states()[0].clone(), step.model.blocks());
        let whole = run(&step, embedded.clone(), 0..blocks, &Reading::All);
        for cut in 0..=blocks {
            let near = run(&step, embedded.clone(), 0..cut, &Reading::All);
            let far = run(&step, near, cut..blocks, &Reading::All);
            assert_eq!(bits(&far.to_host()), bits(&whole.to_host()), "{} at {cut}", step.name);
        }
    }
}

#[test]
fn rows_read_alone_are_the_rows_of_everything() {
    for step in Step::every_tiny() {
        let (embedded, blocks) = (step.hidden_states()[0].clone(), step.model.blocks());
        let whole = run(&step, embedded.clone(), 0..blocks, &Reading::All);
        for rows in [step.batch.packing().first_rows(), step.batch.packing().last_rows()] {
            let read = run(&step, embedded.clone(), 0..blocks, &Reading::Rows(rows.clone()));
            assert_eq!(read.rows(), rows.len());
            for (place, row) in rows.iter().enumerate() {
                let at = |tensor: &Tensor, row| {
                    bits(&tensor.row_range(&step.device, row, 1).unwrap().to_host())
                };
                assert_eq!(at(&read, place), at(&whole, *row as usize), "{}", step.name);
            }
        }
    }
}

/// A step over any number of parties: each runs its blocks on a tape of its own, hands on hidden
/// states, and sends back the gradient it gets.
fn take_in_parts(step: &Step, cuts: &[usize]) -> Outcome {
    let (model, everything) = (&step.model, step.everything());
    let weights = step.params.training(&everything);
    let mut tape = Tape::new(&step.device);
    let mut hidden = model.embed(&mut tape, weights, &step.batch).unwrap();
    let mut first = 0;
    let mut parties = Vec::new();
    for &cut in cuts {
        let sent = model
            .run_blocks(
                &mut tape,
                weights,
                hidden.clone(),
                step.batch.packing(),
                first..cut,
                &Reading::All,
            )
            .unwrap();
        let mut next = Tape::new(&step.device);
        let received = next.input(sent.tensor.clone());
        parties.push((std::mem::replace(&mut tape, next), sent, received.clone()));
        (hidden, first) = (received, cut);
    }
    let targets = step.answers.targets();
    let loss = model.loss_from(&mut tape, weights, (hidden, first), &step.batch, targets).unwrap();
    let Outcome { loss, mut gradients } = step.backward(tape, &loss);
    let mut behind = gradients.clone();
    for (tape, sent, received) in parties.into_iter().rev() {
        let returned = behind.of_input(&received).unwrap().clone();
        behind = tape.backward(&[(&sent, returned)]).unwrap();
        gradients.add(behind.clone()).unwrap();
    }
    Outcome { loss, gradients }
}

#[test]
fn a_step_across_any_two_cuts_has_the_bits_of_a_step_in_one_place() {
    for step in Step::every_tiny() {
        let everything = step.everything();
        let (whole, all_rows) = (step.take(&everything), step.take_over_all_rows(&everything));
        let blocks = step.model.blocks();
        for first in 0..=blocks {
            for second in first..=blocks {
                // Whoever sends the last block's output does not know which rows are read.
                let expected = if second == blocks { &all_rows } else { &whole };
                let what = format!("{} cut at {first} and {second}", step.name);
                take_in_parts(&step, &[first, second]).assert_same(expected, &what);
                if first == second {
                    take_in_parts(&step, &[first]).assert_same(expected, &what);
                }
            }
        }
    }
}
