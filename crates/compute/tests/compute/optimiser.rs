//! Optimisers: PyTorch's trajectories, what stays frozen, sparse rows, refused settings.

use crate::draw::{bare, bits, distance, frozen, id, indices, numbers, of, tensor, trained};
use crate::golden::{drawn, float, floats, list, read};
use fedra_compute::{ComputeError, Device, Gradients, Optimiser, Params, Solver, Tape, Tensor};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};

const TABLE: ParamId = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
const OTHER: ParamId = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);

/// Relative to the norm, after up to six steps of a few f32 roundings each.
const TOLERANCE: f64 = 1e-6;

#[test]
fn trajectories_agree_with_pytorch() {
    let golden = read();
    let cases = list(&golden["optimisers"]);
    assert_eq!(cases.len(), 3, "a new case needs an arm here");
    for case in cases {
        let settings = &case["settings"];
        let rate = float(&settings["lr"]);
        let solver = match case["name"].as_str().unwrap() {
            "adamw" => Solver::AdamW {
                rate,
                beta1: float(&settings["betas"][0]),
                beta2: float(&settings["betas"][1]),
                epsilon: float(&settings["eps"]),
                weight_decay: float(&settings["weight_decay"]),
            },
            "sgd" => Solver::Sgd { rate, weight_decay: 0.0 },
            "sgd_momentum" => {
                Solver::Momentum { rate, momentum: float(&settings["momentum"]), weight_decay: 0.0 }
            }
            unknown => panic!("no optimiser is called {unknown}"),
        };
        let device = Device::cpu();
        let ((rows, cols), start) = drawn(&case["start"]);
        let mut params: Params = [(TABLE, of(&device, (rows, cols), &start))].into_iter().collect();
        let mut optimiser = Optimiser::new(&device, solver).unwrap();
        for (gradient, expected) in list(&case["gradients"]).iter().zip(list(&case["trajectory"])) {
            let gradient = dense(&device, TABLE, (rows, cols), &drawn(gradient).1);
            optimiser.step(&mut params, &gradient).unwrap();
            let error = distance(&params.get(TABLE).unwrap().to_host(), &floats(expected));
            assert!(error < TOLERANCE, "{solver:?} is off by {error:e}");
        }
    }
}

#[test]
fn frozen_parameters_stay_bit_identical_under_adamw_with_decay() {
    let device = Device::cpu();
    let mut params: Params =
        [(TABLE, tensor(&device, (5, 3), 1)), (OTHER, tensor(&device, (2, 3), 2))]
            .into_iter()
            .collect();
    let before = params.clone();
    let mut optimiser = Optimiser::new(&device, Solver::adamw(0.1, 0.5)).unwrap();
    for seed in 10..15 {
        let gradient = dense(&device, OTHER, (2, 3), &numbers(seed, 6, (1.0, 0.0)));
        optimiser.step(&mut params, &gradient).unwrap();
    }
    let (table, other) = (params.get(TABLE).unwrap(), params.get(OTHER).unwrap());
    assert!(table.same_storage(before.get(TABLE).unwrap()), "a frozen parameter is not copied");
    assert_eq!(bits(table), bits(before.get(TABLE).unwrap()));
    assert_ne!(bits(other), bits(before.get(OTHER).unwrap()));
}

