//! The closed forms of the laboratory against its own arithmetic, to 1e-10.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use fedra_lab::{
    Attention, Blocks as _, Client, Federation, Matrix, Moments, Network, Phi, Sizes, Weights,
    Work, World,
};
use fedra_seed::Seed;

/// Sums of some hundred products of numbers near one, in f64.
const EXACT: f64 = 1e-10;

const SIZES: Sizes = Sizes { width: 5, key_width: 3, tokens: 4, outputs: 2 };

fn network(attention: Attention, mlp: usize) -> Network {
    Network { attention, mlp, ridge: 0.3 }
}

fn linear() -> [Network; 3] {
    Phi::ALL.map(|phi| network(Attention::Linear(phi), 0))
}

/// Unequal clients that disagree.
fn clients(seed: u64) -> Vec<Client> {
    let world = World {
        sizes: SIZES,
        teacher: Attention::Linear(Phi::EluPlusOne),
        clients: 3,
        samples: 6,
        kernel_shift: 0.7,
        value_shift: 0.5,
        noise: 0.1,
    };
    let mut clients = world.clients(Seed(seed));
    for (client, weight) in clients.iter_mut().zip([0.5, 0.3, 0.2]) {
        client.weight = weight;
    }
    clients
}

fn federation(network: Network, work: Work) -> Federation {
    Federation { clients: clients(3), network, work, seed: Seed(1) }
}

fn work(local_steps: u32, rate: f64) -> Work {
    Work { local_steps, rate, cohort: 3 }
}

fn start(network: &Network, seed: u64) -> Weights {
    let mut weights = network.start(SIZES, Seed(seed));
    for (number, part) in (0..).zip(weights.parts_mut()) {
        let mut draw = Seed(seed).of("nudge").with(number).generator();
        part.values_mut().iter_mut().for_each(|value| *value += 0.4 * draw.normal());
    }
    weights
}

/// A step that every client's curvature allows.
fn gentle(network: &Network, weights: &Weights) -> f64 {
    let curvature = |client: &Client| {
        Moments::of(network, weights, client).square.spectral_radius() + network.ridge
    };
    0.8 / clients(3).iter().map(curvature).fold(0.0, f64::max)
}

fn gradient(federation: &Federation, weights: &Weights) -> Weights {
    let mut sum = weights.zeros();
    for client in &federation.clients {
        let part = federation.network.gradient(weights, client);
        sum.add_scaled(client.weight, &part);
    }
    sum
}

fn nudged(weights: &Weights, part: usize, place: usize, by: f64) -> Weights {
    let mut out = weights.clone();
    out.parts_mut().nth(part).unwrap().values_mut()[place] += by;
    out
}

#[test]
fn every_gradient_matches_central_differences() {
    const STEP: f64 = 1e-5;
    let others = [network(Attention::Softmax, 0), network(Attention::Softmax, 7)];
    for network in linear().into_iter().chain(others) {
        let federation = federation(network, work(1, 0.1));
        let weights = start(&network, 8);
        let exact = gradient(&federation, &weights);
        for (number, part) in exact.parts().enumerate() {
            for (place, exact) in part.values().iter().enumerate() {
                let loss = |by: f64| federation.loss(&nudged(&weights, number, place, by));
                let measured = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
                let off = (measured - exact).abs();
                assert!(off < 1e-7 * exact.abs().max(1.0), "{network:?} {number} {place}: {off}");
            }
        }
    }
}

#[test]
fn the_profile_gradient_is_the_partial_gradient_at_the_best_value() {
    const STEP: f64 = 1e-4;
    for network in linear().into_iter().chain([network(Attention::Softmax, 0)]) {
        let federation = federation(network, work(1, 0.1));
        let mut weights = start(&network, 4);
        weights.value = federation.freeze(&weights).best_value().unwrap();
        let partial = gradient(&federation, &weights);
        assert!(partial.value.norm() < EXACT, "V* is stationary: {}", partial.value.norm());
        let profile = |weights: &Weights| federation.freeze(weights).profile().unwrap();
        assert!((profile(&weights) - federation.loss(&weights)).abs() < EXACT);
        for (number, part) in [&partial.query, &partial.key].into_iter().enumerate() {
            for (place, partial) in part.values().iter().enumerate() {
                // Richardson's extrapolation: the error is of fourth order in the step.
                let central = |step: f64| {
                    let up = profile(&nudged(&weights, number, place, step));
                    let down = profile(&nudged(&weights, number, place, -step));
                    (up - down) / (2.0 * step)
                };
                let measured = (4.0 * central(STEP) - central(2.0 * STEP)) / 3.0;
                assert!((measured - partial).abs() < 1e-9, "{network:?}: {measured} {partial}");
            }
        }
    }
}

