//! The GPU against the processor, where there is one. `fedra bench check` compares whole models.

#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use fedra_compute::{
    Activation, Attention, Device, LossWeights, Mask, Precision, Projected, Projection, Sequences,
    Span, Tape, Tensor, Weight,
};
use fedra_plan::{Layer, ParamId, Part, Role};

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
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0).collect()
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
fn too_large_a_tensor_is_an_error_that_says_how_much_was_needed() {
    let Some(device) = gpu(Precision::F32) else { return };
    drop(Tensor::zeros(&device, 1 << 20, 1 << 20));
    let error = device.check().unwrap_err().to_string();
    assert!(error.starts_with("out of GPU memory: 4398046511104 bytes more"), "{error}");
}
