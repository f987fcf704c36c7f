//! Work that no wanted gradient needs is not done, and what is frozen does not stand in the way.

use crate::chain::{Chain, LENGTHS};
use crate::draw::{bare, bits, frozen, id, positions, spans, tensor, trained};
use fedra_compute::{
    Activation, Angles, Attention, ComputeError, Device, Gradients, Logits, LossWeights, Mask,
    Projected, Projection, Tape, Tensor, Value, Weight,
};
use fedra_plan::{Layer, ParamId, Role, Scope};
use std::sync::Arc;

fn layer() -> Attention {
    Attention::new(2, 2, 4, Mask::Causal)
}

#[test]
fn an_operation_without_anything_trained_saves_nothing() {
    let device = Device::cpu();
    let weights = Frozen::new(&device);
    let constant = tensor(&device, (6, 24), 1);
    let before = device.usage().live_bytes;
    let mut tape = Tape::new(&device);
    let x = tape.constant(constant);
    drop(weights.every_operation(&mut tape, &x).unwrap());
    assert_eq!(device.usage().live_bytes, before, "the tape holds on to something");
    assert!(tape.backward(&[]).unwrap().iter().next().is_none());
}

#[test]
fn the_same_operations_save_what_they_need_when_their_input_wants_a_gradient() {
    let device = Device::cpu();
    let weights = Frozen::new(&device);
    let received = tensor(&device, (6, 24), 1);
    let before = device.usage().live_bytes;
    let mut tape = Tape::new(&device);
    let x = tape.input(received);
    drop(weights.every_operation(&mut tape, &x).unwrap());
    drop(x);
    assert!(device.usage().live_bytes > before);
    drop(tape);
    assert!(device.usage().live_bytes < before, "a dropped tape frees what it saved");
}

#[test]
fn a_frozen_projection_does_not_keep_its_input() {
    let kept = |trains| {
        let device = Device::cpu();
        let weight = Weight { trains, ..frozen(id(Role::Up), tensor(&device, (5, 300), 1)) };
        let before = device.usage().live_bytes;
        let mut tape = Tape::new(&device);
        let x = tape.input(tensor(&device, (70, 300), 2));
        drop(tape.linear(&x, &[bare(weight)]).unwrap());
        drop(x);
        device.usage().live_bytes - before
    };
    assert_eq!(kept(false), 0);
    assert!(kept(true) >= 70 * 300 * size_of::<f32>());
}

#[test]
fn gradients_are_those_of_the_scope_and_no_others() {
    let chain = Chain::new(&LENGTHS);
    let whole = chain.run(&chain.everything()).1;
    assert_eq!(ids(&whole), chain.everything());
    for layer in [Layer::Embedding, Layer::Block(0), Layer::Block(1), Layer::Head] {
        let scope = chain.layer(layer);
        let part = chain.run(&scope).1;
        assert_eq!(ids(&part), scope);
        // Frozen layers above pass the gradient on, to the bit as if they trained.
        for (id, gradient) in part.iter() {
            let expected = whole.get(id).unwrap();
            assert_eq!(bits(gradient.values()), bits(expected.values()), "{id}");
        }
    }
}

#[test]
fn one_trained_bias_gets_the_gradient_it_gets_among_others() {
    let chain = Chain::new(&[5, 1, 7]);
    let whole = chain.run(&chain.everything()).1;
    for (id, _) in chain.params.iter() {
        let scope: Scope = [id].into_iter().collect();
        let alone = chain.run(&scope).1;
        assert_eq!(ids(&alone), scope);
        let (alone, whole) = (alone.get(id).unwrap().to_dense(), whole.get(id).unwrap().to_dense());
        let error = crate::draw::distance(&alone, &whole);
        assert!(error < REGROUPED, "{id} is off by {error:e}");
    }
}

/// A bias whose weight is frozen sums its gradient in another order: a few roundings apart.
const REGROUPED: f64 = 1e-6;

#[test]
fn nothing_below_the_lowest_trained_block_is_kept() {
    let chain = Chain::new(&LENGTHS);
    let scope = chain.layer(Layer::Block(1));
    let weights = chain.params.training(&scope);
    let mut tape = Tape::new(&chain.device);
    let before = chain.device.usage().live_bytes;
    let output = {
        let x = chain.embedding(&mut tape, weights);
        chain.encoder(&mut tape, weights, &x).tensor
    };
    let kept = chain.device.usage().live_bytes - before;
    let bytes = output.elements() * size_of::<f32>();
    assert!(kept < bytes + bytes / 7, "{kept} bytes are kept besides {bytes} of output");
}

#[test]
fn a_cut_chain_gives_the_gradients_of_the_whole() {
    let chain = Chain::new(&LENGTHS);
    let scope = chain.everything();
    let weights = chain.params.training(&scope);
    let (loss, whole) = chain.run(&scope);

    let mut lower = Tape::new(&chain.device);
    let x = chain.embedding(&mut lower, weights);
    let hidden = chain.encoder(&mut lower, weights, &x);

    let mut upper = Tape::new(&chain.device);
    let received = upper.input(hidden.tensor.clone());
    let x = chain.decoder(&mut upper, weights, &received);
    let upper_loss = chain.loss(&mut upper, weights, &x);
    assert_eq!(bits(&upper_loss.tensor), bits(&loss));
    let one = Tensor::scalar(&chain.device, 1.0);
    let above = upper.backward(&[(&upper_loss, one)]).unwrap();
    let returned = above.of_input(&received).unwrap().clone();
    let below = lower.backward(&[(&hidden, returned)]).unwrap();

    assert_eq!(above.iter().len() + below.iter().len(), whole.iter().len());
    for (id, gradient) in above.iter().chain(below.iter()) {
        assert_eq!(bits(gradient.values()), bits(whole.get(id).unwrap().values()), "{id}");
    }
}

