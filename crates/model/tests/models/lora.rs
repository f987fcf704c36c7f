//! LoRA: an adapted model starts as its base, is its base with `W + s B A` in every place, and
//! trains as that says.

use crate::agreement::relative_f32;
use crate::formula::Spec;
use crate::step::{Step, bits, tensor};
use fedra_compute::{Optimiser, Params, Seed, Solver, Tensor};
use fedra_model::hf::{Companions, Precision};
use fedra_model::{Adapters, Model, Saving, load, save};
use fedra_plan::{ParamId, Part, Role, Scope};

const RANK: usize = 3;
/// Not a power of two times the rank, so that a forgotten scale shows.
const ALPHA: f32 = 2.1;

/// The step with an adapter on every projection of every block; A is by formula, B is `scale` times
/// that.
pub fn adapted(base: &Step, scale: f64) -> Step {
    let gated = base.model.config().mlp.gated;
    let roles = Adapters::ROLES.into_iter().filter(|role| gated || *role != Role::Gate);
    adapted_on(base, roles, scale)
}

/// The same on these roles.
pub fn adapted_on(base: &Step, roles: impl IntoIterator<Item = Role>, scale: f64) -> Step {
    let adapters = Adapters::new(RANK, ALPHA, roles).unwrap();
    let model = Model::new(base.model.config().clone(), base.model.head(), Some(adapters)).unwrap();
    let mut params = base.params.clone();
    for ((id, shape), seed) in model.layout().iter().zip(1000..) {
        let scale = match id.part {
            Part::LoraA => 0.3,
            Part::LoraB => scale,
            Part::Weight | Part::Bias | Part::Magnitude => continue,
        };
        let spec = Spec { shape: shape.dims().to_vec(), seed, scale, offset: 0.0 };
        params.insert(id, tensor(&base.device, &spec));
    }
    Step { model, params, ..base.clone() }
}

/// The same with magnitudes, up to `scale` beside the norms that the weights' rows have.
pub fn decomposed(base: &Step, scale: f64) -> Step {
    decomposed_from(base, adapted(base, scale), scale)
}

/// The same of a step that has adapters already.
pub fn decomposed_from(base: &Step, adapted: Step, scale: f64) -> Step {
    let adapters = adapted.model.adapters().cloned().map(Adapters::with_magnitudes);
    let model = Model::new(base.model.config().clone(), base.model.head(), adapters).unwrap();
    let mut params = adapted.params.clone();
    let magnitudes = model.layout().iter().filter(|(id, _)| id.part == Part::Magnitude);
    for ((id, shape), seed) in magnitudes.zip(3000..) {
        let spec = Spec { shape: shape.dims().to_vec(), seed, scale, offset: 1.0 };
        let norms = params.get(beside(id, Part::Weight)).unwrap().row_norms();
        let values: Vec<f32> = spec.values().iter().zip(&norms).map(|(x, norm)| x * norm).collect();
        params.insert(id, Tensor::from_slice(&base.device, 1, values.len(), &values).unwrap());
    }
    Step { model, params, ..adapted }
}

fn beside(id: ParamId, part: Part) -> ParamId {
    ParamId::new(id.layer, id.role, part)
}

/// `left right` in f64, both row by row.
fn product(left: &[f64], right: &[f64], inner: usize) -> Vec<f64> {
    let cols = right.len() / inner;
    let row = |row: &[f64]| {
        let mut sums = vec![0.0; cols];
        for (x, from) in row.iter().zip(right.chunks_exact(cols)) {
            sums.iter_mut().zip(from).for_each(|(sum, y)| *sum += x * y);
        }
        sums
    };
    left.chunks_exact(inner).flat_map(row).collect()
}

fn transposed(values: &[f64], cols: usize) -> Vec<f64> {
    (0..cols).flat_map(|col| values.iter().skip(col).step_by(cols).copied()).collect()
}

fn wide(tensor: &Tensor) -> Vec<f64> {
    tensor.to_host().iter().copied().map(f64::from).collect()
}

/// The base model with every adapter added to its weight, in f64.
pub fn merged(base: &Step, adapted: &Step) -> Step {
    let scale = f64::from(ALPHA) / RANK as f64;
    let merge = |(id, weight): (ParamId, &Tensor)| {
        let of = |part| adapted.params.get(beside(id, part));
        let (Part::Weight, Ok(a), Ok(b)) = (id.part, of(Part::LoraA), of(Part::LoraB)) else {
            return (id, weight.clone());
        };
        let correction = product(&wide(b), &wide(a), RANK);
        let sum = wide(weight).into_iter().zip(correction).map(|(w, c)| w + scale * c);
        let (mut sum, (rows, cols)) = (sum.collect::<Vec<f64>>(), weight.shape());
        if let Ok(magnitudes) = of(Part::Magnitude) {
            for (row, magnitude) in sum.chunks_exact_mut(cols).zip(wide(magnitudes)) {
                let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
                for x in row {
                    *x *= magnitude / norm;
                }
            }
        }
        let sum: Vec<f32> = sum.iter().map(|x| *x as f32).collect();
        (id, Tensor::from_slice(&base.device, rows, cols, &sum).unwrap())
    };
    Step { params: base.params.iter().map(merge).collect(), ..base.clone() }
}

