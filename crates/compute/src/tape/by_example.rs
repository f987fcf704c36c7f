//! A backward pass that tells examples apart.
//!
//! A private step needs the norm of each example's own gradient, then the sum of all gradients with a
//! factor for each example. One backward pass gives both: the loss is a sum of the examples' own losses
//! and no operation mixes the rows of two sequences, so the gradient of an example's rows is that of its
//! own loss. An operation with trained weights finds out the examples' norms from the gradient of its
//! result and its input, keeps these two, and makes no gradient of weights yet. The gradients are made
//! once, when the factors are known (Bu et al. 2023, <https://arxiv.org/abs/2210.00038>).
//!
//! Keeping costs little: a plain step's peak is at the end of the forward pass, and what is kept is
//! about as large as what backward frees on its way.

use super::book::{Book, Examples};
use super::example_factors::{ExampleFactors, weighted_columns};
use super::example_gradients::ExampleGradients;
use super::record::{Flow, Tape};
use crate::device::Device;
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels::VocabularySquares;
use crate::params::Weight;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::Value;
use fedra_plan::ParamId;
use std::collections::BTreeMap;
use std::ops::Range;

impl Tape {
    /// An empty tape that tells examples apart; each sequence of the batch is one.
    ///
    /// Everything that trains must know its sequences (see [`Value::in_sequences`]); tokens that are
    /// looked up are those of `examples`. Each example's loss must be its own: weights and divisor of a
    /// loss may not depend on the other examples.
    ///
    /// ```
    /// # use fedra_compute::{Device, LossWeights, Projection, Sequences, Tape, Tensor, Weight};
    /// # use fedra_plan::{ParamId, Part, Role, Layer};
    /// let device = Device::cpu();
    /// let examples = Sequences::of_lengths(&[1, 1]);
    /// let mut tape = Tape::by_example(&device, &examples);
    /// let x = Tensor::from_slice(&device, 2, 1, &[1.0, 10.0])?;
    /// let x = tape.constant(x).in_sequences(&examples)?;
    /// let id = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);
    /// let weight = Weight { id, tensor: Tensor::zeros(&device, 2, 1), trains: true };
    /// let logits = tape.linear(&x, &[Projection { weight, bias: None, lora: None }])?;
    /// let loss = tape.cross_entropy(&logits, &[Some(0), Some(1)], LossWeights::SUM)?;
    /// let gradients = tape.backward_by_example(&[(&loss, Tensor::scalar(&device, 1.0))])?;
    /// // Each gradient is x / 2 up or down; clip both to a norm of one.
    /// assert!((gradients.square(1) - 50.0).abs() < 1e-4);
    /// let clipped = gradients.weighted_sum(|_, example| [1.0, 0.1][example]);
    /// let sum = clipped.get(id).expect("it trains").to_dense();
    /// assert!(sum[0].abs() < 1e-6 && sum[1].abs() < 1e-6);
    /// # Ok::<(), fedra_compute::ComputeError>(())
    /// ```
    pub fn by_example(device: &Device, examples: &Sequences) -> Self {
        let examples = Examples { sequences: examples.clone(), trained: BTreeMap::new() };
        let mut tape = Self::new(device);
        tape.examples = Some(Box::new(examples));
        tape
    }

    /// Replays the tape backward and finds out the norm of each example's gradient.
    ///
    /// Gradients of inputs are not among the result: nothing has clipped them.
    pub fn backward_by_example(
        mut self,
        seeds: &[(&Value, Tensor)],
    ) -> Result<ExampleGradients, ComputeError> {
        let Examples { sequences, trained } =
            *self.examples.take().ok_or(ComputeError::NotByExample)?;
        let shared = trained.into_iter().filter(|(_, uses)| *uses > 1).map(|(id, _)| id).collect();
        let book = Book::new(&self.device, sequences.len(), shared);
        let flow = self.replay(seeds, Some(book))?;
        // What was clipped by a norm is summed as the norm was computed.
        let device = flow.device.with_f32_products();
        let mut book = flow.book.expect("it was put there");
        book.add_shared(&device);
        let Book { examples, squares, kept, .. } = book;
        let squares = squares.by_layer();
        device.check()?;
        Ok(ExampleGradients { device, examples, squares, kept })
    }