#[test]
fn gradients_received_for_two_values_add_up() {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let x = tape.input(tensor(&device, (3, 2), 1));
    let first = tape.rows(&x, &[0]).unwrap();
    let both = tape.rows(&x, &[0, 2]).unwrap();
    let ones = |rows| crate::draw::of(&device, (rows, 2), &vec![1.0; rows * 2]);
    let gradients = tape.backward(&[(&first, ones(1)), (&both, ones(2))]).unwrap();
    assert_eq!(*gradients.of_input(&x).unwrap().to_host(), [2.0, 2.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn a_value_without_any_trained_part_takes_no_gradient() {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let x = tape.constant(tensor(&device, (3, 2), 1));
    let y = tape.rows(&x, &[1]).unwrap();
    let error = tape.backward(&[(&y, Tensor::zeros(&device, 1, 2))]).unwrap_err();
    assert_eq!(error, ComputeError::NoGradient);
}

#[test]
fn an_input_that_the_loss_does_not_read_has_no_gradient() {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let (x, unread) =
        (tape.input(tensor(&device, (3, 2), 1)), tape.input(tensor(&device, (3, 2), 2)));
    let y = tape.rows(&x, &[1]).unwrap();
    let gradients = tape.backward(&[(&y, Tensor::zeros(&device, 1, 2))]).unwrap();
    assert!(gradients.of_input(&x).is_some());
    assert!(gradients.of_input(&unread).is_none());
}

#[test]
fn training_one_weight_twice_removed_reaches_through_frozen_operations() {
    let device = Device::cpu();
    let weights = Frozen::new(&device);
    let mut tape = Tape::new(&device);
    let learned: ParamId = id(Role::Segment);
    let table = trained(learned, tensor(&device, (2, 24), 5));
    let x = tape.embed(&[(&table, &[0, 1, 1, 0, 1, 0])]).unwrap();
    let losses = weights.every_operation(&mut tape, &x).unwrap();
    let seeds: Vec<_> = losses.iter().map(|loss| (loss, Tensor::scalar(&device, 1.0))).collect();
    let gradients = tape.backward(&seeds).unwrap();
    assert_eq!(ids(&gradients), [learned].into_iter().collect());
    assert!(gradients.sum_of_squares() > 0.0);
}

fn ids(gradients: &Gradients) -> Scope {
    gradients.iter().map(|(id, _)| id).collect()
}

/// Frozen weights for one pass through every operation.
struct Frozen {
    table: Weight,
    norm: Weight,
    square: Weight,
    narrow: Weight,
    angles: Arc<Angles>,
}

impl Frozen {
    fn new(device: &Device) -> Self {
        let weight = |role, shape| frozen(id(role), tensor(device, shape, 7));
        Self {
            table: weight(Role::Token, (9, 24)),
            norm: weight(Role::FinalNorm, (1, 24)),
            square: weight(Role::Output, (24, 24)),
            narrow: weight(Role::Down, (24, 8)),
            angles: Arc::new(Angles::new(6, layer().width, 1e4)),
        }
    }

    fn every_operation(&self, tape: &mut Tape, x: &Value) -> Result<Vec<Value>, ComputeError> {
        let found = tape.embed(&[(&self.table, &[0, 1, 2, 3, 8, 8])])?;
        let square = Projection { bias: Some(self.norm.clone()), ..bare(self.square.clone()) };
        let sum = tape.linear_onto(&found, &square, x)?;
        let sum = tape.layer_norm(&sum, &self.norm, Some(&self.norm), 1e-5)?;
        let sum = tape.rms_norm(&sum, &self.norm, 1e-5, 0.0)?;
        let projected = tape.linear(&sum, &[square])?;
        let lengths = [4, 2];
        let projected = tape.rotary(projected, 4, &positions(&lengths), &self.angles)?;
        let mixed =
            tape.attention(layer(), Projected::Together(&projected), &spans(&lengths), None);
        let narrow = bare(self.narrow.clone());
        let wide = tape.linear_activated(&mixed?, &narrow, Activation::Gelu)?;
        let gated = tape.gated(&wide, Activation::Silu)?;
        let picked = tape.rows(&gated, &[0, 4])?;
        let classes = tape.cross_entropy(&picked, &[Some(3), None], LossWeights::SUM)?;
        let labels = tape.multi_label(&picked, &[1.0; 24], LossWeights::mean(24))?;
        let words = tape.vocabulary_cross_entropy(
            &sum,
            Logits::new(&self.table, None),
            &[Some(1); 6],
            LossWeights::mean(6),
        )?;
        Ok(vec![classes, labels, words])
    }
}
