//! Gradients by example from one backward pass, against one backward pass for each example.

use crate::chain::{Chain, LENGTHS, Vocabulary};
use crate::draw::{bare, bias_id, bits, id, indices, numbers, of, tensor, trained, uniform};
use fedra_compute::{
    Activation, Clipping, ComputeError, Device, ExampleGradients, Gradient, Gradients, Logits,
    Lora, LossWeights, Projection, Sequences, Tape, Tensor, ThreadPool, Value,
};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};
use std::collections::BTreeMap;

/// Largest difference relative to the norm of what was expected.
const NEAR: f64 = 1e-5;

fn one(device: &Device) -> Tensor {
    Tensor::scalar(device, 1.0)
}

fn by_example(chain: &Chain, scope: &Scope, vocabulary: Vocabulary) -> ExampleGradients {
    let mut tape = Tape::by_example(&chain.device, &chain.sequences());
    let loss = chain.summed(&mut tape, chain.params.training(scope), vocabulary);
    tape.backward_by_example(&[(&loss, one(&chain.device))]).expect("something trains")
}

/// The gradients of each example alone.
fn naive(chain: &Chain, scope: &Scope, vocabulary: Vocabulary) -> Vec<Gradients> {
    let alone = |number| {
        let chain = chain.example(number);
        if chain.targets.iter().all(Option::is_none) {
            return Gradients::default();
        }
        let mut tape = Tape::new(&chain.device);
        let loss = chain.summed(&mut tape, chain.params.training(scope), vocabulary);
        tape.backward(&[(&loss, one(&chain.device))]).expect("something trains")
    };
    (0..chain.sequences().len()).map(alone).collect()
}

fn square_at(gradients: &Gradients, layer: Layer) -> f64 {
    let here = gradients.iter().filter(|(id, _)| id.layer == layer);
    here.map(|(_, gradient)| gradient.values().sum_of_squares()).sum()
}

fn weight_of(layer: Layer, example: usize) -> f32 {
    let place = match layer {
        Layer::Embedding => 1,
        Layer::Block(block) => 2 + usize::from(block),
        Layer::Head => 9,
    };
    (0.1 + uniform(91, 10 * example + place)) as f32
}

/// The weighted sum of whole gradients, in f64.
fn sums(
    gradients: &[Gradients],
    factor: impl Fn(Layer, usize) -> f32,
) -> BTreeMap<ParamId, Vec<f64>> {
    let mut sums: BTreeMap<ParamId, Vec<f64>> = BTreeMap::new();
    for (example, gradients) in gradients.iter().enumerate() {
        for (id, gradient) in gradients.iter() {
            let dense = gradient.to_dense();
            let factor = f64::from(factor(id.layer, example));
            let sum = sums.entry(id).or_insert_with(|| vec![0.0; dense.len()]);
            sum.iter_mut().zip(&dense).for_each(|(sum, x)| *sum += factor * f64::from(*x));
        }
    }
    sums
}

fn check_sum(found: &Gradients, expected: &BTreeMap<ParamId, Vec<f64>>) {
    // An exact zero (a key's bias) is compared with the size of all.
    let size: f64 = expected.values().flatten().map(|x| x * x).sum::<f64>().sqrt();
    assert_eq!(
        found.iter().map(|(id, _)| id).collect::<Vec<_>>(),
        expected.keys().copied().collect::<Vec<_>>()
    );
    for (id, gradient) in found.iter() {
        let (mut apart, mut norm) = (0.0, 0.0);
        for (x, y) in gradient.to_dense().iter().zip(&expected[&id]) {
            apart += (f64::from(*x) - y).powi(2);
            norm += y * y;
        }
        let bound = NEAR * norm.sqrt() + 1e-7 * size;
        assert!(apart.sqrt() <= bound, "{id}: {} of {}", apart.sqrt(), norm.sqrt());
    }
}

fn check(chain: &Chain, scope: &Scope, vocabulary: Vocabulary) {
    let (found, expected) = (by_example(chain, scope, vocabulary), naive(chain, scope, vocabulary));
    assert_eq!(found.examples(), expected.len());
    for (example, expected) in expected.iter().enumerate() {
        let total = expected.sum_of_squares().sqrt();
        assert!((found.square(example).sqrt() - total).abs() <= NEAR * total, "{example}: {total}");
        for layer in found.layers() {
            let (found, expected) = (found.square_at(layer, example), square_at(expected, layer));
            let (found, expected) = (found.sqrt(), expected.sqrt());
            let near = (found - expected).abs() <= NEAR * expected + 1e-7 * total;
            assert!(near, "example {example} at {layer:?}: {found}, expected {expected}");
        }
    }
    check_sum(&found.weighted_sum(weight_of), &sums(&expected, weight_of));
}

