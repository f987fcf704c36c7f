//! Squared norms of examples' gradients: what they are of is collected during a backward pass, and all are found
//! together behind it, with one copy to the processor.

use crate::cuda::arguments::{Argument, Grid, arguments};
use crate::cuda::compiler::Source::{Elementwise, Examples};
use crate::cuda::opened::Table;
use crate::cuda::{Buffer, Cuda};
use crate::operands::{Outer, View};
use crate::precision::Precision;
use crate::tensor::Tensor;
use std::ops::Range;

/// Rows, columns and depth of a tile.
const SIDE: usize = 64;
/// Bytes of shared memory for three pairs of tiles on their way.
const SHARED: u32 = (3 * 2 * SIDE * (SIDE + 8) * 2) as u32;
/// How much longer a whole gradient is taken to be where its factors are rounded again: an estimate, because the rows
/// that it was made of are not at hand.
const WHOLE_SLACK: f32 = 1.0 / 64.0;

/// Squares that are still to be found, one for each example and entry.
#[derive(Debug)]
pub(crate) struct PendingSquares {
    cuda: Cuda,
    examples: usize,
    entries: Vec<Entry>,
}

#[derive(Debug)]
enum Entry {
    /// Of products of two factors.
    Product(Product),
    /// Of rows that are the examples' gradients themselves.
    Rows { sums: Tensor, columns: Range<usize> },
    /// Found before, and a number that gradients were multiplied by since.
    Found { squares: Buffer, factor: Option<Tensor> },
}

/// An example's gradient is the sum over its rows of `left_t right_t^T`.
#[derive(Debug)]
struct Product {
    left: Tensor,
    columns: Vec<Range<usize>>,
    right: Right,
    rows: Vec<Range<usize>>,
    /// By how much, at most, numbers are rounded when the gradient is made.
    slack: f32,
}

#[derive(Debug)]
enum Right {
    Input(Tensor),
    /// Rows of a table, by the one that each row looked up.
    Index(Table),
}

/// How squares of products are found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    /// From inner products of rows, not from the gradient.
    by_rows: bool,
    by_tensor_cores: bool,
}

impl PendingSquares {
    pub fn new(cuda: &Cuda, examples: usize) -> Self {
        Self { cuda: cuda.clone(), examples, entries: Vec::new() }
    }

    /// Of weights that share their input; `again` says how often the left factor is rounded before the gradient
    /// is made.
    pub fn add_outer(&mut self, given: &Outer<'_>, again: u8) {
        let left = given.lefts[0].tensor;
        let mut columns: Vec<Range<usize>> = Vec::new();
        for view in given.lefts {
            assert!(view.tensor.same_storage(left), "weights that count together share a tensor");
            match columns.last_mut() {
                Some(last) if last.end == view.columns.start => last.end = view.columns.end,
                Some(_) | None => columns.push(view.columns.clone()),
            }
        }
        let slack = match self.cuda.precision() {
            Precision::F32 => 0.0,
            // Both factors lose what is behind ten bits.
            Precision::Tf32 => 2.0 * 2_f32.powi(-10),
            Precision::Bf16 => f32::from(again + u8::from(!given.right.is_bf16())) * 2_f32.powi(-8),
        };
        self.entries.push(Entry::Product(Product {
            left: left.clone(),
            columns,
            right: Right::Input(given.right.clone()),
            rows: given.examples.to_vec(),
            slack,
        }));
    }

    /// Of rows of a table.
    pub fn add_lookup(&mut self, (from, index): (&Tensor, &[u32]), rows: &[Range<usize>]) {
        self.entries.push(Entry::Product(Product {
            left: from.clone(),
            columns: vec![View::of(from).columns],
            right: Right::Index(self.cuda.upload(index)),
            rows: rows.to_vec(),
            slack: if from.is_bf16() { 2_f32.powi(-8) } else { 0.0 },
        }));
    }

    /// Of some columns of rows that are gradients.
    pub fn add_rows(&mut self, x: &View<'_>) {
        self.entries.push(Entry::Rows { sums: x.tensor.clone(), columns: x.columns.clone() });
    }

    /// Squares that were found before, times the square of a factor.
    pub fn add_found(&mut self, squares: Buffer, factor: &Tensor) {
        self.entries.push(Entry::Found { squares, factor: Some(factor.clone()) });
    }

    /// Of gradients that are at hand, one example after another.
    pub fn add_gradients(&mut self, gradients: impl Iterator<Item = Option<Tensor>>) {
        let squares = zeros(&self.cuda, self.examples);
        for (example, gradient) in gradients.enumerate() {
            let Some(gradient) = gradient else { continue };
            add_square(&self.cuda, squares.address + 8 * example as u64, &gradient);
        }
        self.entries.push(Entry::Found { squares, factor: None });
    }

    /// All squares: those of each entry by example.
    pub fn to_host(&self) -> Vec<Vec<f64>> {
        let count = self.entries.len() * self.examples;
        let into = zeros(&self.cuda, count);
        self.launch(into.address);
        let all = self.cuda.read::<f64>(into.address, count);
        if self.examples == 0 {
            return vec![Vec::new(); self.entries.len()];
        }
        all.chunks_exact(self.examples).map(<[f64]>::to_vec).collect()
    }

