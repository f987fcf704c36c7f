//! Squared norms of examples' gradients, by layer and example.
//!
//! The processor finds each as it is added. A GPU collects what they are of and finds all together when they are asked
//! for, so that one copy per step goes to the processor.

use crate::cpu::{elementwise, example_squares};
use crate::cuda::{Buffer, ops};
use crate::device::Device;
use crate::meta;
use crate::operands::{Outer, View};
use crate::tensor::Tensor;
use fedra_plan::Layer;
use std::collections::BTreeMap;
use std::ops::Range;

/// Squared norms, known or on their way.
#[derive(Debug)]
pub(crate) struct ExampleSquares {
    device: Device,
    examples: usize,
    known: BTreeMap<Layer, Vec<f64>>,
    /// What a GPU is to find, and the layer of each.
    pending: Option<(ops::PendingSquares, Vec<Layer>)>,
}

impl ExampleSquares {
    pub fn new(device: &Device, examples: usize) -> Self {
        let pending = match device {
            Device::Cuda(cuda) => Some((ops::PendingSquares::new(cuda, examples), Vec::new())),
            Device::Cpu(_) | Device::Meta(_) => None,
        };
        Self { device: device.clone(), examples, known: BTreeMap::new(), pending }
    }

    /// Of gradients of some weights that share their input.
    pub fn add_outer(&mut self, layer: Layer, given: &Outer<'_>) {
        if let Some(pending) = self.pending_at(layer) {
            return pending.add_outer(given, 1);
        }
        let mut squares = vec![0.0; given.examples.len()];
        match &self.device {
            Device::Cpu(pool) => {
                let (right, numbers) = (
                    given.right.read(),
                    given.lefts.iter().map(|left| left.tensor.read()).collect::<Vec<_>>(),
                );
                let lefts: Vec<_> = given
                    .lefts
                    .iter()
                    .zip(&numbers)
                    .map(|(view, numbers)| view.mat(numbers))
                    .collect();
                let outer = example_squares::Outer { lefts: &lefts, right: right.mat(given.right) };
                example_squares::outer(pool, outer, given.examples, &mut squares);
            }
            Device::Meta(counter) => meta::outer_squares(counter, given),
            Device::Cuda(_) => {}
        }
        self.add(layer, &squares);
    }

    /// Of sums of an example's rows with the same index.
    pub fn add_lookup(
        &mut self,
        layer: Layer,
        (from, index): (&Tensor, &[u32]),
        examples: &[Range<usize>],
    ) {
        if let Some(pending) = self.pending_at(layer) {
            return pending.add_lookup((from, index), examples);
        }
        let mut squares = vec![0.0; examples.len()];
        match self.device {
            Device::Cpu(_) => {
                example_squares::lookup(from.read().mat(from), index, examples, &mut squares);
            }
            Device::Meta(_) | Device::Cuda(_) => {}
        }
        self.add(layer, &squares);
    }

    /// Of rows that are the examples' gradients, in some columns.
    pub fn add_rows(&mut self, layer: Layer, x: &View<'_>) {
        if let Some(pending) = self.pending_at(layer) {
            return pending.add_rows(x);
        }
        let mut squares = vec![0.0; x.tensor.rows()];
        match self.device {
            Device::Cpu(_) => {
                let numbers = x.tensor.read();
                let mat = x.mat(&numbers);
                for (row, square) in squares.iter_mut().enumerate() {
                    *square = elementwise::sum_of_squares(mat.row(row));
                }
            }
            Device::Meta(_) | Device::Cuda(_) => {}
        }
        self.add(layer, &squares);
    }

    /// Those that were found with a vocabulary's loss, whose gradient is `upstream`.
    pub fn add_vocabulary(&mut self, layer: Layer, found: VocabularySquares, upstream: &Tensor) {
        match found {
            VocabularySquares::Known(mut squares) => {
                let factor = f64::from(upstream.item()).powi(2);
                for square in &mut squares {
                    *square *= factor;
                }
                self.add(layer, &squares);
            }
            VocabularySquares::Cuda(squares) => {
                if let Some(pending) = self.pending_at(layer) {
                    pending.add_found(squares, upstream);
                }
            }
        }
    }

    /// Of each example's gradient itself, where it has one.
    pub fn add_gradients(&mut self, layer: Layer, gradients: impl Iterator<Item = Option<Tensor>>) {
        if let Some(pending) = self.pending_at(layer) {
            return pending.add_gradients(gradients);
        }
        let square = |gradient: Option<Tensor>| gradient.map_or(0.0, |sum| sum.sum_of_squares());
        let squares: Vec<f64> = gradients.map(square).collect();
        self.add(layer, &squares);
    }

    /// All of them; waits for a GPU.
    pub fn by_layer(mut self) -> BTreeMap<Layer, Vec<f64>> {
        if let Some((pending, layers)) = self.pending.take() {
            for (layer, squares) in layers.into_iter().zip(pending.to_host()) {
                self.add(layer, &squares);
            }
        }
        self.known
    }

    /// Where a GPU collects, with a place for one more.
    fn pending_at(&mut self, layer: Layer) -> Option<&mut ops::PendingSquares> {
        let (pending, layers) = self.pending.as_mut()?;
        layers.push(layer);
        Some(pending)
    }

    fn add(&mut self, layer: Layer, squares: &[f64]) {
        let sums = self.known.entry(layer).or_insert_with(|| vec![0.0; self.examples]);
        sums.iter_mut().zip(squares).for_each(|(sum, square)| *sum += square);
    }
}

/// Squares that a vocabulary's loss found, by example, before the gradient of the loss was known.
#[derive(Debug)]
pub(crate) enum VocabularySquares {
    Known(Vec<f64>),
    /// f64 on a GPU.
    Cuda(Buffer),
}
