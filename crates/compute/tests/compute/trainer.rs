//! What people expect of a trainer, against PyTorch and transformers: losses with weights of classes and label
//! smoothing, optimisers under a schedule, moments that live on. And dropout.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::draw::{distance, frozen, id, norm, of, tensor, trained};
use crate::golden::{float, floats, list};
use fedra_compute::{
    Device, Dropout, DropoutPlace, Gradients, Logits, LossWeights, Optimiser, Params, Projection,
    Seed, Sequences, Solver, Tape, Tensor, Value,
};
use fedra_plan::{Layer, ParamId, Part, Role};
use serde_json::Value as Json;

const TABLE: ParamId = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);

/// Relative to the norm: sums of up to 40 terms.
const TOLERANCE: f64 = 1e-6;

/// The file that `tools/trainer_fixtures.py` made.
fn read() -> Json {
    let text = include_str!("../golden/trainer.json");
    serde_json::from_str(text).expect("the golden file is JSON")
}

/// A case's loss and the gradient of its logits, as one matrix or as a vocabulary in front of which the
/// logits are the input.
fn answered(case: &Json, as_vocabulary: bool, smoothing: f32) -> (f32, Vec<f32>) {
    let [rows, classes] = [0, 1].map(|i| case["shape"][i].as_u64().unwrap() as usize);
    let label = |target: &Json| target.as_u64().map(|target| target as u32);
    let targets: Vec<Option<u32>> = list(&case["targets"]).iter().map(label).collect();
    let by_class: Option<Vec<f32>> =
        case["class_weights"].as_array().map(|_| floats(&case["class_weights"]));
    let weight =
        |target: &u32| by_class.as_ref().map_or(1.0, |all| f64::from(all[*target as usize]));
    let divisor = targets.iter().flatten().map(weight).sum();
    let class_weights = by_class.as_deref();
    let weights = LossWeights { divisor, class_weights, smoothing, ..LossWeights::SUM };
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let x = tape.input(of(&device, (rows, classes), &floats(&case["logits"])));
    let loss = if as_vocabulary {
        let mut same = vec![0.0; classes * classes];
        (0..classes).for_each(|class| same[class * (classes + 1)] = 1.0);
        let vocabulary = frozen(id(Role::Vocabulary), of(&device, (classes, classes), &same));
        let logits = Logits::new(&vocabulary, None);
        tape.vocabulary_cross_entropy(&x, logits, &targets, weights).unwrap()
    } else {
        tape.cross_entropy(&x, &targets, weights).unwrap()
    };
    let found = loss.tensor.item();
    let gradients = tape.backward(&[(&loss, Tensor::scalar(&device, 1.0))]).unwrap();
    (found, gradients.of_input(&x).unwrap().to_host().into_owned())
}

#[test]
fn class_weights_and_label_smoothing_are_those_of_pytorch() {
    let golden = read();
    let cases = list(&golden["losses"]);
    assert_eq!(cases.len(), 5);
    for case in cases {
        for as_vocabulary in [false, true] {
            let name = format!("{} {as_vocabulary}", case["name"]);
            let (loss, gradient) = answered(case, as_vocabulary, float(&case["label_smoothing"]));
            let error = (f64::from(loss) / case["loss"].as_f64().unwrap() - 1.0).abs();
            assert!(error < TOLERANCE, "{name}: the loss is off by {error:e}");
            let error = distance(&gradient, &floats(&case["gradient"]));
            assert!(error < TOLERANCE, "{name}: the gradient is off by {error:e}");
        }
    }
}

#[test]
fn smoothing_that_vanishes_is_none() {
    for case in list(&read()["losses"]) {
        let (without, slope) = answered(case, false, 0.0);
        let (with, smoothed) = answered(case, false, 1e-12);
        assert!((without - with).abs() < 1e-5, "{}", case["name"]);
        assert!(distance(&smoothed, &slope) < 1e-5, "{}", case["name"]);
    }
}

