//! Losses whose rows and sequences do not all count the same.

use crate::agreement::relative_f32;
use crate::step::{Answers, Step};
use fedra_compute::{Gradients, LossWeights, RowWeights, Tape, Tensor};
use fedra_model::{Batch, Head, Targets, Weighted};
use fedra_plan::Scope;

/// Sums of the same terms in another order.
const REGROUPED: f64 = 1e-4;

fn take(step: &Step, weights: LossWeights<'_>) -> (f32, Gradients) {
    take_with(step, &step.everything(), weights)
}

/// Loss and gradients of a scope.
pub fn take_with(step: &Step, scope: &Scope, weights: LossWeights<'_>) -> (f32, Gradients) {
    let mut tape = Tape::new(&step.device);
    let targets = Weighted { targets: step.answers.targets(), weights };
    let loss = step.model.loss(&mut tape, step.params.training(scope), &step.batch, targets);
    let loss = loss.unwrap();
    let gradients = tape.backward(&[(&loss, Tensor::scalar(&step.device, 1.0))]).unwrap();
    (loss.tensor.item(), gradients)
}

/// One sequence of a step by itself.
pub fn alone(step: &Step, number: usize) -> Step {
    let rows = step.batch.packing().boundaries().ranges().nth(number).unwrap();
    let ids = &step.batch.ids()[rows.clone()];
    let segments = step.batch.segments()[rows.clone()].to_vec();
    let mut batch = Batch::new(&[ids]).unwrap().with_segments(segments).unwrap();
    let pixels = step.batch.pixels_of(number);
    if !pixels.is_empty() {
        batch = batch.with_pixels(pixels.to_vec()).unwrap();
    }
    let by_sequence = matches!(step.model.head(), Head::Sequence { .. });
    let answers = match &step.answers {
        Answers::Classes(classes) if by_sequence => Answers::Classes(vec![classes[number]]),
        Answers::Classes(classes) => Answers::Classes(classes[rows].to_vec()),
        Answers::Labels(labels) => {
            let each = labels.len() / step.batch.packing().sequences();
            Answers::Labels(labels[number * each..][..each].to_vec())
        }
    };
    Step { batch, answers, ..step.clone() }
}

pub fn counted(step: &Step) -> usize {
    match step.answers.targets() {
        Targets::Classes(classes) => classes.iter().flatten().count(),
        Targets::Labels(labels) => labels.len(),
    }
}

#[test]
fn a_weight_on_one_sequence_alone_gives_the_gradient_of_that_sequence() {
    for step in Step::every_kind() {
        for number in 0..step.batch.packing().sequences() {
            let one = alone(&step, number);
            if counted(&one) == 0 {
                continue;
            }
            let mut weights = vec![0.0; step.batch.packing().sequences()];
            weights[number] = 0.75;
            let rows = RowWeights::PerSequence(&weights);
            let (found, gradients) =
                take(&step, LossWeights { rows, divisor: 3.0, ..LossWeights::SUM });
            let (sum, expected) = take(
                &one,
                LossWeights { rows: RowWeights::Uniform, divisor: 4.0, ..LossWeights::SUM },
            );
            let what = format!("{} sequence {number}", step.name);
            assert!((found - sum).abs() <= 1e-5 * sum.abs().max(1.0), "{what}: {found}, not {sum}");
            let size = expected.sum_of_squares().sqrt();
            for (id, gradient) in expected.iter() {
                let (mine, theirs) = (gradients.get(id).unwrap().to_dense(), gradient.to_dense());
                let off: f64 =
                    mine.iter().zip(&theirs).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                assert!(off.sqrt() <= REGROUPED * size, "{what}: {id}");
            }
        }
    }
}

#[test]
fn the_mean_is_the_sum_that_the_caller_divides() {
    for step in Step::every_tiny() {
        let whole = step.take(&step.everything());
        let (mean, gradients) = take(&step, LossWeights::mean(counted(&step)));
        assert_eq!(mean, whole.loss, "{}", step.name);
        let (sum, _) = take(&step, LossWeights::SUM);
        let off = (sum / counted(&step) as f32 - mean).abs();
        assert!(off <= 1e-6 * mean.abs().max(1.0), "{}", step.name);
        for (id, gradient) in whole.gradients.iter() {
            let found = gradients.get(id).unwrap().to_dense();
            assert_eq!(found, gradient.to_dense(), "{} {id}", step.name);
        }
    }
}

#[test]
fn a_weight_for_each_row_is_that_of_its_sequence_spread_over_it() {
    for step in Step::every_tiny() {
        let by_sequence: Vec<f32> =
            (0..step.batch.packing().sequences()).map(|i| 0.5 + i as f32).collect();
        let by_row = match step.model.head() {
            Head::Sequence { .. } => by_sequence.clone(),
            Head::Tokens { .. } | Head::Language | Head::Bare => {
                step.batch.packing().boundaries().spread(&by_sequence)
            }
        };
        let divisor = 8.0;
        let (rows, a) = take(
            &step,
            LossWeights { rows: RowWeights::PerRow(&by_row), divisor, ..LossWeights::SUM },
        );
        let (sequences, b) = take(
            &step,
            LossWeights {
                rows: RowWeights::PerSequence(&by_sequence),
                divisor,
                ..LossWeights::SUM
            },
        );
        assert_eq!(rows, sequences, "{}", step.name);
        for (id, gradient) in a.iter() {
            let off = relative_f32(&b.get(id).unwrap().to_dense(), &gradient.to_dense());
            assert!(off == 0.0, "{} {id}: {off:e}", step.name);
        }
    }
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let steps = Step::every_tiny();
    let tokens =
        steps.iter().find(|step| matches!(step.model.head(), Head::Tokens { .. })).unwrap();
    let sequences = tokens.batch.packing().sequences();
    let check = |weights: LossWeights<'_>, expected: &str| {
        let mut tape = Tape::new(&tokens.device);
        let targets = Weighted { targets: tokens.answers.targets(), weights };
        let loss = tokens.model.loss(&mut tape, tokens.params.frozen(), &tokens.batch, targets);
        let message = loss.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(
        LossWeights { rows: RowWeights::PerRow(&[1.0]), divisor: 1.0, ..LossWeights::SUM },
        "number of weights is 1, expected",
    );
    let expected = format!("number of sequence weights is 1, expected {sequences}");
    check(
        LossWeights { rows: RowWeights::PerSequence(&[1.0]), divisor: 1.0, ..LossWeights::SUM },
        &expected,
    );
    check(LossWeights::mean(0), "divisor of a loss is 0, expected a positive number");
    let nan = vec![f32::NAN; sequences];
    check(
        LossWeights { rows: RowWeights::PerSequence(&nan), divisor: 1.0, ..LossWeights::SUM },
        "weight of a loss is NaN",
    );
}
