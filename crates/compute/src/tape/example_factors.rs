//! What an operation keeps of a backward pass that tells examples apart.
//!
//! From it come the squares of each example's gradients, at once, and the sum of all gradients with a
//! factor for each example, later. An example whose factor is zero is left out whatever it holds: zero
//! times infinity is not zero.

use super::weights::Resolved;
use crate::device::Device;
use crate::gradients::{Gradient, Gradients};
use crate::kernels::{
    self, ExampleSquares, Factor, Fill, LinearBackward, Occurrences, Outer, View, WeightGradient,
};
use crate::params::Weight;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use fedra_plan::{Layer, ParamId};
use std::ops::Range;

/// Both factors of the gradients, or the gradients themselves where they are small.
#[derive(Debug)]
pub(super) enum ExampleFactors {
    /// Weights of projections.
    Linear(LinearFactors),
    /// Rows of a table.
    Lookup(Lookup),
    /// A vocabulary's weight and bias; their squares were found with the loss.
    Vocabulary(VocabularyFactors),
    /// Biases and weights of norms: each example's gradient as it is, a row each.
    Sums {
        sums: Tensor,
        /// Whose, and in which columns.
        of: Vec<(ParamId, Range<usize>)>,
    },
}

impl ExampleFactors {
    /// Adds the squares of each example's gradients, by weight or for several weights of one layer together;
    /// not of weights that are to be left out.
    pub fn add_squares(&self, into: &mut ExampleSquares, left_out: &[ParamId]) {
        match self {
            Self::Linear(linear) => linear.add_squares(into, left_out),
            Self::Lookup(lookup) if left_out.contains(&lookup.id) => {}
            Self::Lookup(Lookup { id, index, dy, examples, .. }) => {
                let ranges: Vec<_> = examples.ranges().collect();
                into.add_lookup(id.layer, (dy, index), &ranges);
            }
            Self::Vocabulary(_) => {}
            Self::Sums { sums, of } => {
                for (id, columns) in of.iter().filter(|(id, _)| !left_out.contains(id)) {
                    into.add_rows(id.layer, &View::columns(sums, columns.clone()));
                }
            }
        }
    }

    /// One example's gradient of a weight; `None` if it is not from here.
    pub fn gradient(&self, device: &Device, id: ParamId, example: usize) -> Option<Gradient> {
        match self {
            Self::Linear(linear) => linear.gradient(device, id, example),
            Self::Lookup(lookup) => lookup.gradient(device, id, example),
            Self::Vocabulary(kept) => kept.gradient(device, id, example),
            Self::Sums { sums, of } => {
                let (_, columns) = of.iter().find(|(of, _)| *of == id)?;
                let mut only = vec![0.0; sums.rows()];
                only[example] = 1.0;
                Some(Gradient::Dense(weighted_columns(device, sums, columns.clone(), &only)))
            }
        }
    }

    /// Adds the gradients of all examples, each with its factor. Rows that are gradients themselves are handed back:
    /// their sums are made together.
    pub fn add_weighted(
        self,
        device: &Device,
        into: &mut Gradients,
        factors: &Factors,
    ) -> Option<ExampleRows> {
        match self {
            Self::Linear(linear) => linear.add_weighted(device, into, factors),
            Self::Lookup(lookup) => lookup.add_weighted(device, into, factors),
            Self::Vocabulary(kept) => kept.add_weighted(device, into, factors),
            Self::Sums { sums, of } => return Some((sums, of)),
        }
        None
    }
}

/// A row for each example, and whose gradients are in which columns.
pub(super) type ExampleRows = (Tensor, Vec<(ParamId, Range<usize>)>);

/// Adds the gradients of all examples, each with its factor, of rows that are gradients themselves.
pub(super) fn add_weighted_rows(
    device: &Device,
    into: &mut Gradients,
    factors: &Factors,
    rows: &[ExampleRows],
) {
    let all = || rows.iter().flat_map(|(sums, of)| of.iter().map(move |of| (sums, of)));
    let views: Vec<_> = all()
        .map(|(sums, (id, columns))| (View::columns(sums, columns.clone()), factors.of(id.layer)))
        .collect();
    let sums = kernels::weighted_rows_together(device, &views);
    for ((_, (id, _)), sum) in all().zip(sums) {
        add(into, *id, Gradient::Dense(sum));
    }
}