#[test]
fn weights_of_other_classes_and_shares_above_one_are_refused() {
    let device = Device::cpu();
    let check = |weights: LossWeights<'_>, expected: &str| {
        let mut tape = Tape::new(&device);
        let x = tape.input(tensor(&device, (2, 3), 1));
        let refused = tape.cross_entropy(&x, &[Some(0), None], weights).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    };
    let weights = |class_weights| LossWeights { class_weights, ..LossWeights::SUM };
    check(weights(Some(&[1.0, 2.0])), "number of class weights");
    check(weights(Some(&[1.0, f32::NAN, 2.0])), "weight of a class is NaN");
    check(weights(Some(&[1.0, -1.0, 2.0])), "weight of a class is -1");
    check(LossWeights { smoothing: 1.5, ..LossWeights::SUM }, "label smoothing is 1.5");
    let mut tape = Tape::new(&device);
    let x = tape.input(tensor(&device, (1, 3), 1));
    let smoothed = LossWeights { smoothing: 0.1, ..LossWeights::SUM };
    let refused = tape.multi_label(&x, &[0.0, 1.0, 0.0], smoothed).unwrap_err().to_string();
    assert!(refused.contains("several labels are told at once"), "{refused}");
}

fn dense(device: &Device, numbers: &[f32]) -> Gradients {
    let mut tape = Tape::new(device);
    let weight = trained(TABLE, Tensor::zeros(device, 2, 3));
    let x = tape.embed(&[(&weight, &[0, 1])]).unwrap();
    let mut gradients = tape.backward(&[(&x, of(device, (2, 3), numbers))]).unwrap();
    gradients.iter_mut().for_each(|(_, gradient)| _ = gradient.densify());
    gradients
}

#[test]
fn optimisers_under_a_schedule_follow_pytorch_and_moments_live_on() {
    let golden = read();
    let device = Device::cpu();
    let factors = floats(&golden["schedules"]["cosine"]);
    for case in list(&golden["trajectories"]) {
        let (rate, weight_decay) = (1e-2, 0.1);
        let solver = match case["name"].as_str().unwrap() {
            "adamw" => Solver::adamw(rate, weight_decay),
            "momentum" => Solver::Momentum { rate, momentum: 0.9, weight_decay },
            unknown => panic!("no optimiser is called {unknown}"),
        };
        let start = of(&device, (2, 3), &floats(&case["start"]));
        let mut params: Params = [(TABLE, start)].into_iter().collect();
        let mut optimiser = Optimiser::new(&device, solver).unwrap();
        let steps = list(&case["gradients"]).iter().zip(list(&case["trajectory"]));
        for ((gradient, expected), factor) in steps.zip(&factors) {
            // A round ends after every step: the moments are taken out and given to another one.
            let mut next = Optimiser::new(&device, solver).unwrap();
            for (id, steps, moments) in optimiser.moments() {
                next.restore(id, steps, moments.clone());
            }
            optimiser = next;
            optimiser.schedule(*factor).unwrap();
            optimiser.step(&mut params, &dense(&device, &floats(gradient))).unwrap();
            let error = distance(&params.get(TABLE).unwrap().to_host(), &floats(expected));
            assert!(error < TOLERANCE, "{solver:?} is off by {error:e}");
        }
    }
    let mut optimiser = Optimiser::new(&device, Solver::adamw(0.1, 0.0)).unwrap();
    assert!(optimiser.schedule(-1.0).is_err() && optimiser.schedule(f32::NAN).is_err());
}

#[test]
fn the_usual_weight_decay_is_that_of_pytorch() {
    let Solver::AdamW { weight_decay, .. } = Solver::default() else { panic!("AdamW is usual") };
    assert_eq!(weight_decay, float(&read()["adamw_weight_decay"]));
}

const PLACE: (Layer, DropoutPlace) = (Layer::Block(3), DropoutPlace::Mlp);

fn drops(rate: f32, seeds: &[u64], frozen: Option<u16>) -> Dropout {
    Dropout { rate, seeds: seeds.iter().map(|seed| Seed(*seed)).collect(), frozen }
}

