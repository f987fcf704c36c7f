//! Whole models by example: one backward pass against one for each sequence.

use crate::lora::adapted;
use crate::step::Step;
use crate::weighted::{alone, counted, take_with};
use fedra_compute::{Clipping, Gradients, LossWeights, RowWeights, Tape, Tensor};
use fedra_model::Weighted;
use fedra_plan::{Layer, Part, Scope};

/// Largest difference relative to the norm of what was expected.
const NEAR: f64 = 1e-5;

pub fn check(step: &Step, scope: &Scope) {
    let sequences = step.batch.packing().sequences();
    let weights: Vec<f32> = (0..sequences).map(|i| 0.25 + 0.5 * i as f32).collect();
    let rows = RowWeights::PerSequence(&weights);
    let targets = Weighted {
        targets: step.answers.targets(),
        weights: LossWeights { rows, divisor: 1.0, ..LossWeights::SUM },
    };
    let mut tape = Tape::by_example(&step.device, &step.batch.packing().boundaries());
    let trained = step.params.training(scope);
    let loss = step.model.loss(&mut tape, trained, &step.batch, targets).unwrap();
    let one = Tensor::scalar(&step.device, 1.0);
    let found = tape.backward_by_example(&[(&loss, one)]).unwrap();
    let alone: Vec<Gradients> = (0..sequences)
        .map(|number| {
            let example = alone(step, number);
            if counted(&example) == 0 {
                return Gradients::default();
            }
            let rows = RowWeights::PerSequence(&weights[number..=number]);
            take_with(&example, scope, LossWeights { rows, divisor: 1.0, ..LossWeights::SUM }).1
        })
        .collect();
    for (example, alone) in alone.iter().enumerate() {
        let total = alone.sum_of_squares().sqrt();
        let what = format!("{} example {example}", step.name);
        assert!((found.square(example).sqrt() - total).abs() <= NEAR * total, "{what}");
        for layer in found.layers() {
            let here = alone.iter().filter(|(id, _)| id.layer == layer);
            let expected: f64 = here.map(|(_, gradient)| gradient.values().sum_of_squares()).sum();
            let apart = (found.square_at(layer, example).sqrt() - expected.sqrt()).abs();
            assert!(apart <= NEAR * expected.sqrt() + 1e-7 * total, "{what} at {layer:?}: {apart}");
        }
    }
    let clip = 0.5 * found.square(0).sqrt().max(1e-3);
    let factors = Clipping::Flat(clip).factors(&found);
    let sum = found.weighted_sum(|layer, example| factors.at(layer, example));
    let size = sum.sum_of_squares().sqrt();
    for (id, gradient) in sum.iter() {
        let found = gradient.to_dense();
        let mut expected = vec![0.0; found.len()];
        for (example, alone) in alone.iter().enumerate() {
            let Some(gradient) = alone.get(id) else { continue };
            let factor = f64::from(factors.at(id.layer, example));
            let dense = gradient.to_dense();
            expected.iter_mut().zip(&dense).for_each(|(e, x)| *e += factor * f64::from(*x));
        }
        let apart: f64 =
            found.iter().zip(&expected).map(|(x, y)| (f64::from(*x) - y).powi(2)).sum();
        let norm: f64 = expected.iter().map(|x| x * x).sum();
        let bound = NEAR * norm.sqrt() + 1e-6 * size;
        assert!(apart.sqrt() <= bound, "{} {id}: {} of {}", step.name, apart.sqrt(), norm.sqrt());
    }
    let reached = alone.iter().flat_map(|alone| alone.iter().map(|(id, _)| id));
    assert_eq!(sum.iter().map(|(id, _)| id).collect::<Scope>(), reached.collect::<Scope>());
}

#[test]
fn every_task_of_every_model_can_be_told_apart_by_example() {
    for step in Step::every_kind() {
        check(&step, &step.everything());
        for layer in [Layer::Embedding, Layer::Block(0), Layer::Head] {
            let scope = Scope::of_layers(step.model.layout(), [layer]);
            if !scope.is_empty() {
                check(&step, &scope);
            }
        }
    }
}

#[test]
fn adapters_can_be_told_apart_by_example() {
    for step in Step::every_kind() {
        let step = adapted(&step, 0.2);
        check(&step, &step.everything());
        let adapters = step.model.layout().iter().map(|(id, _)| id);
        let adapters = adapters.filter(|id| matches!(id.part, Part::LoraA | Part::LoraB)).collect();
        check(&step, &adapters);
    }
}