#[test]
fn an_adapter_whose_b_is_zero_changes_no_bit() {
    for base in Step::every_tiny() {
        let adapted = adapted(&base, 0.0);
        assert_eq!(bits(&adapted.logits().to_host()), bits(&base.logits().to_host()));
        let base_gradients = base.take(&base.everything());
        let outcome = adapted.take(&base.everything());
        outcome.assert_same(&base_gradients, &base.name);
    }
}

/// The same product in two orders of f32 sums, and the norms of its rows.
const MERGED: f64 = 2e-6;

#[test]
fn an_adapted_model_answers_as_its_merged_weights_do() {
    for base in Step::every_tiny() {
        for adapted in [adapted(&base, 0.3), decomposed(&base, 0.3)] {
            let merged = merged(&base, &adapted);
            let (found, expected) = (adapted.logits(), merged.logits());
            let off = relative_f32(&found.to_host(), &expected.to_host());
            assert!(off < MERGED, "{}: {off:.1e}", base.name);
            let unlike = relative_f32(&base.logits().to_host(), &expected.to_host());
            assert!(unlike > 1e-2, "{}: the adapters do something", base.name);
        }
    }
}

#[test]
fn magnitudes_change_the_answers_and_settled_ones_do_not() {
    for base in Step::every_tiny() {
        let (plain, own) = (adapted(&base, 0.3), decomposed(&base, 0.3));
        let (found, without) = (own.logits().to_host().into_owned(), plain.logits());
        assert!(relative_f32(&found, &without.to_host()) > 1e-2, "{}", base.name);
        let mut params = own.params.clone();
        let model = own.model.settled(&mut params).unwrap();
        let settled = Step { model, params, ..own };
        assert_eq!(bits(&settled.logits().to_host()), bits(&found), "{}", base.name);
        let again = settled.model.settled(&mut settled.params.clone()).unwrap();
        assert_eq!(again.adapters(), settled.model.adapters());
    }
}

#[test]
fn magnitudes_learn_beside_a_and_b_and_every_example_has_its_own_norm() {
    for base in Step::every_tiny() {
        let own = decomposed(&base, 0.3);
        let parts = Scope::of_parts(own.model.layout(), Part::ADAPTER);
        let found = own.take(&parts).gradients;
        assert!(found.iter().map(|(id, _)| id).eq(parts.iter()), "{}", base.name);
        let magnitudes = found.iter().filter(|(id, _)| id.part == Part::Magnitude);
        for (id, gradient) in magnitudes {
            // The weight's own norm is the one constant: along its magnitude a row's result grows by itself.
            assert!(gradient.to_dense().iter().any(|x| *x != 0.0), "{}: {id}", base.name);
        }
    }
}

/// A gradient in two ways, each through a whole model in f32.
const GRADIENTS: f64 = 1e-5;

#[test]
fn gradients_of_a_and_b_follow_from_those_of_the_merged_weight() {
    for base in Step::every_tiny() {
        assert_gradients(&base, &adapted(&base, 0.3), GRADIENTS);
    }
}

/// The gradients of all A and B are those that the gradients of the merged weights come to, up to a share of the largest.
pub fn assert_gradients(base: &Step, adapted: &Step, near: f64) {
    let scale = f64::from(ALPHA) / RANK as f64;
    let parts = Scope::of_parts(adapted.model.layout(), [Part::LoraA, Part::LoraB]);
    let merged = merged(base, adapted).take(&base.everything()).gradients;
    let found = adapted.take(&parts).gradients;
    assert!(found.iter().map(|(id, _)| id).eq(parts.iter()), "{}", base.name);
    for (id, gradient) in found.iter() {
        let weight = merged.get(beside(id, Part::Weight)).unwrap();
        let (dw, outputs) = (wide(weight.values()), weight.values().rows());
        let other = |part| wide(adapted.params.get(beside(id, part)).unwrap());
        let expected = if id.part == Part::LoraA {
            product(&transposed(&other(Part::LoraB), RANK), &dw, outputs)
        } else {
            let inputs = dw.len() / outputs;
            product(&dw, &transposed(&other(Part::LoraA), inputs), inputs)
        };
        let expected: Vec<f32> = expected.iter().map(|x| (scale * x) as f32).collect();
        let off = relative_f32(&gradient.to_dense(), &expected);
        assert!(off < near, "{}, {id}: {off:.1e}", base.name);
    }
}