fn add(into: &mut Gradients, id: ParamId, gradient: Gradient) {
    into.add_one(id, gradient).expect("both have the weight's shape");
}

/// `sum over rows of factor * row`, in some columns.
pub(super) fn weighted_columns(
    device: &Device,
    sums: &Tensor,
    columns: Range<usize>,
    factors: &[f32],
) -> Tensor {
    let mut sum = Tensor::scratch(device, 1, columns.len());
    kernels::weighted_rows(&mut sum, &View::columns(sums, columns), factors);
    sum
}

/// A factor for each layer and example.
#[derive(Debug)]
pub(super) struct Factors(pub std::collections::BTreeMap<Layer, Vec<f32>>);

impl Factors {
    fn of(&self, layer: Layer) -> &[f32] {
        self.0.get(&layer).expect("every layer that trains was asked for its factors")
    }
}

/// Projections of one input: the gradient of the result, the input, and which weights.
#[derive(Debug)]
pub(super) struct LinearFactors {
    pub dy: Tensor,
    pub x: Option<Tensor>,
    pub examples: Sequences,
    pub parts: Vec<WeightFactors>,
}

/// A weight whose gradient is `left^T right`.
#[derive(Debug)]
pub(super) struct WeightFactors {
    pub id: ParamId,
    pub shape: (usize, usize),
    pub left: Left,
    pub right: RightFactor,
}

/// The left factor of a weight's gradient.
#[derive(Debug)]
pub(super) enum Left {
    /// Some columns of the result's gradient.
    Columns(Range<usize>),
    /// Another tensor: the gradient at a low-rank waist.
    Other(Tensor),
}

/// The right factor of a weight's gradient.
#[derive(Debug)]
pub(super) enum RightFactor {
    /// The operation's input.
    Input,
    /// Another tensor: the values at a low-rank waist.
    Other(Tensor),
}

impl LinearFactors {
    fn left<'a>(&'a self, part: &'a WeightFactors) -> View<'a> {
        match &part.left {
            Left::Columns(columns) => View::columns(&self.dy, columns.clone()),
            Left::Other(low) => View::of(low),
        }
    }

    fn right<'a>(&'a self, part: &'a WeightFactors) -> &'a Tensor {
        match &part.right {
            RightFactor::Input => self.x.as_ref().expect("kept whenever a weight reads it"),
            RightFactor::Other(low) => low,
        }
    }

    /// Weights of one layer that read the same input count together: its inner products are found once.
    fn add_squares(&self, into: &mut ExampleSquares, left_out: &[ParamId]) {
        let ranges: Vec<_> = self.examples.ranges().collect();
        let mut rest: Vec<&WeightFactors> =
            self.parts.iter().filter(|part| !left_out.contains(&part.id)).collect();
        while let Some(first) = rest.first().copied() {
            let beside = |part: &&WeightFactors| match (&first.left, &part.left) {
                (Left::Columns(_), Left::Columns(_)) => {
                    part.id.layer == first.id.layer
                        && self.right(part).same_storage(self.right(first))
                }
                (Left::Columns(_) | Left::Other(_), _) => std::ptr::eq(*part, first),
            };
            let (together, others): (Vec<_>, Vec<_>) = rest.iter().copied().partition(beside);
            let lefts: Vec<_> = together.iter().map(|part| self.left(part)).collect();
            let given = Outer { lefts: &lefts, right: self.right(first), examples: &ranges };
            into.add_outer(first.id.layer, &given);
            rest = others;
        }
    }