#[test]
fn the_profile_gradient_by_its_own_formula_is_the_partial_gradient() {
    // dP = 1/2 tr(V*^T dS V*) - tr(V*^T dR), with dS and dR of the features' own derivative. For the identity
    // map the features are linear in Q, so their derivative along a direction D is exact: Z(Q + D) - Z(Q).
    let network = network(Attention::Linear(Phi::Identity), 0);
    let federation = federation(network, work(1, 0.1));
    let mut weights = start(&network, 6);
    let best = federation.freeze(&weights).best_value().unwrap();
    weights.value = best.clone();
    let partial = gradient(&federation, &weights);
    let direction = Matrix::normal(5, 3, 1.0, &mut Seed(12).generator());
    let mut moved = weights.clone();
    moved.query.add_scaled(1.0, &direction);
    let mut slope = 0.0;
    for client in &federation.clients {
        let features = network.features(&weights, client);
        let change = network.features(&moved, client).minus(&features);
        let share = client.weight / features.rows() as f64;
        let cross = features.transposed_times(&change);
        let (curved, straight) =
            (cross.transposed().times(&best), change.transposed_times(&client.targets));
        slope += share * (best.dot(&curved) - best.dot(&straight));
    }
    let expected = partial.query.dot(&direction);
    assert!((slope - expected).abs() < EXACT, "{slope} {expected}");
}

#[test]
fn stage_two_ends_at_its_closed_form() {
    for network in linear() {
        for local_steps in [1, 3, 20] {
            let weights = start(&network, 5);
            let federation = federation(network, work(local_steps, gentle(&network, &weights)));
            let frozen = federation.freeze(&weights);
            assert!(frozen.contraction() < 1.0);
            let end = frozen.fixed_point().unwrap();
            let run = frozen.train(Matrix::zeros(5, 2), 0, 6000);
            let off = run[6000].minus(&end).norm();
            assert!(off < EXACT, "{network:?} E {local_steps}: {off}");
        }
    }
}

#[test]
fn one_local_step_ends_at_the_best_value_and_more_do_not() {
    for network in linear() {
        let weights = start(&network, 5);
        let floor = |local_steps: u32| {
            let federation = federation(network, work(local_steps, gentle(&network, &weights)));
            let frozen = federation.freeze(&weights);
            frozen.fixed_point().unwrap().minus(&frozen.best_value().unwrap()).norm()
        };
        assert!(floor(1) < EXACT, "{}", floor(1));
        assert!(1e-4 < floor(2) && floor(2) < floor(10), "{} {}", floor(2), floor(10));
    }
}

#[test]
fn clients_that_agree_have_no_floor() {
    let network = linear()[2];
    let mut federation = federation(network, work(10, 0.05));
    let first = federation.clients[0].clone();
    for client in &mut federation.clients {
        *client = Client { weight: client.weight, ..first.clone() };
    }
    let frozen = federation.freeze(&start(&network, 5));
    let floor = frozen.fixed_point().unwrap().minus(&frozen.best_value().unwrap()).norm();
    assert!(floor < EXACT, "{floor}");
}

#[test]
fn stage_two_on_moments_is_stage_two_on_the_data() {
    for network in linear() {
        let weights = start(&network, 7);
        let federation = federation(network, work(4, gentle(&network, &weights)));
        let data = federation.average(weights.clone(), 0..10, |local, client| {
            let gradient = network.gradient(local, &federation.clients[client]);
            local.value.add_scaled(-federation.work.rate, &gradient.value);
        });
        let moments = federation.freeze(&weights).train(weights.value.clone(), 0, 10);
        assert!(data[10].value.minus(&moments[10]).norm() < EXACT);
        let loss = federation.freeze(&weights).loss(&moments[10]);
        assert!((loss - federation.loss(&data[10])).abs() < EXACT);
    }
}

#[test]
fn every_round_of_stage_two_contracts_by_its_spectral_radius() {
    let network = linear()[1];
    let weights = start(&network, 5);
    let federation = federation(network, work(5, gentle(&network, &weights)));
    let frozen = federation.freeze(&weights);
    let (rate, end) = (frozen.contraction(), frozen.fixed_point().unwrap());
    let run = frozen.train(Matrix::normal(5, 2, 3.0, &mut Seed(1).generator()), 0, 40);
    let left: Vec<f64> = run.iter().map(|value| value.minus(&end).norm()).collect();
    for pair in left.windows(2) {
        assert!(pair[1] <= rate * pair[0] * (1.0 + 1e-9), "{} {} {rate}", pair[0], pair[1]);
    }
    assert!(left[40] < 1e-2 * left[0], "{} {}", left[0], left[40]);
}