fn part_of(chain: &Chain, keep: impl Fn(ParamId) -> bool) -> Scope {
    chain.params.iter().map(|(id, _)| id).filter(|id| keep(*id)).collect()
}

#[test]
fn norms_and_weighted_sums_are_those_of_each_example_alone() {
    for lengths in [&LENGTHS[..], &[1], &[9], &[1, 1, 1], &[3, 40, 2]] {
        let chain = Chain::new(lengths);
        check(&chain, &chain.everything(), Vocabulary::Own);
    }
}

#[test]
fn a_weight_that_two_operations_train_has_the_norm_of_the_sum() {
    for lengths in [&LENGTHS[..], &[7, 1, 2]] {
        let chain = Chain::new(lengths);
        check(&chain, &chain.everything(), Vocabulary::Tied);
        check(&chain, &part_of(&chain, |id| id.layer == Layer::Embedding), Vocabulary::Tied);
    }
}

#[test]
fn any_part_of_the_model_can_be_told_apart() {
    let chain = Chain::new(&[31, 1, 12]);
    let lora = |id: ParamId| matches!(id.part, Part::LoraA | Part::LoraB);
    let norm =
        |id: ParamId| matches!(id.role, Role::AttentionNorm | Role::MlpNorm | Role::EmbeddingNorm);
    let parts: [&dyn Fn(ParamId) -> bool; 9] = [
        &lora,
        &|id| id.part == Part::LoraA,
        &|id| id.part == Part::LoraB,
        &|id| id.part == Part::Bias,
        &norm,
        &|id| id.layer == Layer::Embedding,
        &|id| id.layer == Layer::Head,
        &|id| id.role == Role::Query && id.layer == Layer::Block(0),
        &|id| id.role == Role::Value || id.role == Role::Query,
    ];
    for keep in parts {
        check(&chain, &part_of(&chain, keep), Vocabulary::Own);
    }
}

#[test]
fn an_example_without_a_target_has_no_gradient() {
    let mut chain = Chain::new(&[5, 3, 6]);
    chain.targets[5..8].fill(None);
    check(&chain, &chain.everything(), Vocabulary::Own);
    check(&chain, &chain.everything(), Vocabulary::Tied);
    let found = by_example(&chain, &chain.everything(), Vocabulary::Own);
    assert_eq!(found.square(1), 0.0);
    assert_eq!(Clipping::Flat(1.0).factors(&found).not_finite(), 0);
}

#[test]
fn examples_that_all_have_a_factor_of_zero_give_zeros_of_every_shape() {
    let chain = Chain::new(&[5, 3]);
    for vocabulary in [Vocabulary::Own, Vocabulary::Tied] {
        let scope = chain.everything();
        let sum = by_example(&chain, &scope, vocabulary).weighted_sum(|_, _| 0.0);
        let plain = naive(&chain, &scope, vocabulary);
        assert_eq!(sum.iter().len(), plain[0].iter().len());
        assert_eq!(sum.sum_of_squares(), 0.0);
    }
}

#[test]
fn a_long_example_of_a_small_vocabulary_has_its_gradient_made() {
    // Longer than the rows of logits that are held at once.
    let device = Device::cpu();
    let (words, width, lengths) = (4001, 3, [1100, 2, 700]);
    let examples = Sequences::of_lengths(&lengths);
    let targets: Vec<_> = indices(5, examples.rows(), words).into_iter().map(Some).collect();
    let x = tensor(&device, (examples.rows(), width), 6);
    let weight = trained(id(Role::Vocabulary), tensor(&device, (words, width), 7));
    let bias = trained(bias_id(Role::Vocabulary), tensor(&device, (1, words), 8));
    let run = |tape: &mut Tape, rows: std::ops::Range<usize>, examples: &Sequences| {
        let x = x.row_range(&device, rows.start, rows.len()).unwrap();
        let x = tape.constant(x).in_sequences(examples).unwrap();
        let vocabulary = Logits::new(&weight, Some(&bias));
        tape.vocabulary_cross_entropy(&x, vocabulary, &targets[rows], LossWeights::SUM).unwrap()
    };
    let mut tape = Tape::by_example(&device, &examples);
    let loss = run(&mut tape, 0..examples.rows(), &examples);
    // The seed's gradient counts too.
    let seed = Tensor::scalar(&device, 3.0);
    let found = tape.backward_by_example(&[(&loss, seed.clone())]).unwrap();
    let alone = examples.ranges().map(|rows| {
        let mut tape = Tape::new(&device);
        let loss = run(&mut tape, rows.clone(), &Sequences::of_lengths(&[rows.len()]));
        tape.backward(&[(&loss, seed.clone())]).unwrap()
    });
    let alone: Vec<Gradients> = alone.collect();
    for (example, alone) in alone.iter().enumerate() {
        let expected = alone.sum_of_squares();
        assert!((found.square(example) - expected).abs() <= 2.0 * NEAR * expected, "{example}");
    }
    check_sum(&found.weighted_sum(weight_of), &sums(&alone, weight_of));
}