    /// Finds them, into f64 by entry and example.
    pub(super) fn launch(&self, into: u64) {
        if self.examples == 0 {
            return;
        }
        let mut groups: Vec<(Way, Vec<(usize, &Product)>)> = Vec::new();
        let mut rows = Vec::new();
        for (number, entry) in self.entries.iter().enumerate() {
            match entry {
                Entry::Product(product) => {
                    let way = product.way();
                    let beside = |(of, group): &&mut (Way, Vec<(usize, &Product)>)| {
                        *of == way && group[0].1.rows == product.rows
                    };
                    match groups.iter_mut().find(beside) {
                        Some((_, group)) => group.push((number, product)),
                        None => groups.push((way, vec![(number, product)])),
                    }
                }
                Entry::Rows { sums, columns } => {
                    sums.numbers().words(&mut rows);
                    rows.push(columns.start as u64);
                    rows.push(pair(sums.cols(), columns.len()));
                    rows.push(number as u64);
                }
                Entry::Found { squares, factor } => {
                    let into = into + 8 * (number * self.examples) as u64;
                    self.copy_found(into, squares, factor.as_ref());
                }
            }
        }
        for (way, group) in &groups {
            self.launch_products(*way, group, into);
        }
        if !rows.is_empty() {
            let (count, jobs) = (self.examples as u32, (rows.len() / 5) as u32);
            let table = self.cuda.upload(&rows);
            let grid = Grid::blocks((count.div_ceil(8), jobs), (256, 1));
            self.cuda.launch((Examples, "row_squares"), grid, arguments![&table, count, into]);
        }
    }

    fn copy_found(&self, into: u64, squares: &Buffer, factor: Option<&Tensor>) {
        let factor = factor.map(Tensor::numbers);
        let given = arguments![into, squares.address, factor, self.examples as u32];
        let grid = Grid::blocks((1, 1), (256, 1));
        self.cuda.launch((Examples, "scale_squares"), grid, given);
    }

    /// Products of the same rows.
    fn launch_products(&self, way: Way, group: &[(usize, &Product)], into: u64) {
        let cuda = &self.cuda;
        let (count, jobs) = (self.examples as u32, group.len() as u32);
        let rows = &group[0].1.rows;
        let bounds: Vec<u32> =
            rows.iter().flat_map(|rows| [rows.start as u32, rows.len() as u32]).collect();
        let bounds = cuda.upload(&bounds);
        let mut words = Vec::new();
        let columns: Vec<Table> =
            group.iter().map(|(_, product)| product.column_table(cuda)).collect();
        for ((number, product), columns) in group.iter().zip(&columns) {
            product.words(*number, columns, &mut words);
        }
        let all = cuda.upload(&words);
        let (threads, shared) = if way.by_tensor_cores { (128, SHARED) } else { (256, 0) };
        let grid = |blocks: u32| Grid { shared, ..Grid::blocks((blocks, jobs), (threads, 1)) };
        let by_example = Grid::blocks((count.div_ceil(8), jobs), (256, 1));
        if way.by_rows {
            let (tiles, starts) = tiles(rows);
            let number = (tiles.len() / 4) as u32;
            let sums = cuda.take((8 * number * jobs).max(1) as usize);
            let name = if way.by_tensor_cores { "gram_tensor" } else { "gram_plain" };
            let (tiles, starts) = (cuda.upload(&tiles), cuda.upload(&starts));
            if number > 0 {
                let given = arguments![&all, &tiles, sums.address];
                cuda.launch((Examples, name), grid(number), given);
            }
            let rounding = if way.by_tensor_cores { 1e-6_f32 } else { 2e-7 };
            let given = arguments![&all, sums.address, &bounds, &starts, count, rounding, into];
            return cuda.launch((Examples, "gram_squares"), by_example, given);
        }
        let most = group.iter().map(|(_, product)| product.tiles()).max().unwrap_or(0).max(1);
        let sums = cuda.take(2 * most * group.len() * self.examples);
        let name = if way.by_tensor_cores { "gradient_tensor" } else { "gradient_plain" };
        let blocks = (most * self.examples) as u32;
        let most = most as u32;
        cuda.launch((Examples, name), grid(blocks), arguments![&all, &bounds, most, sums.address]);
        let last = rows.iter().map(|rows| rows.end).max().unwrap_or(0) as u32;
        let lengths = cuda.take((2 * last * jobs).max(1) as usize);
        let by_row = Grid::blocks((last.div_ceil(8).max(1), jobs), (256, 1));
        cuda.launch((Examples, "row_lengths"), by_row, arguments![&all, lengths.address, last]);
        let given =
            arguments![&all, sums.address, lengths.address, &bounds, count, most, last, into];
        cuda.launch((Examples, "gradient_squares"), by_example, given);
    }
}

impl Product {
    fn outputs(&self) -> usize {
        self.columns.iter().map(ExactSizeIterator::len).sum()
    }

