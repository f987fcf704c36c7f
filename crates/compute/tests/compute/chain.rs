//! Two blocks that between them use every operation: one like BERT's, one like `LLaMA`'s.
//!
//! All sizes are odd or awkward, and 700 tokens are more than one task of any kind takes.

use crate::draw::{indices, mean, numbers, of, positions, spans};
use fedra_compute::{
    Activation, Angles, Attention, Device, Gradients, Logits, Lora, LossWeights, Mask, Params,
    Projected, Projection, Sequences, Span, Tape, Tensor, Value, Weight, Weights,
};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};
use std::sync::Arc;

/// Lengths of the packed sequences, 700 tokens in all (few where Miri runs them).
pub const LENGTHS: [usize; 4] = if cfg!(miri) { [5, 1, 2, 4] } else { [257, 1, 131, 311] };

const WORDS: usize = 301;
const WIDTH: usize = 40;
const ENCODER_MLP: usize = 67;
const DECODER_MLP: usize = 53;
const RANK: usize = 3;
/// Vectors of the decoder that have no role of their own.
const QUERY_NORM: Role = Role::EmbeddingNorm;
const KEY_NORM: Role = Role::FinalNorm;
const LAYER_SCALE: Role = Role::TransformNorm;
fn encoder_attention() -> Attention {
    Attention::new(5, 5, 8, Mask::Bidirectional)
}
fn decoder_attention() -> Attention {
    Attention { window: Some(40), soft_cap: Some(5.0), ..Attention::new(4, 2, 10, Mask::Causal) }
}

/// A small model and one batch for it.
pub struct Chain {
    pub device: Device,
    pub params: Params,
    pub ids: Vec<u32>,
    positions: Vec<u32>,
    pub targets: Vec<Option<u32>>,
    spans: Vec<Span>,
    angles: Arc<Angles>,
}

/// Whose weight the chain's vocabulary loss reads.
#[derive(Clone, Copy, Debug)]
pub enum Vocabulary {
    /// Its own.
    Own,
    /// The token embedding's.
    Tied,
}

impl Chain {
    pub fn new(lengths: &[usize]) -> Self {
        Self::on(Device::cpu(), lengths)
    }

    /// The same on another device.
    pub fn on(device: Device, lengths: &[usize]) -> Self {
        let params = shapes()
            .into_iter()
            .enumerate()
            .map(|(i, (id, (rows, cols)))| {
                let offset = if rows == 1 && id.part == Part::Weight { 1.0 } else { 0.0 };
                let scale = 1.0 / (cols as f64).sqrt();
                let numbers = numbers(i as u64 + 1, rows * cols, (scale, offset));
                (id, of(&device, (rows, cols), &numbers))
            })
            .collect();
        let positions = positions(lengths);
        let count = positions.len();
        let targets = indices(71, count, WORDS + 40).into_iter();
        Self {
            device,
            params,
            ids: indices(70, count, WORDS),
            positions,
            targets: targets
                .map(|word| Some(word).filter(|word| (*word as usize) < WORDS))
                .collect(),
            spans: spans(lengths),
            angles: Arc::new(Angles::new(count, decoder_attention().width, 1e4)),
        }
    }

    /// Every parameter.
    pub fn everything(&self) -> Scope {
        self.params.iter().map(|(id, _)| id).collect()
    }

    /// The parameters of one layer.
    pub fn layer(&self, layer: Layer) -> Scope {
        self.params.iter().map(|(id, _)| id).filter(|id| id.layer == layer).collect()
    }

    pub fn embedding(&self, tape: &mut Tape, weights: Weights<'_>) -> Value {
        let at = Place { weights, layer: Layer::Embedding };
        let (token, position) = (at.weight(Role::Token), at.weight(Role::Position));
        let sum = tape.embed(&[(&token, &self.ids), (&position, &self.positions)]);
        at.layer_norm(tape, &sum.expect("indices are in range"), Role::EmbeddingNorm)
    }

    pub fn encoder(&self, tape: &mut Tape, weights: Weights<'_>, x: &Value) -> Value {
        let at = Place { weights, layer: Layer::Block(0) };
        let roles = [Role::Query, Role::Key, Role::Value];
        let projected = tape.linear(x, &roles.map(|role| at.projection(role))).expect(FITS);
        let mixed =
            tape.attention(encoder_attention(), Projected::Together(&projected), &self.spans, None);
        let mixed = mixed.expect(FITS);
        let sum = tape.linear_onto(&mixed, &at.projection(Role::Output), x).expect(FITS);
        let x = at.layer_norm(tape, &sum, Role::AttentionNorm);
        let up = tape.linear_activated(&x, &at.projection(Role::Up), Activation::Gelu);
        let sum = tape.linear_onto(&up.expect(FITS), &at.projection(Role::Down), &x);
        at.layer_norm(tape, &sum.expect(FITS), Role::MlpNorm)
    }