    fn gradient(&self, device: &Device, id: ParamId, example: usize) -> Option<Gradient> {
        let rows = self.examples.ranges().nth(example)?;
        let rows_of = |tensor: &Tensor| {
            tensor.row_range(device, rows.start, rows.len()).expect("an example's rows are inside")
        };
        let mut sum: Option<Tensor> = None;
        for part in self.parts.iter().filter(|part| part.id == id) {
            let left = self.left(part);
            let (left_rows, right_rows) = (rows_of(left.tensor), rows_of(self.right(part)));
            let left = View::columns(&left_rows, left.columns.clone()).t();
            let fill = if sum.is_some() { Fill::Add } else { Fill::Overwrite };
            let (outputs, inputs) = part.shape;
            let into = sum.get_or_insert_with(|| Tensor::scratch(device, outputs, inputs));
            kernels::matmul(device, (into, 0..inputs), fill, (&left, &View::of(&right_rows)));
        }
        sum.map(Gradient::Dense)
    }

    fn add_weighted(mut self, device: &Device, into: &mut Gradients, factors: &Factors) {
        let mut parts = std::mem::take(&mut self.parts);
        while let Some(layer) = parts.first().map(|part| part.id.layer) {
            let (mut here, others): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|part| part.id.layer == layer);
            parts = others;
            let by_row = self.examples.spread(factors.of(layer));
            // One factor is multiplied by zero on its way; the other must not hold an infinity.
            let (mut dy, mut x) = (self.dy.clone(), self.x.clone());
            if by_row.contains(&0.0) {
                if parts.is_empty() {
                    (self.dy, self.x) = (Tensor::zeros(device, 0, 0), None);
                }
                let present: Vec<f32> =
                    by_row.iter().map(|factor| if *factor == 0.0 { 0.0 } else { 1.0 }).collect();
                for tensor in std::iter::once(&mut dy).chain(&mut x) {
                    kernels::scale_rows(tensor, &present);
                }
                for part in &mut here {
                    if let Left::Other(low) = &mut part.left {
                        kernels::scale_rows(low, &present);
                    }
                }
            }
            let mut sums: Vec<_> =
                here.iter().map(|part| into.open(device, part.id, part.shape)).collect();
            let jobs = here.iter().zip(&mut sums).map(|(part, (sum, fill))| WeightGradient {
                into: sum,
                fill: *fill,
                left: match &part.left {
                    Left::Columns(columns) => View::columns(&dy, columns.clone()),
                    Left::Other(low) => View::of(low),
                },
                right: match (&part.right, &part.left) {
                    (RightFactor::Input, Left::Columns(_)) => Factor::Input,
                    (RightFactor::Input, Left::Other(_)) => Factor::InputOfLowRank,
                    (RightFactor::Other(low), _) => Factor::Other(low),
                },
                bias: None,
            });
            let given = LinearBackward {
                dy: &dy,
                x: x.as_ref(),
                weights: &[],
                dx: None,
                jobs: jobs.collect(),
                row_factors: Some(&by_row),
            };
            kernels::linear_backward(device, given);
            for (part, (sum, _)) in here.iter().zip(sums) {
                into.close(part.id, sum);
            }
        }
    }
}

/// Rows of a table that tokens looked up.
#[derive(Debug)]
pub(super) struct Lookup {
    pub id: ParamId,
    /// Rows of the table.
    pub of: usize,
    pub index: Vec<u32>,
    /// Sorted while a GPU is still busy with the backward pass.
    occurrences: Occurrences,
    pub dy: Tensor,
    pub examples: Sequences,
}

impl Lookup {
    pub fn new(
        (id, of): (ParamId, usize),
        index: Vec<u32>,
        dy: Tensor,
        examples: Sequences,
    ) -> Self {
        let occurrences = Occurrences::of(&index);
        Self { id, of, index, occurrences, dy, examples }
    }

    fn gradient(&self, device: &Device, id: ParamId, example: usize) -> Option<Gradient> {
        let rows = self.examples.ranges().nth(example).filter(|_| id == self.id)?;
        let dy = self.dy.row_range(device, rows.start, rows.len()).expect("these rows are inside");
        let (rows, values) = kernels::sum_by_row(device, &self.index[rows], &dy);
        Some(Gradient::Rows { of: self.of, rows, values })
    }

    fn add_weighted(mut self, device: &Device, into: &mut Gradients, factors: &Factors) {
        let by_row = self.examples.spread(factors.of(self.id.layer));
        kernels::scale_rows(&mut self.dy, &by_row);
        let values = kernels::sum_occurrences(device, &self.occurrences, &self.dy);
        let rows = self.occurrences.rows;
        add(into, self.id, Gradient::Rows { of: self.of, rows, values });
    }
}