#[test]
fn sparse_rows_follow_the_dense_trajectory() {
    let momentum = |weight_decay| Solver::Momentum { rate: 0.05, momentum: 0.9, weight_decay };
    for solver in [
        Solver::adamw(0.05, 0.0),
        Solver::adamw(0.05, 0.3),
        Solver::Sgd { rate: 0.05, weight_decay: 0.0 },
        Solver::Sgd { rate: 0.05, weight_decay: 0.3 },
        momentum(0.0),
        momentum(0.3),
    ] {
        let device = Device::cpu();
        let shape @ (rows, _) = (23, 5);
        let start: Params = [(TABLE, tensor(&device, shape, 1))].into_iter().collect();
        let (mut by_rows, mut whole) = (start.clone(), start.clone());
        let mut optimisers = [(); 2].map(|()| Optimiser::new(&device, solver).unwrap());
        for step in 0..6 {
            // Rows 15 and up are never looked up; the others come and go, some of them twice.
            let ids = indices(40 + step, 7, 15);
            let sparse = looked_up(&device, (TABLE, start.get(TABLE).unwrap()), &ids, step);
            let full = sparse.get(TABLE).unwrap().to_dense();
            let full = dense(&device, TABLE, shape, &full);
            optimisers[0].step(&mut by_rows, &sparse).unwrap();
            optimisers[1].step(&mut whole, &full).unwrap();
            let (found, expected) = (by_rows.get(TABLE).unwrap(), whole.get(TABLE).unwrap());
            let (found, expected) = (found.to_host(), expected.to_host());
            for row in 0..rows {
                let at = row * shape.1..(row + 1) * shape.1;
                let error = distance(&found[at.clone()], &expected[at]);
                assert!(error < TOLERANCE, "{solver:?} step {step} row {row} off by {error:e}");
            }
        }
        let moved = bits(&by_rows.get(TABLE).unwrap().row_range(&device, 22, 1).unwrap())
            != bits(&start.get(TABLE).unwrap().row_range(&device, 22, 1).unwrap());
        let decays = !format!("{solver:?}").contains("weight_decay: 0.0");
        assert_eq!(moved, decays, "{solver:?}: a row never looked up changes by decay alone");
    }
}