    pub fn decoder(&self, tape: &mut Tape, weights: Weights<'_>, x: &Value) -> Value {
        let at = Place { weights, layer: Layer::Block(1) };
        let normed = tape.rms_norm(x, &at.weight(Role::AttentionNorm), 1e-5, 0.0).expect(FITS);
        let roles = [Role::Query, Role::Key, Role::Value];
        let projected = tape.linear(&normed, &roles.map(|role| at.projection(role))).expect(FITS);
        let (queries, keys) = (at.weight(QUERY_NORM), at.weight(KEY_NORM));
        let kv_width = decoder_attention().kv_heads * decoder_attention().width;
        let parts = [(0..WIDTH, &queries), (WIDTH..WIDTH + kv_width, &keys)];
        let projected = tape.norm_columns(projected, &parts, 1e-5, 1.0).expect(FITS);
        let turning = decoder_attention().heads + decoder_attention().kv_heads;
        let projected = tape.rotary(projected, turning, &self.positions, &self.angles);
        let projected = projected.expect(FITS);
        let mixed =
            tape.attention(decoder_attention(), Projected::Together(&projected), &self.spans, None);
        let mixed = mixed.expect(FITS);
        let x = tape.linear_onto(&mixed, &at.projection(Role::Output), x).expect(FITS);
        let normed = tape.rms_norm(&x, &at.weight(Role::MlpNorm), 1e-5, 0.0).expect(FITS);
        let both = [Role::Gate, Role::Up].map(|role| at.projection(role));
        let both = tape.linear(&normed, &both).expect(FITS);
        let gated = tape.gated(&both, Activation::Silu).expect(FITS);
        let down = tape.linear(&gated, &[at.projection(Role::Down)]).expect(FITS);
        let down = tape.scale_columns(down, &at.weight(LAYER_SCALE)).expect(FITS);
        tape.add(down, &x).expect(FITS)
    }

    pub fn loss(&self, tape: &mut Tape, weights: Weights<'_>, x: &Value) -> Value {
        let at = Place { weights, layer: Layer::Head };
        let (weight, bias) = (at.weight(Role::Vocabulary), at.find(Role::Vocabulary, Part::Bias));
        let (vocabulary, mean) = (Logits::new(&weight, bias.as_ref()), mean(&self.targets));
        tape.vocabulary_cross_entropy(x, vocabulary, &self.targets, mean).expect(FITS)
    }

    /// One of its sequences alone, with the same parameters.
    pub fn example(&self, number: usize) -> Self {
        let rows = self.spans[number].queries.clone();
        let length = rows.len();
        Self {
            device: self.device.clone(),
            params: self.params.clone(),
            ids: self.ids[rows.clone()].to_vec(),
            positions: self.positions[rows.clone()].to_vec(),
            targets: self.targets[rows].to_vec(),
            spans: spans(&[length]),
            angles: Arc::clone(&self.angles),
        }
    }

    /// Where its sequences begin.
    pub fn sequences(&self) -> Sequences {
        let lengths: Vec<usize> = self.spans.iter().map(|span| span.queries.len()).collect();
        Sequences::of_lengths(&lengths)
    }

    /// The sum of all rows' losses.
    pub fn summed(&self, tape: &mut Tape, weights: Weights<'_>, vocabulary: Vocabulary) -> Value {
        let x = self.embedding(tape, weights);
        let x = self.encoder(tape, weights, &x);
        let x = self.decoder(tape, weights, &x);
        let (head, embedding) =
            (Place { weights, layer: Layer::Head }, Place { weights, layer: Layer::Embedding });
        let weight = match vocabulary {
            Vocabulary::Own => head.weight(Role::Vocabulary),
            Vocabulary::Tied => embedding.weight(Role::Token),
        };
        let bias = head.find(Role::Vocabulary, Part::Bias);
        let vocabulary = Logits { weight: &weight, bias: bias.as_ref(), soft_cap: Some(2.0) };
        let sum = LossWeights::SUM;
        tape.vocabulary_cross_entropy(&x, vocabulary, &self.targets, sum).expect(FITS)
    }

