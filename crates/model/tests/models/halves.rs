//! A model whose frozen part is stored as bf16.

use crate::golden;
use crate::step::{Answers, Step};
use fedra_compute::{Device, Seed};
use fedra_model::{Batch, Head, load};
use fedra_plan::Scope;

/// bf16 keeps eight bits of a weight; over a few blocks that leaves two digits of the answer.
const TOLERANCE: f32 = 0.05;

#[test]
fn logits_of_frozen_weights_in_bf16_are_near_those_in_f32_and_training_goes_on_in_f32() {
    for step in Step::every_kind() {
        check(&step);
    }
}

#[test]
#[ignore = "needs ../shared/models/minilm-l6: tools/test-shared"]
fn minilm_in_bf16_takes_half_the_memory_and_answers_nearly_the_same() {
    let dir = golden::published("minilm-l6");
    let device = Device::cpu();
    let head = Head::Sequence { classes: 3, pooler: true };
    let loaded = load(&dir, head, None, (&device, Seed(1))).unwrap();
    let whole = device.usage().live_bytes;
    let params = loaded.params.with_bf16_outside(&Scope::empty());
    let half = device.usage().live_bytes - whole;
    assert!(100 * half < 52 * whole, "{half} bytes beside {whole}");
    drop(params);
    check(&Step {
        name: "minilm-l6".into(),
        batch: Batch::new(&[vec![101, 7592, 2088, 102], vec![101, 2307, 102]]).unwrap(),
        answers: Answers::Classes(vec![Some(0), Some(2)]),
        device,
        model: loaded.model,
        params: loaded.params,
    });
}

#[track_caller]
fn check(step: &Step) {
    let scope = Scope::of_blocks(step.model.layout(), [1]);
    let params = step.params.with_bf16_outside(&scope);
    let half = Step { params, ..step.clone() };
    let (found, expected) = (half.logits(), step.logits());
    let (found, expected) = (found.to_host(), expected.to_host());
    let size = expected.iter().fold(0.0f32, |size, x| size.max(x.abs()));
    for (found, expected) in found.iter().zip(&*expected) {
        let off = (found - expected).abs() / size;
        assert!(off < TOLERANCE, "{}: {found} and {expected}", step.name);
    }
    assert_ne!(found, expected, "{}: rounding shows", step.name);
    let (near, exact) = (half.take(&scope).gradients, step.take(&scope).gradients);
    let (near, exact) = (near.sum_of_squares().sqrt(), exact.sum_of_squares().sqrt());
    assert!((near / exact - 1.0).abs() < 0.2, "{}: {near} and {exact}", step.name);
}
