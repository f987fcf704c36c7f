//! Weights stored as bf16 are read as the f32 that they stand for.

use crate::chain::{Chain, LENGTHS};
use crate::draw::bits;
use fedra_compute::{Device, Optimiser, Params, Solver, Tensor};
use fedra_plan::{ParamId, Scope};

/// Every tensor rounded to bf16, as bf16 and as f32.
fn rounded(params: &Params) -> (Params, Params) {
    let half: Params = params.iter().map(|(id, tensor)| (id, tensor.to_bf16())).collect();
    let whole = |(id, tensor): (ParamId, &Tensor)| {
        let (rows, cols) = tensor.shape();
        let copy = Tensor::from_slice(&tensor.device(), rows, cols, &tensor.to_host());
        (id, copy.expect("a copy has its shape"))
    };
    let whole = half.iter().map(whole).collect();
    (half, whole)
}

#[test]
fn a_model_in_bf16_gives_the_bits_of_its_rounded_weights_in_f32() {
    let mut chain = Chain::new(&LENGTHS);
    let (half, whole) = rounded(&chain.params);
    assert!(half.iter().all(|(_, tensor)| tensor.is_bf16()));
    let everything = chain.everything();
    for scope in [everything, Scope::empty() | chain.layer(fedra_plan::Layer::Head)] {
        chain.params = whole.clone();
        let (expected, gradients) = chain.run(&scope);
        chain.params = half.clone();
        let (found, same) = chain.run(&scope);
        assert_eq!(bits(&found), bits(&expected));
        for (id, gradient) in gradients.iter() {
            let (found, expected) = (same.get(id).unwrap().to_dense(), gradient.to_dense());
            assert!(found == expected, "{id}");
        }
    }
}

#[test]
fn a_copy_on_another_device_is_bf16_too() {
    let device = Device::cpu();
    let numbers: Vec<f32> = (0..1500).map(|number| number as f32 / 7.0).collect();
    let half = Tensor::from_slice(&device, 30, 50, &numbers).unwrap().to_bf16();
    let counted = Device::meta();
    let copy = half.to(&counted);
    assert!(copy.is_bf16() && counted.usage().live_bytes < 1500 * size_of::<f32>());
    let halves: Vec<u16> = half.to_host().iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let same = Tensor::from_bf16(&device, 30, 50, &halves).unwrap();
    assert!(same.is_bf16() && bits(&same) == bits(&half));
    assert!(Tensor::from_bf16(&device, 30, 49, &halves).is_err());
    let mut stored = Vec::new();
    half.each_stored(&mut |bytes| stored.extend_from_slice(bytes));
    assert_eq!(stored, halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>());
}

#[test]
fn what_learns_becomes_f32_and_what_is_frozen_stays_bf16() {
    let mut chain = Chain::new(&LENGTHS);
    let (half, whole) = rounded(&chain.params);
    let scope = chain.layer(fedra_plan::Layer::Head);
    let step = |chain: &mut Chain, params: &Params| {
        chain.params = params.clone();
        let gradients = chain.run(&scope).1;
        let mut optimiser = Optimiser::new(&chain.device, Solver::adamw(0.01, 0.1)).unwrap();
        optimiser.step(&mut chain.params, &gradients).unwrap();
        chain.params.clone()
    };
    let (found, expected) = (step(&mut chain, &half), step(&mut chain, &whole));
    for (id, tensor) in found.iter() {
        assert_eq!(tensor.is_bf16(), !scope.contains(id), "{id}");
        assert!(bits(tensor) == bits(expected.get(id).unwrap()), "{id}");
    }
}
