//! Products whose operands are rounded to bf16: near f32, the same as their emulation, and nowhere that a
//! clip relies on.

use crate::chain::{Chain, LENGTHS, Vocabulary};
use fedra_compute::{Device, Gradients, Precision, Tape, Tensor};

/// Largest relative difference of all gradients together: operands have 8 bits of mantissa.
const NEAR_F32: f64 = 3e-2;
/// The same against the emulation: AMX differs below the smallest normal number only, AVX-512 in the
/// order of additions, which rounding to bf16 can enlarge from one product to the next.
const NEAR_EMULATION: f64 = 5e-3;

fn emulated() -> Device {
    Device::cpu().with_emulated_bf16()
}

fn gradients(device: Device) -> Vec<f32> {
    let chain = Chain::on(device, &LENGTHS);
    let (loss, gradients) = chain.run(&chain.everything());
    let mut found = loss.to_host().into_owned();
    found.extend(gradients.iter().flat_map(|(_, gradient)| gradient.to_dense()));
    found
}

fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let pairs = ours.iter().zip(theirs);
    let apart: f64 = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (apart / theirs.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
}

#[test]
fn a_step_in_bf16_is_near_one_in_f32_and_not_the_same() {
    let found = difference(&gradients(emulated()), &gradients(Device::cpu()));
    assert!((1e-5..NEAR_F32).contains(&found), "{found:e}");
}

#[test]
fn the_processors_instructions_compute_what_their_emulation_does() {
    match Device::cpu().with_bf16_products() {
        Err(reason) => eprintln!("skipped: {reason}"),
        Ok(device) => {
            let found = difference(&gradients(device), &gradients(emulated()));
            assert!(found <= NEAR_EMULATION, "{found:e}");
        }
    }
}

#[test]
fn a_device_knows_its_precision_and_tensors_keep_it() {
    for (device, precision) in [
        (Device::cpu(), Precision::F32),
        (emulated(), Precision::Bf16),
        (Device::meta(), Precision::F32),
        (Device::meta().with_emulated_bf16(), Precision::Bf16),
    ] {
        assert_eq!(device.precision(), precision);
        assert_eq!(Tensor::zeros(&device, 2, 2).device().precision(), precision);
    }
}

/// The norm that a clip divides by is that of the gradient that is summed, although the passes before it
/// were in bf16.
#[test]
fn a_clipped_gradient_keeps_its_bound_to_six_digits() {
    const CLIP: f64 = 0.5;
    let chain = Chain::on(emulated(), &LENGTHS);
    let scope = chain.everything();
    for vocabulary in [Vocabulary::Own, Vocabulary::Tied] {
        for example in 0..LENGTHS.len() {
            let mut tape = Tape::by_example(&chain.device, &chain.sequences());
            let loss = chain.summed(&mut tape, chain.params.training(&scope), vocabulary);
            let seeds = [(&loss, Tensor::scalar(&chain.device, 1.0))];
            let found = tape.backward_by_example(&seeds).expect("something trains");
            let square = found.square(example);
            if square == 0.0 {
                continue;
            }
            let factor = (CLIP / square.sqrt()) as f32;
            let sum = found.weighted_sum(|_, other| if other == example { factor } else { 0.0 });
            let norm = norm(&sum);
            assert!((norm / CLIP - 1.0).abs() < 1e-6, "{vocabulary:?} {example}: {norm}");
        }
    }
}

fn norm(gradients: &Gradients) -> f64 {
    gradients.iter().map(|(_, gradient)| gradient.values().sum_of_squares()).sum::<f64>().sqrt()
}