/// A linear operation whose factors are given: `dy` is what the backward pass starts from.
struct Given {
    x: Vec<f32>,
    dy: Vec<f32>,
    lengths: Vec<usize>,
    inputs: usize,
    outputs: usize,
}

impl Given {
    fn run(&self, lora: bool) -> (ExampleGradients, ParamId) {
        let device = Device::cpu();
        let examples = Sequences::of_lengths(&self.lengths);
        let rows = examples.rows();
        let mut tape = Tape::by_example(&device, &examples);
        let x = tape.constant(of(&device, (rows, self.inputs), &self.x));
        let x = x.in_sequences(&examples).expect("a row for each");
        let weight = tensor(&device, (self.outputs, self.inputs), 1);
        let weight = fedra_compute::Weight { trains: !lora, ..trained(id(Role::Up), weight) };
        let a = trained(
            ParamId::new(Layer::Block(0), Role::Up, Part::LoraA),
            tensor(&device, (2, self.inputs), 2),
        );
        let b = trained(
            ParamId::new(Layer::Block(0), Role::Up, Part::LoraB),
            tensor(&device, (self.outputs, 2), 3),
        );
        let lora = lora.then_some(Lora { a, b, scale: 0.7, magnitude: None });
        let y = tape.linear(&x, &[Projection { lora, ..bare(weight) }]).expect("widths agree");
        let dy = of(&device, (rows, self.outputs), &self.dy);
        (tape.backward_by_example(&[(&y, dy)]).expect("shapes agree"), id(Role::Up))
    }

    /// The squared norm of each example's gradient, in f64.
    fn squares(&self) -> Vec<f64> {
        let ranges: Vec<_> = Sequences::of_lengths(&self.lengths).ranges().collect();
        let square = |rows: std::ops::Range<usize>| {
            let element = |i: usize, j: usize| -> f64 {
                let term = |t| {
                    f64::from(self.dy[t * self.outputs + i])
                        * f64::from(self.x[t * self.inputs + j])
                };
                rows.clone().map(term).sum()
            };
            let pairs = (0..self.outputs).flat_map(|i| (0..self.inputs).map(move |j| (i, j)));
            pairs.map(|(i, j)| element(i, j).powi(2)).sum()
        };
        ranges.into_iter().map(square).collect()
    }
}

#[test]
fn squares_of_any_shape_agree_with_sums_in_f64() {
    let draw = |case: usize, what: usize, most: usize| {
        1 + (uniform(17, 16 * case + what) * most as f64) as usize
    };
    for case in 0..if cfg!(miri) { 3 } else { 60 } {
        let lengths: Vec<usize> =
            (0..draw(case, 0, 5)).map(|e| draw(case, 1 + e, 90) - 1).collect();
        let (inputs, outputs) = (draw(case, 8, 70), draw(case, 9, 70));
        let rows: usize = lengths.iter().sum();
        let seed = 100 + 2 * case as u64;
        // A common direction in the input, as behind a norm.
        let x = numbers(seed, rows * inputs, (1.0, if case % 2 == 0 { 0.0 } else { 2.0 }));
        let dy = numbers(seed + 1, rows * outputs, (1e-3, 0.0));
        let given = Given { x, dy, lengths, inputs, outputs };
        let found = given.run(false).0;
        for (example, expected) in given.squares().into_iter().enumerate() {
            let found = found.square(example);
            assert!((found - expected).abs() <= 1e-5 * expected, "case {case}: {found} {expected}");
        }
    }
}