#[test]
fn a_parameter_that_misses_a_step_goes_on_where_it_was() {
    for solver in [
        Solver::adamw(0.05, 0.1),
        Solver::Momentum { rate: 0.05, momentum: 0.9, weight_decay: 0.1 },
    ] {
        let device = Device::cpu();
        let start: Params =
            [(TABLE, tensor(&device, (1, 7), 1)), (OTHER, tensor(&device, (1, 7), 2))]
                .into_iter()
                .collect();
        let gradient = |id, seed| dense(&device, id, (1, 7), &numbers(seed, 7, (1.0, 0.0)));
        let (mut steady, mut missing) = (start.clone(), start);
        let mut optimisers = [(); 2].map(|()| Optimiser::new(&device, solver).unwrap());
        for seed in 50..54 {
            optimisers[0].step(&mut steady, &gradient(TABLE, seed)).unwrap();
            optimisers[1].step(&mut missing, &gradient(TABLE, seed)).unwrap();
            optimisers[1].step(&mut missing, &gradient(OTHER, seed)).unwrap();
        }
        assert_eq!(bits(steady.get(TABLE).unwrap()), bits(missing.get(TABLE).unwrap()));
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let adamw = |beta1, beta2, epsilon, weight_decay| Solver::AdamW {
        rate: 0.1,
        beta1,
        beta2,
        epsilon,
        weight_decay,
    };
    let momentum = |momentum| Solver::Momentum { rate: 0.1, momentum, weight_decay: 0.0 };
    let not_negative = "expected a finite number, 0 or more";
    let share = "expected a number from 0 to below 1";
    for (solver, message) in [
        (Solver::adamw(f32::NAN, 0.0), format!("work.optimiser.rate is NaN, {not_negative}")),
        (Solver::adamw(-1.0, 0.0), format!("work.optimiser.rate is -1, {not_negative}")),
        (
            Solver::Sgd { rate: f32::INFINITY, weight_decay: 0.0 },
            format!("work.optimiser.rate is inf, {not_negative}"),
        ),
        (
            Solver::Sgd { rate: 0.1, weight_decay: -0.5 },
            format!("work.optimiser.weight_decay is -0.5, {not_negative}"),
        ),
        (momentum(1.0), format!("work.optimiser.momentum is 1, {share}")),
        (momentum(-0.25), format!("work.optimiser.momentum is -0.25, {share}")),
        (adamw(1.5, 0.9, 1e-8, 0.0), format!("work.optimiser.beta1 is 1.5, {share}")),
        (adamw(0.9, 1.0, 1e-8, 0.0), format!("work.optimiser.beta2 is 1, {share}")),
        (
            adamw(0.9, 0.9, -1.0, 0.0),
            "work.optimiser.epsilon is -1, expected a finite number above 0".into(),
        ),
        (
            adamw(0.9, 0.9, 0.0, 0.0),
            "work.optimiser.epsilon is 0, expected a finite number above 0".into(),
        ),
        (
            adamw(0.9, 0.9, 1e-8, f32::NAN),
            format!("work.optimiser.weight_decay is NaN, {not_negative}"),
        ),
    ] {
        let device = Device::cpu();
        assert_eq!(Optimiser::new(&device, solver).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_gradient_of_another_shape_or_of_an_unknown_parameter_is_refused() {
    let device = Device::cpu();
    let mut params: Params = [(TABLE, tensor(&device, (2, 7), 1))].into_iter().collect();
    let before = bits(params.get(TABLE).unwrap());
    let mut optimiser = Optimiser::new(&device, Solver::adamw(0.1, 0.0)).unwrap();
    let wrong = dense(&device, TABLE, (7, 2), &[1.0; 14]);
    let error = optimiser.step(&mut params, &wrong).unwrap_err();
    assert_eq!(error.to_string(), "optimiser: gradient shape is (7, 2), expected (2, 7)");
    let unknown = dense(&device, OTHER, (2, 7), &[1.0; 14]);
    assert_eq!(optimiser.step(&mut params, &unknown).unwrap_err(), ComputeError::Missing(OTHER));
    assert_eq!(bits(params.get(TABLE).unwrap()), before);
}

#[test]
fn a_damped_parameter_steps_as_under_the_lower_rate_and_the_others_as_before() {
    let device = Device::cpu();
    let solvers = |rate| {
        let momentum = Solver::Momentum { rate, momentum: 0.9, weight_decay: 0.1 };
        [Solver::Sgd { rate, weight_decay: 0.1 }, momentum, Solver::adamw(rate, 0.1)]
    };
    for (full, low) in solvers(0.5).into_iter().zip(solvers(0.125)) {
        let run = |id, solver, damped: bool| {
            let mut params: Params = [(id, tensor(&device, (2, 7), 1))].into_iter().collect();
            let mut optimiser = Optimiser::new(&device, solver).unwrap();
            if damped {
                optimiser.damp(Scope::from_iter([TABLE]), 0.25).unwrap();
            }
            for step in 1..4_u8 {
                let gradient = [f32::from(step); 14];
                optimiser.step(&mut params, &dense(&device, id, (2, 7), &gradient)).unwrap();
            }
            bits(params.get(id).unwrap())
        };
        assert_eq!(run(TABLE, full, true), run(TABLE, low, false), "{full:?}");
        assert_eq!(run(OTHER, full, true), run(OTHER, full, false), "{full:?}");
    }
    let mut optimiser = Optimiser::new(&device, Solver::adamw(0.1, 0.0)).unwrap();
    assert!(optimiser.damp(Scope::empty(), f32::NAN).is_err());
}

/// Gradients that hold exactly these numbers: those of `I W^T` when `G^T` comes back.
fn dense(device: &Device, id: ParamId, (rows, cols): (usize, usize), numbers: &[f32]) -> Gradients {
    let mut tape = Tape::new(device);
    let one = |i| if i % (cols + 1) == 0 { 1.0 } else { 0.0 };
    let identity: Vec<f32> = (0..cols * cols).map(one).collect();
    let x = tape.constant(of(device, (cols, cols), &identity));
    let weight = trained(id, Tensor::zeros(device, rows, cols));
    let y = tape.linear(&x, &[bare(weight)]).expect("the widths agree");
    let turned = |i: usize| numbers[(i % rows) * cols + i / rows];
    let turned: Vec<f32> = (0..rows * cols).map(turned).collect();
    tape.backward(&[(&y, of(device, (cols, rows), &turned))]).expect("the weight trains")
}

/// Gradients of the rows that were looked up.
fn looked_up(device: &Device, table: (ParamId, &Tensor), ids: &[u32], seed: u64) -> Gradients {
    let mut tape = Tape::new(device);
    let (weight, other) =
        (trained(table.0, table.1.clone()), Tensor::zeros(device, 1, table.1.cols()));
    let other = frozen(id(Role::Segment), other);
    let zeros = vec![0; ids.len()];
    let y = tape.embed(&[(&weight, ids), (&other, &zeros)]).expect("ids are in range");
    let gradient = tensor(device, y.tensor.shape(), 60 + seed);
    tape.backward(&[(&y, gradient)]).expect("the table trains")
}