    /// The rows of each example in a value that these weights read; `None` where no weight trains or
    /// examples are not told apart.
    pub(super) fn example_rows<'a>(
        &mut self,
        operation: &'static str,
        sequences: Option<&Sequences>,
        weights: impl Iterator<Item = &'a Weight>,
    ) -> Result<Option<Sequences>, ComputeError> {
        let Some(examples) = &mut self.examples else { return Ok(None) };
        if !examples.count(weights) {
            return Ok(None);
        }
        let Some(sequences) = sequences else {
            let what = "description of where sequences begin";
            return Err(ComputeError::Empty { operation, what });
        };
        let (what, expected) = ("number of sequences", examples.sequences.len());
        ComputeError::expect(operation, what, sequences.len(), expected)?;
        Ok(Some(sequences.clone()))
    }

    /// The same for looked-up tokens, which are the examples' own.
    pub(super) fn example_tokens<'a>(
        &mut self,
        tokens: usize,
        tables: impl Iterator<Item = &'a Weight>,
    ) -> Result<Option<Sequences>, ComputeError> {
        let sequences = self.examples.as_ref().map(|examples| examples.sequences.clone());
        let rows = self.example_rows("embedding", sequences.as_ref(), tables)?;
        if let Some(rows) = &rows {
            ComputeError::expect("embedding", "number of tokens", tokens, rows.rows())?;
        }
        Ok(rows)
    }

    /// The sequences of looked-up tokens, if they are those that the tape tells apart.
    pub(super) fn sequences_of(&self, tokens: usize) -> Option<Sequences> {
        let sequences = &self.examples.as_ref()?.sequences;
        (sequences.rows() == tokens).then(|| sequences.clone())
    }

    /// Whether more than one recorded operation trains this weight.
    pub(super) fn is_shared(&self, id: ParamId) -> bool {
        let uses = self.examples.as_ref().and_then(|examples| examples.trained.get(&id));
        uses.is_some_and(|uses| *uses > 1)
    }
}

impl Flow {
    /// Finds out the norms of what an operation hands over, and keeps it.
    pub(super) fn keep(&mut self, kept: ExampleFactors) {
        let book = self.book.as_mut().expect("examples are told apart only where there is a book");
        kept.add_squares(&mut book.squares, &book.shared);
        book.kept.push(kept);
    }

    /// Adds squares that were found with a vocabulary's loss.
    pub(super) fn add_vocabulary_squares(
        &mut self,
        id: ParamId,
        squares: VocabularySquares,
        upstream: &Tensor,
    ) {
        let book = self.book.as_mut().expect("examples are told apart only where there is a book");
        if !book.shared.contains(&id) {
            book.squares.add_vocabulary(id.layer, squares, upstream);
        }
    }

    /// Adds or keeps the gradients of vectors. `sums` gives a row of sums for each of some runs of rows:
    /// the examples, or runs that are added up in order.
    pub(super) fn add_vectors(
        &mut self,
        examples: Option<&Sequences>,
        rows: usize,
        of: Vec<(ParamId, Range<usize>)>,
        sums: impl Fn(&[Range<usize>]) -> Tensor,
    ) {
        const RUN: usize = 64;
        if of.is_empty() {
            return;
        }
        if let Some(examples) = examples {
            let sums = sums(&examples.ranges().collect::<Vec<_>>());
            return self.keep(ExampleFactors::Sums { sums, of });
        }
        let runs: Vec<_> =
            (0..rows).step_by(RUN).map(|first| first..rows.min(first + RUN)).collect();
        let sums = sums(&runs);
        for (id, columns) in of {
            let ones = vec![1.0; runs.len()];
            let sum = weighted_columns(&self.device, &sums, columns, &ones);
            self.add_gradient(id, Gradient::Dense(sum));
        }
    }
}
