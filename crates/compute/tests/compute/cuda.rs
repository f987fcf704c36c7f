//! The GPU against the processor, where there is one. `fedra bench check` compares whole models.

#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use fedra_compute::{
    Activation, Angles, Attention, AttentionProbe, Clipping, Cuda, Device, ExampleGradients,
    Gradients, Logits, Lora, LossWeights, Magnitude, Mask, Precision, Projected, Projection,
    SecretKey, Seed, Sequences, Span, Tape, Tensor, Value, Weight, set_worker,
};
use fedra_plan::{Layer, ParamId, Part, Role};
use std::sync::Arc;

/// The first GPU, or nothing and a reason.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn gpu(precision: Precision) -> Option<Device> {
    match Device::cuda(0, precision) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let mut draw = Seed(seed as u64).generator();
    (0..count).map(|_| (2.0 * draw.uniform() - 1.0) as f32).collect()
}

/// The loss and all gradients of a small network with attention of this width.
fn gradients(device: &Device, width: usize, mask: Mask, window: Option<usize>) -> Vec<f32> {
    let (heads, kv_heads, lengths) = (4, 2, [1, 70, 33]);
    let tokens: usize = lengths.iter().sum();
    let inputs = 24;
    let weight = |part: usize, rows: usize, cols: usize| {
        let roles = [Role::Query, Role::Classifier];
        let id = ParamId::new(Layer::Block(0), roles[part], Part::Weight);
        let numbers = numbers(rows * cols, part);
        let tensor = Tensor::from_slice(device, rows, cols, &numbers).unwrap();
        Weight { id, tensor, trains: true }
    };
    let projection = |weight: Weight| Projection { weight, bias: None, lora: None };
    let mut tape = Tape::new(device);
    let x = Tensor::from_slice(device, tokens, inputs, &numbers(tokens * inputs, 5)).unwrap();
    let x = tape.input(x).in_sequences(&Sequences::of_lengths(&lengths)).unwrap();
    let outputs = (heads + 2 * kv_heads) * width;
    let all = tape.linear(&x, &[projection(weight(0, outputs, inputs))]).unwrap();
    let geometry = Attention { window, ..Attention::new(heads, kv_heads, width, mask) };
    let spans: Vec<Span> = Sequences::of_lengths(&lengths)
        .ranges()
        .map(|rows| Span { queries: rows.clone(), keys: rows, offset: 0 })
        .collect();
    let out = tape.attention(geometry, Projected::Together(&all), &spans, None).unwrap();
    let head = projection(weight(1, 5, heads * width));
    let logits = tape.linear_activated(&out, &head, Activation::GeluTanh).unwrap();
    let targets: Vec<_> = (0..tokens).map(|i| Some(i as u32 % 5)).collect();
    let loss = tape.cross_entropy(&logits, &targets, LossWeights::mean(tokens)).unwrap();
    let mut found = vec![loss.tensor.item()];
    let gradients = tape.backward(&[(&loss, Tensor::scalar(device, 1.0))]).unwrap();
    found.extend(&*gradients.of_input(&x).unwrap().to_host());
    found.extend(gradients.iter().flat_map(|(_, gradient)| gradient.to_dense()));
    found
}

fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let pairs = ours.iter().zip(theirs);
    let apart: f64 = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let size: f64 = theirs.iter().map(|b| f64::from(*b).powi(2)).sum();
    (apart / size).sqrt()
}

#[test]
fn attention_of_every_width_mask_and_window_is_the_processors() {
    for (precision, bound) in [(Precision::F32, 5e-5), (Precision::Bf16, 4e-2)] {
        let Some(device) = gpu(precision) else { return };
        let host = Device::cpu();
        for width in [8, 20, 32, 64, 80, 96, 128, 256] {
            for (mask, window) in [
                (Mask::Bidirectional, None),
                (Mask::Causal, None),
                (Mask::Bidirectional, Some(9)),
                (Mask::Causal, Some(40)),
            ] {
                let ours = gradients(&device, width, mask, window);
                let theirs = gradients(&host, width, mask, window);
                let found = difference(&ours, &theirs);
                assert!(found < bound, "{precision:?} {width} {mask:?} {window:?}: {found:e}");
                let again = gradients(&device, width, mask, window);
                assert!(ours == again, "{precision:?} {width}: not the same bits twice");
            }
        }
    }
}

