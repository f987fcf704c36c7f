//! Results do not depend on how many threads computed them.

use crate::chain::{Chain, LENGTHS};
use crate::draw::bits;
use fedra_compute::{Gradient, Optimiser, Solver, ThreadPool};
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

fn train(threads: usize) -> Trace {
    let pool = ThreadPool::new(threads).expect("threads");
    pool.install(|| {
        let mut chain = Chain::new(&LENGTHS);
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