/// A vocabulary's loss, to be computed again.
#[derive(Debug)]
pub(super) struct VocabularyFactors {
    /// Rows that have a target.
    pub x: Tensor,
    pub weight: Weight,
    pub bias: Option<Weight>,
    pub soft_cap: Option<f32>,
    pub labels: Vec<u32>,
    pub weights: Resolved,
    /// The gradient of the loss.
    pub upstream: Tensor,
    pub examples: Sequences,
}

impl VocabularyFactors {
    /// Weight and bias, if they train.
    pub fn trained(&self) -> [Option<&Weight>; 2] {
        let trains = |weight: &&Weight| weight.trains;
        [Some(&self.weight).filter(trains), self.bias.as_ref().filter(trains)]
    }

    fn gradient(&self, device: &Device, id: ParamId, example: usize) -> Option<Gradient> {
        let mut only = vec![0.0; self.examples.len()];
        *only.get_mut(example)? = 1.0;
        let [weight, bias] = self.trained().map(|weight| weight.is_some_and(|w| w.id == id));
        self.weighted(device, &only, [weight, bias]).into_iter().flatten().next()
    }

    fn add_weighted(self, device: &Device, into: &mut Gradients, factors: &Factors) {
        let trained = self.trained().map(|weight| weight.map(|weight| weight.id));
        let layers = trained.map(|id| id.map(|id| id.layer));
        // A tied weight belongs to the embedding and the bias to the head: two layers, two factors.
        let together = layers[0].is_none() || layers[1].is_none() || layers[0] == layers[1];
        let passes: &[[bool; 2]] =
            if together { &[[true, true]] } else { &[[true, false], [false, true]] };
        for pass in passes {
            let wanted = [0, 1].map(|place| pass[place] && trained[place].is_some());
            let layer = [0, 1].into_iter().filter(|place| wanted[*place]).find_map(|at| layers[at]);
            let Some(layer) = layer else { continue };
            let sums = self.weighted(device, factors.of(layer), wanted);
            for (id, sum) in trained.into_iter().zip(sums) {
                if let (Some(id), Some(sum)) = (id, sum) {
                    add(into, id, sum);
                }
            }
        }
    }

    /// Gradients of weight and bias where wanted, with a factor for each example; the rows of an example
    /// with a factor of zero are not computed.
    fn weighted(
        &self,
        device: &Device,
        factors: &[f32],
        [weight, bias]: [bool; 2],
    ) -> [Option<Gradient>; 2] {
        if !weight && !bias {
            return [None, None];
        }
        let (words, width) = self.weight.tensor.shape();
        let by_row = self.examples.spread(factors);
        let places: Vec<u32> =
            (0..by_row.len() as u32).filter(|&row| by_row[row as usize] != 0.0).collect();
        let mut dw = weight.then(|| Tensor::scratch(device, words, width));
        let mut db = bias.then(|| Tensor::scratch(device, 1, words));
        if places.is_empty() {
            dw.iter_mut().chain(&mut db).for_each(Tensor::clear);
            return [dw, db].map(|sum| sum.map(Gradient::Dense));
        }
        let mut x = Tensor::activation(device, places.len(), width);
        kernels::gather(device, &mut x, &[(&self.x, &places)]);
        let labels: Vec<u32> = places.iter().map(|&row| self.labels[row as usize]).collect();
        let upstream = self.upstream.item();
        let scaled: Vec<f32> = by_row.iter().map(|factor| factor * upstream).collect();
        let weights = self.weights.scaled(&scaled, &places);
        let given = kernels::Vocabulary {
            x: &x,
            weight: &self.weight.tensor,
            bias: self.bias.as_ref().map(|bias| &bias.tensor),
            soft_cap: self.soft_cap,
            labels: &labels,
            factors: weights.factors(),
            dx: None,
            dw: dw.as_mut(),
            db: db.as_mut(),
        };
        kernels::vocabulary_loss(device, given);
        [dw, db].map(|sum| sum.map(Gradient::Dense))
    }
}
