//! Results do not depend on how many threads computed them.

use crate::chain::{Chain, LENGTHS};
use crate::draw::{bits, of};
use fedra_compute::{Device, Gradient, Optimiser, Seed, Solver, Tape, ThreadPool};
use fedra_plan::ParamId;

/// Every bit that two training steps leave behind.
#[derive(PartialEq)]
struct Trace {
    losses: Vec<u32>,
    gradients: Vec<(ParamId, Vec<u32>)>,
    weights: Vec<(ParamId, Vec<u32>)>,
}

#[test]
fn forward_backward_and_optimiser_give_the_same_bits_on_any_number_of_threads() {
    same_bits(&Device::cpu());
}

#[test]
fn so_do_products_in_bf16() {
    same_bits(&Device::cpu().with_emulated_bf16());
    // Where the processor has instructions for it, they compute the same as their emulation or nearly so.
    if let Ok(device) = Device::cpu().with_bf16_products() {
        same_bits(&device);
    }
}

fn same_bits(device: &Device) {
    let train = |threads| train(device, threads);
    let alone = train(1);
    assert!(alone.gradients.iter().all(|(_, bits)| bits.iter().any(|bits| *bits << 1 != 0)));
    for threads in if cfg!(miri) { 2..3 } else { 2..6 } {
        let together = train(threads);
        assert_eq!(together.losses, alone.losses, "losses on {threads} threads");
        for (what, (found, expected)) in [
            ("gradient", (&together.gradients, &alone.gradients)),
            ("weight", (&together.weights, &alone.weights)),
        ] {
            for (found, expected) in found.iter().zip(expected) {
                assert!(found == expected, "{what} of {} on {threads} threads", expected.0);
            }
        }
        assert!(together == alone);
    }
}

#[test]
fn dropout_drops_the_share_that_its_rate_says_and_the_same_numbers_on_any_number_of_threads() {
    const COUNT: usize = if cfg!(miri) { 999 } else { 99_999 };
    let dropped = |threads, seed| {
        ThreadPool::new(threads).expect("threads").install(|| {
            let device = Device::cpu();
            let mut tape = Tape::new(&device);
            let x = tape.constant(of(&device, (3, COUNT / 3), &vec![1.0; COUNT]));
            tape.dropout(x, 0.25, Seed(seed)).expect("a rate").tensor.to_host().into_owned()
        })
    };
    let alone = dropped(1, 5);
    let zeros = alone.iter().filter(|x| **x == 0.0).count() as f64;
    // Five standard deviations.
    let (expected, deviation) = (0.25 * COUNT as f64, (0.1875 * COUNT as f64).sqrt());
    assert!((zeros - expected).abs() < 5.0 * deviation, "{zeros} of {COUNT}");
    assert!(alone.iter().all(|x| *x == 0.0 || *x == 1.0 / 0.75));
    assert!((2..6).all(|threads| dropped(threads, 5) == alone));
    assert!(dropped(1, 6) != alone);
}

fn train(device: &Device, threads: usize) -> Trace {
    let pool = ThreadPool::new(threads).expect("threads");
    pool.install(|| {
        let mut chain = Chain::on(device.clone(), &LENGTHS);
        let scope = chain.everything();
        let mut optimiser =
            Optimiser::new(&chain.device, Solver::adamw(1e-2, 0.1)).expect("usual settings");
        let mut trace = Trace { losses: Vec::new(), gradients: Vec::new(), weights: Vec::new() };
        for _ in 0..2 {
            let (loss, gradients) = chain.run(&scope);
            trace.losses.extend(bits(&loss));
            let stored = |(id, gradient): (ParamId, &Gradient)| (id, bits(gradient.values()));
            trace.gradients.extend(gradients.iter().map(stored));
            optimiser.step(&mut chain.params, &gradients).expect("shapes agree");
        }
        trace.weights.extend(chain.params.iter().map(|(id, tensor)| (id, bits(tensor))));
        trace
    })
}