/// Rows in pairs that are each other's opposite except for a small part.
fn cancelling(rows: usize, (inputs, outputs): (usize, usize), left_over: f32) -> Given {
    let (mut x, mut dy) = (Vec::new(), Vec::new());
    for pair in 0..rows as u64 / 2 {
        let first = numbers(3 * pair + 1, inputs, (1.0, 1.0));
        let slope = numbers(3 * pair + 2, outputs, (1.0, 0.0));
        let other = numbers(3 * pair + 3, outputs, (1.0, 0.0));
        x.extend(first.iter().chain(&first));
        dy.extend(&slope);
        dy.extend(slope.iter().zip(&other).map(|(slope, other)| left_over * other - slope));
    }
    Given { x, dy, lengths: vec![rows], inputs, outputs }
}

#[test]
fn rows_that_cancel_do_not_get_past_the_clip() {
    for shape in [(4, 5), (64, 96), (130, 7)] {
        for rows in [2, 10, 64, 200] {
            for left_over in [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5] {
                let given = cancelling(rows, shape, left_over);
                let norm = given.squares()[0].sqrt();
                let clip = 0.37 * norm;
                let (gradients, id) = given.run(false);
                let factors = Clipping::Flat(clip).factors(&gradients);
                let contribution = f64::from(factors.at(id.layer, 0)) * norm;
                let what = format!("{shape:?} {rows} rows, {left_over}: {}", contribution / clip);
                assert!(contribution <= clip * (1.0 + 1e-6), "{what}");
                assert!(contribution >= clip * (1.0 - 1e-5), "{what}");
            }
        }
    }
}

#[test]
fn numbers_too_small_for_f32_squares_do_not_get_past_the_clip() {
    let (rows, inputs, outputs) = (6, 40, 40);
    let scaled = |seed, count, scale: f64| numbers(seed, count, (scale, 0.0));
    for (small, large) in [(1e-25, 1e15), (1e-22, 1e10), (1e-30, 1.0), (1e-12, 1e-12)] {
        let given = Given {
            x: scaled(1, rows * inputs, large),
            dy: scaled(2, rows * outputs, small),
            lengths: vec![rows],
            inputs,
            outputs,
        };
        let norm = given.squares()[0].sqrt();
        let (gradients, id) = given.run(false);
        let factor = Clipping::Flat(0.5 * norm).factors(&gradients).at(id.layer, 0);
        assert!(f64::from(factor) <= 0.5 * (1.0 + 1e-6), "{small} {large}: {factor}");
        assert!(factor > 0.499, "{small} {large}: {factor}");
    }
}

#[test]
fn an_example_that_is_not_finite_is_left_out_to_the_last_bit() {
    for lora in [false, true] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
            for spoil_input in [false, true] {
                let (inputs, outputs, lengths) = (33, 20, vec![4, 3, 5]);
                let mut given = Given {
                    x: numbers(1, 12 * inputs, (1.0, 0.0)),
                    dy: numbers(2, 12 * outputs, (1.0, 0.0)),
                    lengths,
                    inputs,
                    outputs,
                };
                let without = Given {
                    x: [&given.x[..4 * inputs], &given.x[7 * inputs..]].concat(),
                    dy: [&given.dy[..4 * outputs], &given.dy[7 * outputs..]].concat(),
                    lengths: vec![4, 5],
                    ..given
                };
                if spoil_input {
                    given.x[5 * inputs + 3] = bad;
                } else {
                    given.dy[5 * outputs + 3] = bad;
                }
                let spoilt = given.run(lora).0;
                assert!(!spoilt.square(1).is_finite() && spoilt.square(2).is_finite());
                let factors = Clipping::Flat(0.5).factors(&spoilt);
                assert_eq!(factors.not_finite(), 1);
                let found = spoilt.weighted_sum(|layer, example| factors.at(layer, example));
                let clean = without.run(lora).0;
                let expected = clean.weighted_sum(|layer, e| factors.at(layer, [0, 2][e]));
                assert_eq!(found.iter().len(), expected.iter().len());
                for ((id, found), (_, expected)) in found.iter().zip(expected.iter()) {
                    assert!(found.to_dense() == expected.to_dense(), "{id} {bad} {lora}");
                }
            }
        }
    }
}

