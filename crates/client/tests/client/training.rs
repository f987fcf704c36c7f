//! What a trainer does to parameters, and what it must not do.

use crate::world::{Size, World, adamw, bits, sgd};
use fedra_client::{Correction, TrainResult, TrainTask, Trainer, to_values};
use fedra_compute::{Params, Tape, Tensor};
use fedra_data::{Target, Task, epoch};
use fedra_engine::{OptimiserConfig, Work};
use fedra_model::{Batch, Targets};
use fedra_plan::{ByteCount, Scope};
use fedra_seed::Seed;
use fedra_wire::ParamValues;

const NO_CACHE: ByteCount = ByteCount(0);

fn train(world: &World, cache: ByteCount, lesson: &TrainTask<'_>) -> (Params, TrainResult) {
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache };
    let learnt = trainer.train(&mut params, lesson).unwrap();
    (params, learnt)
}

fn learnt(world: &World, work: &Work, correction: Correction<&ParamValues>) -> TrainResult {
    let scope = world.everything();
    train(world, NO_CACHE, &TrainTask { correction, ..world.lesson(&scope, work) }).1
}

#[test]
fn one_step_is_the_step_written_by_hand() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let (scope, rate) = (world.everything(), 0.5);
    let work = Work { batch: 10_000, ..sgd(rate) };
    let lesson = world.lesson(&scope, &work);
    let (_, learnt) = train(&world, NO_CACHE, &lesson);

    let lengths: Vec<usize> = lesson.examples.iter().map(|e| e.ids.len()).collect();
    let order = epoch(&lengths, 10_000, Seed(5).of("order").with(0).0);
    let rows = || order[0].iter().map(|&row| &lesson.examples[row]);
    let labels = rows().flat_map(|row| {
        let Target::PerToken(labels) = &row.target else { panic!("concepts label tokens") };
        labels.clone()
    });
    let labels: Vec<Option<u32>> = labels.collect();
    let batch = Batch::new(&rows().map(|row| &row.ids).collect::<Vec<_>>()).unwrap();
    let mut tape = Tape::new(&world.device);
    let weights = world.params.training(&scope);
    let loss = world.model.loss(&mut tape, weights, &batch, Targets::Classes(&labels)).unwrap();
    assert_eq!((learnt.course.steps, learnt.course.loss), (1, Some(f64::from(loss.tensor.item()))));
    let gradients = tape.backward(&[(&loss, Tensor::scalar(&world.device, 1.0))]).unwrap();
    for (id, change) in learnt.change.iter() {
        let before = world.params.get(id).unwrap().to_host();
        let gradient = gradients.get(id).unwrap().to_dense();
        for ((change, w), g) in change.iter().zip(&*before).zip(gradient) {
            assert_eq!(change.to_bits(), ((w - rate * g) - w).to_bits(), "{id}");
        }
    }
}

#[test]
fn proximal_training_without_pull_is_plain_to_the_bit() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let work = Work { epochs: 2, ..adamw(1e-2) };
    let plain = learnt(&world, &work, Correction::Nothing);
    let without = learnt(&world, &work, Correction::Proximal { mu: 0.0 });
    assert_eq!(bits(&plain.change), bits(&without.change));
    let pulled = learnt(&world, &sgd(0.5), Correction::Proximal { mu: 0.5 });
    let free = learnt(&world, &sgd(0.5), Correction::Nothing);
    let length = |learnt: &TrainResult| -> f32 {
        learnt.change.iter().flat_map(|(_, values)| values.iter().map(|x| x * x)).sum()
    };
    assert!(length(&pulled) < length(&free));
}

#[test]
fn zero_variates_and_one_step_are_plain_and_the_next_variate_is_option_two() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let none = ParamValues::new();
    let zero = Correction::Variates { own: &none, server: &none };
    let one = Work { max_steps: Some(1), ..sgd(0.1) };
    let (plain, scaffold) = (learnt(&world, &one, Correction::Nothing), learnt(&world, &one, zero));
    assert_eq!(bits(&plain.change), bits(&scaffold.change));

    // c_i - c + (w_t - w) / (steps rate) with any variates, up to the rounding of weights near 1.
    let server = scaffold.course.mean_gradient.unwrap();
    let some = Correction::Variates { own: &none, server: &server };
    let work = sgd(0.1);
    let learnt = learnt(&world, &work, some);
    assert!(learnt.course.steps > 1);
    for (id, mean) in learnt.course.mean_gradient.as_ref().unwrap().iter() {
        let (change, c) = (learnt.change.get(id).unwrap(), server.get(id).unwrap());
        for ((mean, change), c) in mean.iter().zip(change).zip(c) {
            let second = -c - change / (learnt.course.steps as f32 * 0.1);
            assert!((mean - second).abs() < 2e-5, "{id}: {mean} and {second}");
        }
    }
}

#[test]
fn a_dynamic_term_acts_from_the_second_step_on_or_through_its_memory() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let none = ParamValues::new();
    let dynamic = Correction::Dynamic { alpha: 0.5, memory: &none };
    let proximal = Correction::Proximal { mu: 0.5 };
    let work = sgd(0.5);
    let (without, pulled) = (learnt(&world, &work, dynamic), learnt(&world, &work, proximal));
    assert_eq!(bits(&without.change), bits(&pulled.change));
    let remembered = Correction::Dynamic { alpha: 0.5, memory: &pulled.change };
    assert_ne!(bits(&learnt(&world, &work, remembered).change), bits(&pulled.change));
}