    /// Forward through everything.
    pub fn forward(&self, tape: &mut Tape, weights: Weights<'_>) -> Value {
        let x = self.embedding(tape, weights);
        let x = self.encoder(tape, weights, &x);
        let x = self.decoder(tape, weights, &x);
        self.loss(tape, weights, &x)
    }

    /// Loss and gradients.
    pub fn run(&self, scope: &Scope) -> (Tensor, Gradients) {
        let mut tape = Tape::new(&self.device);
        let loss = self.forward(&mut tape, self.params.training(scope));
        let one = Tensor::scalar(&self.device, 1.0);
        let gradients = tape.backward(&[(&loss, one)]).expect("the scope is not empty");
        (loss.tensor, gradients)
    }
}

const FITS: &str = "the chain's sizes fit together";

/// The parameters of one layer.
#[derive(Clone, Copy)]
struct Place<'a> {
    weights: Weights<'a>,
    layer: Layer,
}

impl Place<'_> {
    fn find(self, role: Role, part: Part) -> Option<Weight> {
        self.weights.find(ParamId::new(self.layer, role, part))
    }

    fn weight(self, role: Role) -> Weight {
        self.find(role, Part::Weight).expect("`shapes` lists every weight")
    }

    fn projection(self, role: Role) -> Projection {
        let lora = self.find(role, Part::LoraA).zip(self.find(role, Part::LoraB));
        Projection {
            weight: self.weight(role),
            bias: self.find(role, Part::Bias),
            lora: lora.map(|(a, b)| Lora { a, b, scale: 0.5, magnitude: None }),
        }
    }

    fn layer_norm(self, tape: &mut Tape, x: &Value, role: Role) -> Value {
        let bias = self.find(role, Part::Bias).expect("`shapes` lists every bias");
        tape.layer_norm(x, &self.weight(role), Some(&bias), 1e-12).expect(FITS)
    }
}

fn shapes() -> Vec<(ParamId, (usize, usize))> {
    let mut shapes = Vec::new();
    let mut add = |layer, role, part, shape| shapes.push((ParamId::new(layer, role, part), shape));
    let positions = *LENGTHS.iter().max().expect("there are sequences");
    add(Layer::Embedding, Role::Token, Part::Weight, (WORDS, WIDTH));
    add(Layer::Embedding, Role::Position, Part::Weight, (positions, WIDTH));
    let mut layer_norm = |layer, role| {
        add(layer, role, Part::Weight, (1, WIDTH));
        add(layer, role, Part::Bias, (1, WIDTH));
    };
    layer_norm(Layer::Embedding, Role::EmbeddingNorm);
    layer_norm(Layer::Block(0), Role::AttentionNorm);
    layer_norm(Layer::Block(0), Role::MlpNorm);
    let encoder = [
        (Role::Query, WIDTH, WIDTH),
        (Role::Key, WIDTH, WIDTH),
        (Role::Value, WIDTH, WIDTH),
        (Role::Output, WIDTH, WIDTH),
        (Role::Up, ENCODER_MLP, WIDTH),
        (Role::Down, WIDTH, ENCODER_MLP),
    ];
    for (role, outputs, inputs) in encoder {
        add(Layer::Block(0), role, Part::Weight, (outputs, inputs));
        add(Layer::Block(0), role, Part::Bias, (1, outputs));
    }
    let kv_width = decoder_attention().kv_heads * decoder_attention().width;
    let decoder = [
        (Role::AttentionNorm, 1, WIDTH),
        (Role::Query, WIDTH, WIDTH),
        (Role::Key, kv_width, WIDTH),
        (Role::Value, kv_width, WIDTH),
        (QUERY_NORM, 1, decoder_attention().width),
        (KEY_NORM, 1, kv_width),
        (Role::Output, WIDTH, WIDTH),
        (Role::MlpNorm, 1, WIDTH),
        (LAYER_SCALE, 1, WIDTH),
        (Role::Gate, DECODER_MLP, WIDTH),
        (Role::Up, DECODER_MLP, WIDTH),
        (Role::Down, WIDTH, DECODER_MLP),
    ];
    for (role, outputs, inputs) in decoder {
        add(Layer::Block(1), role, Part::Weight, (outputs, inputs));
    }
    add(Layer::Block(1), Role::Query, Part::LoraA, (RANK, WIDTH));
    add(Layer::Block(1), Role::Query, Part::LoraB, (WIDTH, RANK));
    add(Layer::Head, Role::Vocabulary, Part::Weight, (WORDS, WIDTH));
    add(Layer::Head, Role::Vocabulary, Part::Bias, (1, WORDS));
    shapes
}
