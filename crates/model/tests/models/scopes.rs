//! Scopes: a step trains exactly what it is told to, and what it trains does not depend on the rest.

use crate::agreement::relative_f32;
use crate::step::{Step, bits};
use fedra_compute::{Optimiser, Solver, Tape};
use fedra_plan::{Layer, Part, Role, Scope};

fn layers(step: &Step) -> Vec<Layer> {
    let blocks = (0..step.model.layout().blocks()).map(Layer::Block);
    std::iter::once(Layer::Embedding).chain(blocks).chain([Layer::Head]).collect()
}

/// Every set of layers but the empty one.
fn scopes(step: &Step) -> impl Iterator<Item = Scope> {
    let layers = layers(step);
    (1..1u32 << layers.len()).map(move |set| {
        let chosen = layers.iter().enumerate().filter(move |(i, _)| set >> i & 1 == 1);
        Scope::of_layers(step.model.layout(), chosen.map(|(_, layer)| *layer))
    })
}

#[test]
fn every_set_of_layers_gets_exactly_its_gradients_with_the_bits_of_the_whole() {
    for step in Step::every_kind() {
        let whole = step.take(&step.everything());
        for scope in scopes(&step) {
            let outcome = step.take(&scope);
            let trained: Scope = outcome.gradients.iter().map(|(id, _)| id).collect();
            assert_eq!(trained, scope, "{}", step.name);
            assert_eq!(outcome.loss.to_bits(), whole.loss.to_bits(), "{}", step.name);
            whole.assert_contains(&outcome, &step.name);
        }
    }
}

/// A frozen weight beside a trained bias takes another way to the same sum.
const OTHER_WAY: f64 = 1e-5;

#[test]
fn every_role_and_part_trains_alone() {
    for step in Step::every_kind() {
        let whole = step.take(&step.everything());
        let norm = whole.gradients.sum_of_squares().sqrt();
        for id in step.model.layout().ids() {
            let outcome = step.take(&Scope::from_iter([id]));
            assert_eq!(outcome.gradients.iter().map(|(id, _)| id).collect::<Vec<_>>(), [id]);
            let (found, expected) = (&outcome.gradients, &whole.gradients);
            let (found, expected) = (found.get(id).unwrap(), expected.get(id).unwrap());
            let (found, expected) = (found.to_dense(), expected.to_dense());
            let zero = id.role == Role::Key && id.part == Part::Bias;
            let off = if zero {
                found.iter().fold(0.0, |most: f64, x| most.max(f64::from(x.abs()) / norm))
            } else {
                relative_f32(&found, &expected)
            };
            assert!(off < OTHER_WAY, "{}, {id}: {off:.1e}", step.name);
        }
    }
}

#[test]
fn an_empty_scope_computes_the_loss_and_records_nothing() {
    for step in Step::every_kind() {
        let mut tape = Tape::new(&step.device);
        let targets = step.answers.targets();
        let loss = step.model.loss(&mut tape, step.params.frozen(), &step.batch, targets).unwrap();
        assert_eq!(loss.tensor.item(), step.take(&step.everything()).loss, "{}", step.name);
        let one = fedra_compute::Tensor::scalar(&step.device, 1.0);
        let message = tape.backward(&[(&loss, one)]).unwrap_err().to_string();
        assert!(message.contains("without any trainable part"), "{message}");
    }
}

#[test]
fn what_is_frozen_stays_identical_under_adamw() {
    for step in Step::every_kind() {
        let frozen = Scope::of_roles(step.model.layout(), [Role::Query, Role::Key]);
        let frozen = frozen | Scope::of_layers(step.model.layout(), [Layer::Embedding]);
        let scope = step.everything() - frozen.clone();
        let mut after = step.params.clone();
        let mut optimiser = Optimiser::new(&step.device, Solver::adamw(1e-2, 0.1)).unwrap();
        optimiser.step(&mut after, &step.take(&scope).gradients).unwrap();
        for (id, tensor) in after.iter() {
            let before = step.params.get(id).unwrap();
            assert_eq!(tensor.same_storage(before), frozen.contains(id), "{}, {id}", step.name);
            let same = bits(&tensor.to_host()) == bits(&before.to_host());
            assert_eq!(same, frozen.contains(id), "{}, {id}", step.name);
        }
    }
}
