//! One pass over all parameters that change.

use crate::cuda::Cuda;
use crate::cuda::arguments::{Grid, arguments};
use crate::cuda::compiler::Source::Optimiser;
use crate::cuda::opened::Table;
use crate::operands::{Change, GradientView};
use fedra_plan::Solver;

/// Elements of a block.
const CHUNK: usize = 4096;

pub(crate) fn optimise(cuda: &Cuda, changes: &mut [Change<'_>]) {
    let mut words: Vec<u64> = Vec::new();
    let mut chunks = 0;
    let mut tables: Vec<Table> = Vec::new();
    let count = changes.len();
    for change in changes {
        let (rows, cols) = change.weight.shape();
        let elements = rows * cols;
        let (weight, rounded) = change.weight.numbers_kept();
        let moments = change
            .moments
            .each_mut()
            .map(|moment| if moment.elements() == 0 { 0 } else { moment.numbers_mut().address });
        let (slope, row_of) = match change.slope {
            GradientView::Dense(values) => (values.numbers(), 0),
            GradientView::Rows { rows: given, values, .. } => {
                let mut row_of = vec![u32::MAX; rows];
                for (at, row) in given.iter().enumerate() {
                    row_of[*row as usize] = at as u32;
                }
                let table = cuda.upload(&row_of);
                let address = table.address();
                tables.push(table);
                (values.numbers(), address)
            }
        };
        let [corrected_rate, correction] = change.step.corrected;
        // rate, keep, beta1, beta2, epsilon, decay, correction
        let (solver, numbers) = match change.step.solver {
            Solver::Sgd { rate, weight_decay } => {
                (0, [rate, 0.0, 0.0, 0.0, 0.0, weight_decay, 0.0])
            }
            Solver::Momentum { rate, momentum, weight_decay } => {
                (1, [rate, 0.0, momentum, 0.0, 0.0, weight_decay, 0.0])
            }
            Solver::AdamW { rate, beta1, beta2, epsilon, weight_decay } => {
                let keep = 1.0 - rate * weight_decay;
                (2, [corrected_rate, keep, beta1, beta2, epsilon, 0.0, correction])
            }
        };
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let bits = numbers.map(f32::to_bits);
        words.extend([
            weight.address,
            moments[0],
            moments[1],
            slope.address,
            u64::from(slope.half),
        ]);
        words.extend([rounded, row_of, elements as u64, chunks, pair(cols as u32, solver)]);
        words.extend([pair(bits[0], bits[1]), pair(bits[2], bits[3]), pair(bits[4], bits[5])]);
        words.push(pair(bits[6], 0));
        chunks += elements.div_ceil(CHUNK) as u64;
    }
    if chunks == 0 {
        return;
    }
    let table = cuda.upload(&words);
    let grid = Grid::blocks((chunks as u32, 1), (256, 1));
    cuda.launch((Optimiser, "optimise"), grid, arguments![&table, count as u32, CHUNK as u32]);
}