/// Ones behind dropout, for sequences of these lengths.
fn dropped(
    lengths: &[usize],
    dropout: impl Into<Option<Dropout>>,
    place: (Layer, DropoutPlace),
) -> Vec<f32> {
    let device = Device::cpu();
    let mut tape = Tape::new(&device).with_dropout(dropout.into());
    let rows = lengths.iter().sum();
    let ones = tape.constant(of(&device, (rows, 64), &vec![1.0; rows * 64]));
    let ones = ones.in_sequences(&Sequences::of_lengths(lengths)).unwrap();
    tape.dropped(ones, place).unwrap().tensor.to_host().into_owned()
}

#[test]
fn a_sequence_drops_the_same_in_every_batch() {
    let both = dropped(&[3, 2], drops(0.25, &[7, 9], None), PLACE);
    assert_eq!(both[..3 * 64], dropped(&[3], drops(0.25, &[7], None), PLACE));
    assert_eq!(both[3 * 64..], dropped(&[2], drops(0.25, &[9], None), PLACE));
    let other = dropped(&[3], drops(0.25, &[8], None), PLACE);
    assert_ne!(both[..3 * 64], other);
    let elsewhere = (Layer::Block(3), DropoutPlace::Attention);
    assert_ne!(dropped(&[3], drops(0.25, &[7], None), elsewhere), both[..3 * 64]);
    let below = (Layer::Block(2), DropoutPlace::Mlp);
    assert_ne!(dropped(&[3], drops(0.25, &[7], None), below), both[..3 * 64]);
}

#[test]
fn a_share_is_dropped_and_the_rest_keeps_the_mean() {
    let many = dropped(&[400], drops(0.25, &[5], None), PLACE);
    let zeros = many.iter().filter(|x| **x == 0.0).count() as f64 / many.len() as f64;
    assert!((zeros - 0.25).abs() < 0.01, "{zeros}");
    assert!(many.iter().all(|x| *x == 0.0 || *x == 1.0 / 0.75));
}

#[test]
fn nothing_is_dropped_in_a_frozen_prefix_or_without_a_rate() {
    let ones = vec![1.0; 3 * 64];
    let with = |frozen, place| dropped(&[3], drops(0.5, &[7], frozen), place);
    assert_eq!(with(Some(4), PLACE), ones);
    assert_ne!(with(Some(3), PLACE), ones);
    let (embedding, head) = (Layer::Embedding, Layer::Head);
    assert_eq!(with(Some(0), (embedding, DropoutPlace::Embedding)), ones);
    assert_ne!(with(None, (embedding, DropoutPlace::Embedding)), ones);
    assert_ne!(with(Some(9), (head, DropoutPlace::Classifier)), ones);
    assert_eq!(dropped(&[3], None, PLACE), ones);
    assert_eq!(dropped(&[3], drops(0.0, &[7], None), PLACE), ones);
}

#[test]
fn gradients_flow_through_what_was_kept() {
    let device = Device::cpu();
    let sequences = Sequences::of_lengths(&[2, 3]);
    let run = |x: &[f32], seed: Tensor| -> (Vec<f32>, Vec<f32>) {
        let mut tape = Tape::new(&device).with_dropout(Some(drops(0.5, &[1, 2], None)));
        let input = tape.input(of(&device, (5, 4), x));
        let y: Value = input.clone().in_sequences(&sequences).unwrap();
        let y = tape.dropped(y, PLACE).unwrap();
        let projection = Projection {
            weight: trained(TABLE, tensor(&device, (3, 4), 2)),
            bias: None,
            lora: None,
        };
        let out = tape.linear(&y, &[projection]).unwrap();
        let kept = y.tensor.to_host().into_owned();
        let gradients = tape.backward(&[(&out, seed)]).unwrap();
        (kept, gradients.of_input(&input).unwrap().to_host().into_owned())
    };
    let (kept, gradient) = run(&[1.0; 20], of(&device, (5, 3), &[1.0; 15]));
    for (kept, gradient) in kept.iter().zip(&gradient) {
        assert_eq!(*kept == 0.0, *gradient == 0.0);
    }
    assert!(norm(&gradient) > 0.0);
    let mut tape = Tape::new(&device).with_dropout(Some(drops(0.5, &[1], None)));
    let two = tape.constant(Tensor::zeros(&device, 5, 4)).in_sequences(&sequences).unwrap();
    assert!(tape.dropped(two, PLACE).unwrap_err().to_string().contains("number of seeds"));
}