#[test]
fn threads_that_work_aside_find_the_bits_of_one_alone() {
    let Some(device) = gpu(Precision::Bf16) else { return };
    let all = |device: &Device| -> Vec<Vec<f32>> {
        [8, 32, 64].map(|width| gradients(device, width, Mask::Causal, Some(20))).to_vec()
    };
    let alone = all(&device);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (device, alone, all) = (&device, &alone, &all);
            scope.spawn(move || {
                set_worker(worker);
                for _ in 0..10 {
                    let kept = device.aside(|| Tensor::zeros(device, 1000, 1000));
                    let found = device.aside(|| all(device));
                    assert!(found == *alone, "thread {worker} found other bits");
                    // Memory of a lane that others give back.
                    drop(kept);
                }
            });
        }
    });
}

#[test]
fn too_large_a_tensor_is_an_error_that_says_how_much_was_needed() {
    // Nothing is computed after a failure: not on the one that all tests share.
    let Some(Ok(device)) = gpu(Precision::F32).map(|_| Cuda::open_apart(0, Precision::F32)) else {
        return;
    };
    let device = Device::Cuda(device);
    drop(Tensor::zeros(&device, 1 << 20, 1 << 20));
    let error = device.check().unwrap_err().to_string();
    assert!(error.starts_with("out of GPU memory: 4.4 TB more were needed"), "{error}");
}

/// What three sequences of different lengths give when each reads its tokens and then writes three more, one at a time.
fn decoded(device: &Device, geometry: Attention) -> Vec<f32> {
    let Attention { heads, kv_heads, width, .. } = geometry;
    let (columns, lengths) = ((heads + 2 * kv_heads) * width, [1, 300, 130]);
    let mut caches: Vec<Tensor> =
        lengths.iter().map(|_| Tensor::with_capacity(device, 4, 2 * kv_heads * width)).collect();
    let angles = Arc::new(Angles::new(512, width, 1e4));
    let mut found = Vec::new();
    let mut before = [0; 3];
    for (step, new) in [lengths, [1; 3], [1; 3], [1; 3]].into_iter().enumerate() {
        let mut tape = Tape::new(device);
        let rows: usize = new.iter().sum();
        let given =
            Tensor::from_slice(device, rows, columns, &numbers(rows * columns, step)).unwrap();
        // Through a product, for the precision that a device has activations in.
        let eye: Vec<f32> =
            (0..columns * columns).map(|i| f32::from(u8::from(i % (columns + 1) == 0))).collect();
        let eye = Weight {
            id: ParamId::new(Layer::Block(0), Role::Query, Part::Weight),
            tensor: Tensor::from_slice(device, columns, columns, &eye).unwrap(),
            trains: false,
        };
        let given = tape.constant(given);
        let projection = Projection { weight: eye, bias: None, lora: None };
        let projected = tape.linear(&given, &[projection]).unwrap();
        let mut first = 0;
        let mut spans = Vec::new();
        let mut positions = Vec::new();
        for (new, before) in new.iter().zip(before) {
            spans.push(Span { queries: first..first + new, keys: 0..before + new, offset: before });
            positions.extend(before as u32..(before + new) as u32);
            first += new;
        }
        let turned = Some((&positions[..], &angles));
        let into = (&spans[..], caches.iter_mut().collect());
        let out = tape.cached_attention(geometry, projected, turned, into).unwrap();
        found.extend(&*out.tensor.to_host());
        before.iter_mut().zip(new).for_each(|(before, new)| *before += new);
    }
    found.extend(caches.iter().flat_map(|cache| cache.to_host().to_vec()));
    found
}

#[test]
fn new_tokens_over_caches_are_the_processors() {
    for (precision, bound) in [(Precision::F32, 1e-5), (Precision::Bf16, 1.5e-2)] {
        let Some(device) = gpu(precision) else { return };
        let host = Device::cpu();
        for (heads, kv_heads) in [(4, 4), (6, 2), (8, 1)] {
            for width in [8, 24, 32, 64, 80, 96, 128, 256] {
                let usual = Attention::new(heads, kv_heads, width, Mask::Causal);
                let narrow = Attention { window: Some(140), soft_cap: Some(3.0), ..usual };
                for geometry in [usual, narrow] {
                    let ours = decoded(&device, geometry);
                    let found = difference(&ours, &decoded(&host, geometry));
                    assert!(found < bound, "{precision:?} {geometry:?}: {found:e}");
                    assert!(ours == decoded(&device, geometry), "{geometry:?}: other bits again");
                }
            }
        }
    }
}