#[test]
fn a_larger_ridge_means_a_smaller_value_block_and_none_means_least_squares() {
    let network = linear()[0];
    let federation = federation(network, work(1, 0.1));
    let frozen = federation.freeze(&start(&network, 5));
    let pooled = &frozen.pooled;
    let best = |ridge: f64| pooled.best_value(ridge).unwrap();
    assert!(best(10.0).norm() < best(0.1).norm() && best(0.1).norm() < best(1e-6).norm());
    assert!(pooled.value_gradient(&best(1e-12), 0.0).norm() < EXACT, "normal equations");
    assert!(pooled.profile(0.1).unwrap() > pooled.profile(1e-6).unwrap());
    let nothing = Matrix::zeros(5, 2);
    assert!((pooled.loss(&nothing, 3.0) - 0.5 * pooled.energy).abs() < EXACT);
}

#[test]
fn neither_the_order_of_samples_nor_that_of_clients_nor_that_of_key_columns_matters() {
    let networks = linear().into_iter().chain([network(Attention::Softmax, 0)]);
    for network in networks {
        let federation = federation(network, work(3, 0.05));
        let weights = start(&network, 9);
        let after = federation.train(weights.clone(), 1).swap_remove(1);

        let mut turned = federation.clone();
        turned.clients.reverse();
        for client in &mut turned.clients {
            reverse_rows(&mut client.tokens);
            reverse_rows(&mut client.targets);
        }
        let other = turned.train(weights.clone(), 1).swap_remove(1);
        for (a, b) in after.parts().zip(other.parts()) {
            assert!(a.minus(b).norm() < EXACT);
        }

        let mut swapped = weights.clone();
        reverse_columns(&mut swapped.query);
        reverse_columns(&mut swapped.key);
        let mut other = federation.train(swapped, 1).swap_remove(1);
        reverse_columns(&mut other.query);
        reverse_columns(&mut other.key);
        for (a, b) in after.parts().zip(other.parts()) {
            assert!(a.minus(b).norm() < EXACT);
        }
    }
}

/// All samples and the tokens in them, back to front: attention is equivariant under both.
fn reverse_rows(matrix: &mut Matrix) {
    let columns = matrix.columns();
    let rows: Vec<f64> = matrix.values().chunks(columns).rev().flatten().copied().collect();
    matrix.values_mut().copy_from_slice(&rows);
}

fn reverse_columns(matrix: &mut Matrix) {
    let columns = matrix.columns();
    matrix.values_mut().chunks_mut(columns).for_each(<[f64]>::reverse);
}

#[test]
fn a_cohort_is_drawn_by_round_and_its_weights_sum_to_one() {
    let mut federation = federation(linear()[0], work(1, 0.1));
    federation.work.cohort = 2;
    let mut seen = [0; 3];
    for round in 0..60 {
        let cohort = federation.cohort(round);
        assert_eq!(cohort, federation.cohort(round));
        assert_eq!(cohort.len(), 2);
        assert!(cohort[0].1 < cohort[1].1, "client order");
        assert!((cohort.iter().map(|(share, _)| share).sum::<f64>() - 1.0).abs() < 1e-12);
        for (_, client) in &cohort {
            seen[*client] += 1;
        }
    }
    assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
    federation.work.cohort = 99;
    assert_eq!(federation.cohort(0).len(), 3);
}

#[test]
fn worlds_without_heterogeneity_have_one_teacher_and_louder_knobs_do_not_shout() {
    let world = |shift: f64| World {
        sizes: SIZES,
        teacher: Attention::Linear(Phi::Relu),
        clients: 4,
        samples: 300,
        kernel_shift: shift,
        value_shift: shift,
        noise: 0.0,
    };
    // The loss of the best kernel-free guess at the shared teacher: zero only if everyone has that teacher.
    let teacher = network(Attention::Linear(Phi::Relu), 0);
    for (shift, agrees) in [(0.0, true), (0.5, false)] {
        let clients = world(shift).clients(Seed(2));
        let squares: f64 = clients.iter().map(|c| c.targets.dot(&c.targets)).sum();
        let count: usize = clients.iter().map(|c| c.targets.values().len()).sum();
        assert!((squares / count as f64 - 1.0).abs() < 1e-12);
        let shared = Seed(2).of("teacher");
        let draw = |name: &str, columns: usize| {
            let deviation = 1.0 / 5f64.sqrt();
            Matrix::normal(5, columns, deviation, &mut shared.of(name).generator())
        };
        let mut weights = teacher.start(SIZES, Seed(0));
        (weights.query, weights.key) = (draw("query", 3), draw("key", 3));
        let federation = Federation {
            clients,
            network: Network { ridge: 0.0, ..teacher },
            work: work(1, 0.1),
            seed: Seed(0),
        };
        let left = federation.freeze(&weights).profile().unwrap();
        assert_eq!(left < 1e-12, agrees, "{shift}: {left}");
    }
}