#[test]
fn frozen_query_and_key_stay_bit_identical_under_adamw_with_decay() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let scope = world.without_kernel();
    let (params, learnt) = train(&world, NO_CACHE, &world.lesson(&scope, &adamw(1e-2)));
    assert_eq!(learnt.change.scope(), scope);
    for (id, tensor) in params.iter() {
        let before = world.params.get(id).unwrap();
        assert_eq!(tensor.same_storage(before), !scope.contains(id), "{id}");
    }
}

#[test]
fn a_prefix_cache_changes_no_bit() {
    for task in [Task::Concepts, Task::Diagnosis] {
        let world = World::new(task, Size::SMALL);
        let upper = Scope::of_blocks(world.model.layout(), [1]) | world.head();
        let work = Work { epochs: 3, ..adamw(1e-2) };
        for scope in [world.head(), upper] {
            let lesson = world.lesson(&scope, &work);
            let (_, without) = train(&world, NO_CACHE, &lesson);
            // The second budget is too small for all examples: some come from the cache.
            for budget in [1 << 20, 10_000] {
                let (_, with) = train(&world, ByteCount(budget), &lesson);
                assert_eq!(bits(&without.change), bits(&with.change), "{task:?} {budget}");
                assert_eq!(without.course.loss, with.course.loss);
            }
        }
    }
}

#[test]
fn a_loss_that_is_no_number_names_client_and_step() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let (scope, work) = (world.everything(), sgd(1e30));
    let trainer = Trainer { model: &world.model, device: &world.device, cache: NO_CACHE };
    let error = trainer.train(&mut world.params.clone(), &world.lesson(&scope, &work));
    let message = error.unwrap_err().to_string();
    assert!(message.starts_with("hospital-1: the loss of step 2 is"), "{message}");
}

#[test]
fn a_lesson_without_examples_or_scope_is_refused() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let (all, none, work) = (world.everything(), Scope::empty(), sgd(0.1));
    let trainer = Trainer { model: &world.model, device: &world.device, cache: NO_CACHE };
    let check = |lesson: TrainTask<'_>, expected: &str| {
        let error = trainer.train(&mut world.params.clone(), &lesson).unwrap_err();
        assert_eq!(error.to_string(), format!("hospital-1: found no {expected}"));
    };
    check(world.lesson(&none, &work), "parameter to train, expected at least one");
    let empty = TrainTask { examples: &[], ..world.lesson(&all, &work) };
    check(empty, "example to train on, expected at least one");
}

#[test]
fn steps_and_gradients_are_limited_as_the_work_says() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let work = Work { epochs: 9, max_steps: Some(1), clip: Some(0.01), ..sgd(1.0) };
    let learnt = learnt(&world, &work, Correction::Nothing);
    assert_eq!(learnt.course.steps, 1);
    let squares = learnt.change.iter().flat_map(|(_, v)| v.iter().map(|x| f64::from(x * x)));
    let norm = squares.sum::<f64>().sqrt();
    // One step of rate 1 along a gradient of that norm; the slack is the rounding of w + change.
    assert!((norm - 0.01).abs() < 1e-4, "{norm}");
    assert_eq!(to_values(&world.params).scope(), learnt.change.scope());
}

/// Every solver with one of its settings replaced by this value.
fn solvers_with(value: f32) -> Vec<OptimiserConfig> {
    let (rate, momentum, weight_decay) = (0.01, 0.9, 0.1);
    let (beta1, beta2, epsilon) = (0.9, 0.999, 1e-8);
    vec![
        OptimiserConfig::Sgd { rate: value, weight_decay },
        OptimiserConfig::Sgd { rate, weight_decay: value },
        OptimiserConfig::Momentum { rate: value, momentum, weight_decay },
        OptimiserConfig::Momentum { rate, momentum: value, weight_decay },
        OptimiserConfig::Momentum { rate, momentum, weight_decay: value },
        OptimiserConfig::AdamW { rate: value, beta1, beta2, epsilon, weight_decay },
        OptimiserConfig::AdamW { rate, beta1: value, beta2, epsilon, weight_decay },
        OptimiserConfig::AdamW { rate, beta1, beta2: value, epsilon, weight_decay },
        OptimiserConfig::AdamW { rate, beta1, beta2, epsilon: value, weight_decay },
        OptimiserConfig::AdamW { rate, beta1, beta2, epsilon, weight_decay: value },
    ]
}

#[test]
fn every_setting_of_a_solver_that_is_accepted_runs_a_step_and_the_others_do_not() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let scope = world.head();
    let below_one = 1.0 - f32::EPSILON;
    let small = [-f32::INFINITY, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1e-30, 1e-8];
    let large = [0.5, below_one, 1.0, 2.0, f32::INFINITY, f32::NAN];
    let (mut accepted, mut refused) = (0, 0);
    for solver in small.into_iter().chain(large).flat_map(solvers_with) {
        let work = Work { batch: 8, max_steps: Some(1), ..Work::new(solver) };
        let trainer = Trainer { model: &world.model, device: &world.device, cache: NO_CACHE };
        let trained = trainer.train(&mut world.params.clone(), &world.lesson(&scope, &work));
        assert_eq!(work.check().is_ok(), trained.is_ok(), "{solver:?}: {trained:?}");
        match trained {
            Ok(learnt) => {
                let finite =
                    |(_, values): (_, &[f32])| values.iter().all(|value| value.is_finite());
                assert!(learnt.change.iter().all(finite), "{solver:?}");
                accepted += 1;
            }
            Err(_) => refused += 1,
        }
    }
    // Of 14 values, ten settings refuse five at least; only epsilon refuses 0 and -0.
    assert_eq!((accepted, refused), (82, 58));
}