#[test]
fn products_with_few_rows_are_the_processors() {
    let Some(device) = gpu(Precision::Bf16) else { return };
    let host = Device::cpu();
    let all = |device: &Device, rows: usize, inputs: usize| {
        let weight = |number: usize, outputs: usize, part: Part| {
            let (rows, cols) = if part == Part::Bias { (1, outputs) } else { (outputs, inputs) };
            let tensor =
                Tensor::from_slice(device, rows, cols, &numbers(rows * cols, number)).unwrap();
            let id = ParamId::new(Layer::Block(number as u16), Role::Query, part);
            Weight { id, tensor, trains: false }
        };
        let projection = |number: usize, outputs: usize| Projection {
            weight: weight(number, outputs, Part::Weight),
            bias: (number != 1).then(|| weight(number, outputs, Part::Bias)),
            lora: None,
        };
        let mut tape = Tape::new(device);
        let x = Tensor::from_slice(device, rows, inputs, &numbers(rows * inputs, 9)).unwrap();
        let x = tape.constant(x);
        let x = tape.linear(&x, &[projection(0, inputs)]).unwrap();
        let three = [projection(0, 7), projection(1, 40), projection(2, 3)];
        let mut found = tape.linear(&x, &three).unwrap().tensor.to_host().into_owned();
        let onto = tape.linear_onto(&x, &projection(1, inputs), &x).unwrap();
        found.extend(&*onto.tensor.to_host());
        let active = tape.linear_activated(&x, &projection(2, 33), Activation::Gelu).unwrap();
        found.extend(&*active.tensor.to_host());
        let both = [projection(0, 21), projection(1, 21)];
        let gated = tape.linear_gated(onto, both, Activation::Silu).unwrap();
        found.extend(&*gated.tensor.to_host());
        found
    };
    for rows in (1..=9).chain([16, 17, 31, 32, 33]) {
        for inputs in [8, 264, 600, 1024] {
            let found = difference(&all(&device, rows, inputs), &all(&host, rows, inputs));
            assert!(found < 2e-2, "{rows} rows of {inputs}: {found:e}");
        }
    }
}

/// Lengths of examples: shorter than a tile of the kernels, longer, without a target, of one row.
const EXAMPLES: [usize; 5] = [3, 70, 1, 5, 140];

/// A weight with numbers of its own.
fn weight(device: &Device, (role, part): (Role, Part), shape: (usize, usize)) -> Weight {
    let seed = role as usize * 7 + part as usize;
    let small: Vec<f32> = numbers(shape.0 * shape.1, seed).iter().map(|x| 0.2 * x).collect();
    let tensor = Tensor::from_slice(device, shape.0, shape.1, &small).unwrap();
    Weight { id: ParamId::new(Layer::Block(0), role, part), tensor, trains: true }
}

/// A network with looked-up rows, wide and narrow weights, low ranks, biases and a vocabulary, recorded on a tape;
/// sums over each example.
fn private_loss(tape: &mut Tape, device: &Device) -> Value {
    let rows: usize = EXAMPLES.iter().sum();
    let of = |role, part, shape| weight(device, (role, part), shape);
    let index: Vec<u32> = (0..rows as u32).map(|row| row * row % 11).collect();
    let table = of(Role::Token, Part::Weight, (11, 72));
    let x = tape.embed(&[(&table, &index)]).unwrap();
    let lora = Lora {
        a: of(Role::Up, Part::LoraA, (8, 72)),
        b: of(Role::Up, Part::LoraB, (136, 8)),
        scale: 0.5,
        magnitude: Some(Magnitude::Norms(of(Role::Up, Part::Magnitude, (1, 136)))),
    };
    let up = Projection {
        weight: of(Role::Up, Part::Weight, (136, 72)),
        bias: Some(of(Role::Up, Part::Bias, (1, 136))),
        lora: Some(lora),
    };
    let x = tape.linear_activated(&x, &up, Activation::GeluTanh).unwrap();
    let plain =
        |role, shape| Projection { weight: of(role, Part::Weight, shape), bias: None, lora: None };
    let both = [plain(Role::Query, (40, 136)), plain(Role::Key, (16, 136))];
    let x = tape.linear(&x, &both).unwrap();
    let words = of(Role::Classifier, Part::Weight, (200, 56));
    let bias = of(Role::Classifier, Part::Bias, (1, 200));
    // The fourth example has no target.
    let target = |row: usize| (!(74..79).contains(&row)).then_some((row * 31 % 200) as u32);
    let targets: Vec<_> = (0..rows).map(target).collect();
    let logits = Logits::new(&words, Some(&bias));
    tape.vocabulary_cross_entropy(&x, logits, &targets, LossWeights::SUM).unwrap()
}

