//! A model whose frozen part is stored in another format than f32.

use crate::golden;
use crate::step::{Step, bits};
use fedra_compute::{Device, Params, Seed, Tensor, WeightFormat};
use fedra_model::{Head, WeightStorage, load};
use fedra_plan::{ParamId, Scope};

/// How far logits may move, relative to the largest, and the share by which gradients may: of tiny models, whose
/// few weights forgive least.
const FORMATS: [(WeightFormat, f32, f64); 3] = [
    (WeightFormat::Bf16, 0.05, 0.2),
    (WeightFormat::Int8, 0.05, 0.2),
    (WeightFormat::Int4, 0.5, 0.8),
];

/// These parameters as their storage says.
fn stored(params: &Params, storage: &WeightStorage) -> Params {
    let stored = |(id, tensor): (ParamId, &Tensor)| {
        let (device, format) = (tensor.device(), storage.of(id));
        let tensor = Tensor::stored_as(&device, format, tensor.shape(), &tensor.to_host());
        (id, tensor.unwrap())
    };
    params.iter().map(stored).collect()
}

#[test]
fn logits_of_frozen_weights_in_each_format_are_near_those_in_f32_and_training_goes_on_in_f32() {
    let steps = Step::every_kind();
    let is_stored = |step: &Step| {
        let storage = WeightStorage::of_all(WeightFormat::Int4, step.model.layout());
        !storage.scope().is_empty()
    };
    assert!(steps.iter().any(is_stored), "some rows are as wide as a block");
    steps.iter().for_each(check);
}

#[test]
#[ignore = "needs ../shared/models/minilm-l6: tools/test-shared"]
fn minilm_takes_what_each_format_says() {
    let dir = golden::published("minilm-l6");
    let device = Device::cpu();
    let head = Head::Sequence { classes: 3, pooler: true };
    let loaded = load(&dir, head, None, (&device, Seed(1))).unwrap();
    let everything = Scope::everything(loaded.model.layout());
    let whole = device.usage().live_bytes;
    for (format, ..) in FORMATS {
        let storage = WeightStorage::of_all(format, loaded.model.layout());
        let params = stored(&loaded.params, &storage);
        let used = (device.usage().live_bytes - whole) as f64;
        let expected = storage.bytes(loaded.model.layout(), &everything).0 as f64;
        assert!((0.99..1.01).contains(&(used / expected)), "{format}: {used} for {expected}");
        drop(params);
    }
}

#[track_caller]
fn check(step: &Step) {
    let scope = Scope::of_blocks(step.model.layout(), [1]);
    let frozen = Scope::everything(step.model.layout()) - &scope;
    for (format, tolerance, share) in FORMATS {
        let storage = WeightStorage::new(format, step.model.layout(), &frozen);
        let params = stored(&step.params, &storage);
        let other = Step { params, ..step.clone() };
        let (found, expected) = (other.logits(), step.logits());
        let (found, expected) = (found.to_host(), expected.to_host());
        let size = expected.iter().fold(0.0f32, |size, x| size.max(x.abs()));
        for (found, expected) in found.iter().zip(&*expected) {
            let off = (found - expected).abs() / size;
            assert!(off < tolerance, "{format}, {}: {found} and {expected}", step.name);
        }
        // Rows narrower than a block stay f32.
        let is_exact = storage.scope().is_empty();
        assert_eq!(found == expected, is_exact, "{format}, {}: rounding shows", step.name);
        let (near, exact) = (other.take(&scope).gradients, step.take(&scope).gradients);
        let (near, exact) = (near.sum_of_squares().sqrt(), exact.sum_of_squares().sqrt());
        assert!((near / exact - 1.0).abs() < share, "{format}, {}: {near} and {exact}", step.name);
    }
}

#[test]
fn fresh_weights_come_in_the_formats_of_their_model_and_are_those_of_f32_rounded() {
    let step = Step::every_kind().into_iter().next().unwrap();
    let device = Device::cpu();
    let storage = WeightStorage::of_all(WeightFormat::Int4, step.model.layout());
    let model = step.model.clone().stored_as(storage.clone());
    let fresh = model.fresh_params(&device, Seed(3)).unwrap();
    let expected = stored(&step.model.fresh_params(&device, Seed(3)).unwrap(), &storage);
    let paper = model.fresh_params(&Device::meta(), Seed(3)).unwrap();
    for (id, tensor) in fresh.iter() {
        assert_eq!(tensor.format(), storage.of(id), "{id}");
        assert_eq!(paper.get(id).unwrap().format(), storage.of(id), "{id}");
        let expected = expected.get(id).unwrap();
        assert_eq!(bits(&tensor.to_host()), bits(&expected.to_host()), "{id}");
    }
}