#[test]
fn a_spoilt_example_leaves_the_whole_chain_clean() {
    let mut chain = Chain::new(&[6, 4, 9]);
    let scope = chain.everything();
    // A word that only the second example has.
    chain.ids[6] = 300;
    for (place, id) in chain.ids.clone().iter().enumerate() {
        if *id == 300 && place != 6 {
            chain.ids[place] = 299;
        }
    }
    let table = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
    let mut numbers = chain.params.get(table).unwrap().to_host().into_owned();
    let last = numbers.len() - 1;
    numbers[last] = f32::NAN;
    let spoilt = of(&chain.device, chain.params.get(table).unwrap().shape(), &numbers);
    chain.params.insert(table, spoilt);
    let found = by_example(&chain, &scope, Vocabulary::Own);
    let factors = Clipping::Flat(1e-2).factors(&found);
    assert_eq!(factors.not_finite(), 1);
    let found = found.weighted_sum(|layer, example| factors.at(layer, example));
    assert!(found.iter().all(|(_, g)| g.values().to_host().iter().all(|x| x.is_finite())));
    let mut alone = naive(&chain, &scope, Vocabulary::Own);
    alone[1] = Gradients::default();
    check_sum(&found, &sums(&alone, |layer, example| factors.at(layer, example)));
}

#[test]
fn norms_and_sums_are_the_same_bits_on_any_number_of_threads() {
    let run = |threads| {
        ThreadPool::new(threads).unwrap().install(|| {
            let mut all = Vec::new();
            for vocabulary in [Vocabulary::Own, Vocabulary::Tied] {
                let chain = Chain::new(&LENGTHS);
                let found = by_example(&chain, &chain.everything(), vocabulary);
                let squares: Vec<u64> = found
                    .layers()
                    .flat_map(|layer| (0..4).map(move |e| (layer, e)))
                    .map(|(layer, e)| found.square_at(layer, e).to_bits())
                    .collect();
                let sum = found.weighted_sum(weight_of);
                let stored = |(_, gradient): (ParamId, &Gradient)| bits(gradient.values());
                all.push((squares, sum.iter().map(stored).collect::<Vec<_>>()));
            }
            all
        })
    };
    let alone = run(1);
    assert!(run(2) == alone && run(3) == alone);
}

#[test]
fn clipping_by_layer_bounds_each_layer() {
    let chain = Chain::new(&[20, 30]);
    let scope = chain.everything();
    let norms: BTreeMap<Layer, f64> =
        [(Layer::Embedding, 0.1), (Layer::Block(0), 0.2), (Layer::Block(1), 1e6)]
            .into_iter()
            .collect();
    let found = by_example(&chain, &scope, Vocabulary::Own);
    let factors = Clipping::PerLayer(norms.clone()).factors(&found);
    for example in 0..2 {
        for layer in found.layers() {
            let through =
                f64::from(factors.at(layer, example)) * found.square_at(layer, example).sqrt();
            let bound = norms.get(&layer).copied().unwrap_or(0.0);
            assert!(through <= bound * (1.0 + 1e-6), "{layer:?}: {through} of {bound}");
        }
    }
    assert_eq!((factors.clipped(Layer::Embedding), factors.clipped(Layer::Block(1))), (2, 0));
    let sum = found.weighted_sum(|layer, example| factors.at(layer, example));
    assert_eq!(square_at(&sum, Layer::Head), 0.0);
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    let device = Device::cpu();
    let examples = Sequences::of_lengths(&[2, 1]);
    let x = || tensor(&device, (3, 4), 1);
    let projection = bare(trained(id(Role::Up), tensor(&device, (4, 4), 2)));
    let mut tape = Tape::by_example(&device, &examples);
    let rows: Value = tape.constant(x());
    let error = tape.linear_activated(&rows, &projection, Activation::Gelu).unwrap_err();
    assert_eq!(error.to_string(), "linear: description of where sequences begin is empty");
    let other = tape.constant(x()).in_sequences(&Sequences::of_lengths(&[3])).unwrap();
    let error = tape.linear(&other, std::slice::from_ref(&projection)).unwrap_err();
    assert_eq!(error.to_string(), "linear: number of sequences is 1, expected 2");
    let table = trained(id(Role::Token), tensor(&device, (4, 4), 2));
    let error = tape.embed(&[(&table, &[0, 1])]).unwrap_err();
    assert_eq!(error.to_string(), "embedding: number of tokens is 2, expected 3");
    let y = tape.constant(x()).in_sequences(&examples).unwrap();
    let y = tape.linear(&y, &[projection]).unwrap();
    let error = tape.backward(&[(&y, x())]).unwrap_err();
    assert_eq!(error, ComputeError::ByExample);
    let error = Tape::new(&device).backward_by_example(&[]).unwrap_err();
    assert_eq!(error, ComputeError::NotByExample);
}