fn by_example(device: &Device) -> ExampleGradients {
    let mut tape = Tape::by_example(device, &Sequences::of_lengths(&EXAMPLES));
    let loss = private_loss(&mut tape, device);
    tape.backward_by_example(&[(&loss, Tensor::scalar(device, 0.5))]).unwrap()
}

#[test]
fn norms_of_examples_are_the_processors() {
    let theirs = by_example(&Device::cpu());
    // Where numbers are rounded again, a norm is an upper bound.
    for (precision, below, above) in
        [(Precision::F32, 1e-5, 1e-5), (Precision::Tf32, 0.02, 0.1), (Precision::Bf16, 0.05, 0.25)]
    {
        let Some(device) = gpu(precision) else { return };
        let ours = by_example(&device);
        for example in 0..EXAMPLES.len() {
            let (found, expected) = (ours.square(example).sqrt(), theirs.square(example).sqrt());
            let range = (1.0 - below) * expected..=(1.0 + above) * expected + 1e-12;
            assert!(range.contains(&found), "{precision:?} {example}: {found}, {expected}");
        }
        let again = by_example(&device);
        let same = |example| ours.square(example).to_bits() == again.square(example).to_bits();
        assert!((0..EXAMPLES.len()).all(same), "{precision:?}: not the same bits twice");
    }
}

#[test]
fn no_example_contributes_more_than_the_clip() {
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        let Some(device) = gpu(precision) else { return };
        for example in 0..EXAMPLES.len() {
            let gradients = by_example(&device);
            let clip = 0.3 * gradients.square(example).sqrt();
            let factors = Clipping::Flat(clip).factors(&gradients);
            let only = |layer, e: usize| if e == example { factors.at(layer, e) } else { 0.0 };
            let sum = gradients.weighted_sum(only);
            let norm = sum.sum_of_squares().sqrt();
            assert!(norm <= clip * (1.0 + 1e-6), "{precision:?} {example}: {norm} of {clip}");
            // The fourth has no gradient, and a bound of what was too small to be seen.
            assert!(
                norm >= 0.75 * clip || clip < 1e-15,
                "{precision:?} {example}: {norm} of {clip}"
            );
        }
    }
}

#[test]
fn the_highest_of_each_row_is_the_first_of_equals_and_nothing_beside_nan() {
    let Some(device) = gpu(Precision::F32) else { return };
    let mut numbers = numbers(3 * 5000, 4);
    numbers[1234] = 7.0;
    numbers[4321] = 7.0;
    numbers[5000 + 4999] = 8.0;
    numbers[10_000 + 77] = f32::NAN;
    for device in [device, Device::cpu()] {
        let x = Tensor::from_slice(&device, 3, 5000, &numbers).unwrap();
        assert_eq!(x.argmax(), [Some(1234), Some(4999), None]);
    }
}