    fn inputs(&self) -> usize {
        match &self.right {
            Right::Input(right) => right.cols(),
            Right::Index(_) => 0,
        }
    }

    /// Tiles of the gradient.
    fn tiles(&self) -> usize {
        let down: usize = self.columns.iter().map(|columns| columns.len().div_ceil(SIDE)).sum();
        down * self.inputs().div_ceil(SIDE)
    }

    fn way(&self) -> Way {
        let whole = |tensor: &Tensor| tensor.is_bf16() && tensor.cols().is_multiple_of(8);
        let in_eights = |columns: &Range<usize>| {
            columns.start.is_multiple_of(8) && columns.end.is_multiple_of(8)
        };
        let (is_whole, is_table) = match &self.right {
            Right::Input(right) => (whole(right), false),
            Right::Index(_) => (true, true),
        };
        let (outputs, inputs) = (self.outputs().div_ceil(SIDE), self.inputs().div_ceil(SIDE));
        let blocks = |rows: &Range<usize>| rows.len().div_ceil(SIDE);
        let pairs: usize = self.rows.iter().map(|rows| blocks(rows) * (blocks(rows) + 1) / 2).sum();
        let rows: usize = self.rows.iter().map(blocks).sum();
        Way {
            by_rows: is_table || pairs * (outputs + inputs) <= rows * outputs * inputs,
            by_tensor_cores: whole(&self.left) && is_whole && self.columns.iter().all(in_eights),
        }
    }

    fn column_table(&self, cuda: &Cuda) -> Table {
        let columns = self.columns.iter().flat_map(|c| [c.start as u32, c.len() as u32]);
        cuda.upload(&columns.collect::<Vec<_>>())
    }

    /// As the kernels' `Outer`.
    fn words(&self, entry: usize, columns: &Table, into: &mut Vec<u64>) {
        let (right, index, stride) = match &self.right {
            Right::Input(right) => (Some(right.numbers()), 0, right.cols()),
            Right::Index(index) => (None, index.address(), 0),
        };
        self.left.numbers().words(into);
        right.words(into);
        into.extend([
            columns.address(),
            index,
            pair(self.left.cols(), stride),
            pair(self.outputs(), self.inputs()),
            pair(self.columns.len(), entry),
            u64::from(self.slack.to_bits()),
        ]);
    }
}

fn pair(low: usize, high: usize) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Tiles of inner products on and below the diagonal: an example's first row and rows, down, across; and where each
/// example's begin.
fn tiles(rows: &[Range<usize>]) -> (Vec<u32>, Vec<u32>) {
    let (mut tiles, mut starts) = (Vec::new(), vec![0]);
    for rows in rows {
        let blocks = rows.len().div_ceil(SIDE) as u32;
        for down in 0..blocks {
            for across in 0..=down {
                tiles.extend([rows.start as u32, rows.len() as u32, down, across]);
            }
        }
        starts.push((tiles.len() / 4) as u32);
    }
    (tiles, starts)
}

/// For each view `sum over rows of factor * row`; all have a row for each example.
pub(crate) fn weighted_rows_together(cuda: &Cuda, given: &[(View<'_>, &[f32])]) -> Vec<Tensor> {
    let (mut sums, mut tables, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for (x, factors) in given {
        let mut sum = Tensor::scratch(&x.tensor.device(), 1, x.columns.len());
        let factors = cuda.upload(factors);
        sum.numbers_mut().words(&mut words);
        x.tensor.numbers().words(&mut words);
        words.extend([x.columns.start as u64, factors.address()]);
        words.push(pair(x.tensor.cols(), x.columns.len()));
        sums.push(sum);
        tables.push(factors);
    }
    let widest = given.iter().map(|(x, _)| x.columns.len()).max().unwrap_or(0);
    if widest > 0 {
        let rows = given[0].1.len() as u32;
        let grid = Grid::blocks((widest.div_ceil(32) as u32, given.len() as u32), (256, 1));
        let table = cuda.upload(&words);
        cuda.launch((Examples, "weighted_rows"), grid, arguments![&table, rows]);
    }
    sums
}

/// So many f64 of zero.
pub(super) fn zeros(cuda: &Cuda, count: usize) -> Buffer {
    let buffer = cuda.take((2 * count).max(1));
    crate::cuda::moves::fill(cuda, buffer.numbers(false), 2 * count, 0.0);
    buffer
}

/// Adds the square of a whole gradient to an f64.
pub(super) fn add_square(cuda: &Cuda, into: u64, gradient: &Tensor) {
    let share = if cuda.precision() == Precision::F32 { 0.0 } else { WHOLE_SLACK };
    let n = gradient.elements();
    let grid = Grid::over(n.div_ceil(4) as u64);
    let parts = cuda.take(2 * grid.blocks.0 as usize);
    let given = arguments![gradient.numbers(), n as u64, parts.address];
    cuda.launch((Elementwise, "squares"), grid, given);
    let given = arguments![into, parts.address, grid.blocks.0, share];
    cuda.launch((Examples, "add_squares"), Grid::blocks((1, 1), (256, 1)), given);
}