#[test]
fn training_adapters_leaves_the_base_identical() {
    for base in Step::every_tiny() {
        let adapted = adapted(&base, 0.3);
        let parts = Scope::of_parts(adapted.model.layout(), [Part::LoraA, Part::LoraB]);
        let mut after: Params = adapted.params.clone();
        let mut optimiser = Optimiser::new(&base.device, Solver::adamw(1e-2, 0.1)).unwrap();
        optimiser.step(&mut after, &adapted.take(&parts).gradients).unwrap();
        for (id, tensor) in after.iter() {
            let before = adapted.params.get(id).unwrap();
            assert_eq!(tensor.same_storage(before), !parts.contains(id), "{}, {id}", base.name);
        }
    }
}

#[test]
fn a_saved_adapted_model_is_its_merged_model() {
    let both =
        |base: Step| [adapted(&base, 0.3), decomposed(&base, 0.3)].map(|it| (it, base.clone()));
    for (adapted, base) in Step::every_tiny().into_iter().flat_map(both) {
        let dir = tempfile::tempdir().unwrap();
        let companions = Companions::default();
        let saving = Saving {
            precision: Precision::F32,
            labels: None,
            problem: None,
            companions: &companions,
        };
        save(dir.path(), &adapted.model, &adapted.params, &saving).unwrap();
        let how = (&base.device, Seed(1));
        let loaded = load(dir.path(), base.model.head(), None, how).unwrap();
        assert!(loaded.report.fresh.is_empty() && loaded.report.ignored.is_empty());
        let loaded = Step { model: loaded.model, params: loaded.params, ..base.clone() };
        let off = relative_f32(&loaded.logits().to_host(), &adapted.logits().to_host());
        assert!(off < MERGED, "{}: {off:.1e}", base.name);
    }
}

#[test]
fn adapters_put_on_a_folder_are_fresh_and_start_as_the_folder() {
    let base = &Step::every_tiny()[0];
    let dir = tempfile::tempdir().unwrap();
    let companions = Companions::default();
    let saving =
        Saving { precision: Precision::F32, labels: None, problem: None, companions: &companions };
    save(dir.path(), &base.model, &base.params, &saving).unwrap();
    let plain = Adapters::new(2, 8.0, [Role::Query, Role::Value]).unwrap();
    for (adapters, each) in [(plain.clone(), 2), (plain.with_magnitudes(), 3)] {
        let how = (&base.device, Seed(1));
        let loaded = load(dir.path(), base.model.head(), Some(adapters), how).unwrap();
        let parts = Scope::of_parts(loaded.model.layout(), Part::ADAPTER);
        assert_eq!(loaded.report.fresh.iter().map(|fresh| fresh.id).collect::<Scope>(), parts);
        assert_eq!(parts.len(), each * 2 * base.model.blocks());
        let loaded = Step { model: loaded.model, params: loaded.params, ..base.clone() };
        // With magnitudes a bias is added behind the product and not in front of it.
        let off = relative_f32(&loaded.logits().to_host(), &base.logits().to_host());
        assert!(if each == 2 { off == 0.0 } else { off < MERGED }, "{off:.1e}");
        for id in parts.iter().filter(|id| id.part == Part::Magnitude) {
            let norms = loaded.params.get(beside(id, Part::Weight)).unwrap().row_norms();
            assert_eq!(loaded.params.get(id).unwrap().to_host()[..], norms[..], "{id}");
        }
    }
}

#[test]
fn adapters_that_make_no_sense_are_refused() {
    let refused = |rank, alpha, roles: &[Role], expected: &str| {
        let error = Adapters::new(rank, alpha, roles.iter().copied()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let query = [Role::Query];
    refused(0, 1.0, &query, "LoRA rank: found 0, expected at least 1");
    refused(1, 0.0, &query, "LoRA alpha: found 0, expected a positive number");
    refused(1, f32::NAN, &query, "LoRA alpha: found NaN, expected a positive number");
    refused(1, 1.0, &[], "LoRA roles: found none, expected at least one projection");
    let inside =
        "LoRA role: found token, expected a projection inside a block, or the output vocabulary";
    refused(1, 1.0, &[Role::Query, Role::Token], inside);

    let bert = &Step::every_tiny()[0].model;
    let gate = Adapters::new(1, 1.0, [Role::Gate]).unwrap();
    let error = Model::new(bert.config().clone(), bert.head(), Some(gate)).unwrap_err();
    let expected = "LoRA role: found gate, expected a projection that the model has";
    assert_eq!(error.to_string(), expected);
}