#[test]
fn an_example_that_is_not_finite_is_known_by_its_square() {
    for precision in [Precision::F32, Precision::Bf16] {
        let Some(device) = gpu(precision) else { return };
        let examples = Sequences::of_lengths(&[2, 70, 3]);
        let mut rows = numbers(75 * 16, 3);
        rows[5 * 16 + 1] = f32::INFINITY;
        let mut tape = Tape::by_example(&device, &examples);
        let x = tape.constant(Tensor::from_slice(&device, 75, 16, &rows).unwrap());
        let x = x.in_sequences(&examples).unwrap();
        let up = weight(&device, (Role::Up, Part::Weight), (24, 16));
        let up = Projection { weight: up, bias: None, lora: None };
        let y = tape.linear(&x, &[up]).unwrap();
        let dy = Tensor::from_slice(&device, 75, 24, &numbers(75 * 24, 4)).unwrap();
        let gradients = tape.backward_by_example(&[(&y, dy)]).unwrap();
        assert!(gradients.square(0).is_finite() && gradients.square(2).is_finite());
        assert!(!gradients.square(1).is_finite(), "{precision:?}");
    }
}

fn noised(device: &Device) -> Gradients {
    let mut tape = Tape::new(device);
    let loss = private_loss(&mut tape, device);
    let mut gradients = tape.backward(&[(&loss, Tensor::scalar(device, 1.0))]).unwrap();
    for (_, gradient) in gradients.iter_mut() {
        let count = gradient.densify().to_host().len();
        gradient.densify().overwrite(&numbers(count, 9)).unwrap();
    }
    gradients.add_noise(0.7, &SecretKey::simulated(Seed(11))).unwrap();
    gradients
}

#[test]
fn noise_has_the_processors_bits() {
    let Some(device) = gpu(Precision::Bf16) else { return };
    let (ours, theirs) = (noised(&device), noised(&Device::cpu()));
    assert!(ours.iter().len() > 6);
    for ((id, ours), (_, theirs)) in ours.iter().zip(theirs.iter()) {
        assert!(ours.to_dense() == theirs.to_dense(), "{id}");
    }
}

#[test]
fn dropout_drops_what_the_processor_drops() {
    let Some(device) = gpu(Precision::F32) else { return };
    let host = Device::cpu();
    for (rows, cols) in [(1, 1), (7, 3), (130, 384), (900, 77)] {
        let found = [&device, &host].map(|device| {
            let x = Tensor::from_slice(device, rows, cols, &numbers(rows * cols, 2)).unwrap();
            let mut tape = Tape::new(device);
            let x = tape.input(x);
            let y = tape.dropout(x.clone(), 0.3, Seed(5)).unwrap();
            let dy = Tensor::from_slice(device, rows, cols, &numbers(rows * cols, 6)).unwrap();
            let dropped = y.tensor.to_host().into_owned();
            let gradients = tape.backward(&[(&y, dy)]).unwrap();
            (dropped, gradients.of_input(&x).unwrap().to_host().into_owned())
        });
        assert!(found[0] == found[1], "{rows} x {cols}");
    }
}

#[test]
fn a_probe_counts_what_the_processor_counts() {
    let lengths = [1, 70, 33];
    let tokens: usize = lengths.iter().sum();
    let spans: Vec<Span> = Sequences::of_lengths(&lengths)
        .ranges()
        .map(|rows| Span { queries: rows.clone(), keys: rows, offset: 0 })
        .collect();
    for (mask, window) in [(Mask::Bidirectional, None), (Mask::Causal, Some(9))] {
        let count = |device: &Device| {
            let x = Tensor::from_slice(device, tokens, 8 * 32, &numbers(tokens * 8 * 32, 1));
            let mut tape = Tape::new(device);
            let x = tape.input(x.unwrap());
            let mut probe = AttentionProbe {
                queries: (0..tokens).map(|row| (row % 3) as f32).collect(),
                keys: (0..tokens).map(|row| f32::from(row % 7 == 0)).collect(),
                scores: Vec::new(),
                heads: Vec::new(),
                received: Some(Vec::new()),
                patterns: None,
            };
            let geometry = Attention { window, ..Attention::new(4, 2, 32, mask) };
            let all = Projected::Together(&x);
            tape.attention(geometry, all, &spans, Some(&mut probe)).unwrap();
            let heads = probe.heads.iter().chain(&probe.scores).flatten().map(|x| *x as f32);
            let heads: Vec<f32> = heads.collect();
            [heads, probe.received.unwrap().concat()].concat()
        };
        let Some(device) = gpu(Precision::F32) else { return };
        let found = difference(&count(&device), &count(&Device::cpu()));
        assert!(found < 1e-5, "{mask:?}: {found:e}");
    }
}
