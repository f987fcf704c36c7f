//! Dropout that each sequence draws for itself.
//!
//! A tape may be told to drop activations at places that a model names. Every sequence has a seed; place
//! and layer make a stream of it, and the sequence's own rows take their draws from that stream. So what
//! is dropped does not depend on the batch, on threads, or on which machine has the layer. Nothing is
//! saved: the backward pass draws again.

use super::record::{Flow, Tape, wanted};
use crate::dropout::{Dropout, DropoutPlace};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::Value;
use fedra_plan::Layer;
use fedra_seed::Seed;
use std::ops::Range;

impl Tape {
    /// From now on drops activations wherever a model asks.
    pub fn with_dropout(mut self, dropout: Option<Dropout>) -> Self {
        self.dropout = dropout.filter(|dropout| dropout.rate > 0.0);
        self
    }

    /// Whether something is dropped in a layer.
    pub fn drops_in(&self, layer: Layer) -> bool {
        self.dropout.as_ref().is_some_and(|dropout| dropout.reaches(layer))
    }

    /// `x` with some of its elements dropped, where this tape does so; itself elsewhere.
    pub fn dropped(
        &mut self,
        x: Value,
        (layer, place): (Layer, DropoutPlace),
    ) -> Result<Value, ComputeError> {
        let Some(dropout) = self.dropout.as_ref().filter(|dropout| dropout.reaches(layer)) else {
            return Ok(x);
        };
        let (operation, rate) = ("dropout", dropout.rate);
        let Some(sequences) = x.sequences() else {
            let what = "description of where sequences begin";
            return Err(ComputeError::Empty { operation, what });
        };
        let (what, expected) = ("number of seeds", sequences.len());
        ComputeError::expect(operation, what, dropout.seeds.len(), expected)?;
        let number = match layer {
            Layer::Embedding => 0,
            Layer::Block(block) => 1 + u64::from(block),
            Layer::Head => u64::MAX,
        };
        let stream = |seed: &Seed| seed.with(number).with(place as u64);
        let drawn = sequences.ranges().zip(dropout.seeds.iter().map(stream)).collect();
        self.drop_rows(x, rate, drawn)
    }

    /// Keeps each element of `x` with probability `1 - rate`, divided by that probability, and makes zeros
    /// of the others; the seed decides which.
    pub fn dropout(&mut self, x: Value, rate: f32, seed: Seed) -> Result<Value, ComputeError> {
        let all = vec![(0..x.tensor.rows(), seed)];
        self.drop_rows(x, rate, all)
    }

    /// The same with a seed for each run of rows.
    fn drop_rows(
        &mut self,
        x: Value,
        rate: f32,
        drawn: Vec<(Range<usize>, Seed)>,
    ) -> Result<Value, ComputeError> {
        if !(0.0..1.0).contains(&rate) {
            let (what, expected) = ("dropout rate", "at least 0 and less than 1");
            return Err(ComputeError::Setting { what, found: rate, expected });
        }
        if rate == 0.0 {
            return Ok(x);
        }
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot, sequences } = x;
        kernels::drop_out(&mut tensor, rate, &drawn);
        let kept = self.finish(tensor, wanted, || {
            move |flow: &mut Flow, mut dy: Tensor| {
                kernels::drop_out(&mut dy, rate, &drawn);
                flow.add(slot, dy);
            }
        });
        Ok(Value { sequences, ..kept })
    }
}
