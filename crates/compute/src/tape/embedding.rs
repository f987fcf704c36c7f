//! Sums of table look-ups: token, position, segment. Saves the indices; gradients stay sparse.

use super::{Flow, Recorded, Slot, Tape, Value};
use crate::cpu::rows::{Occurrences, gather};
use crate::device::Device;
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::params::Weight;
use crate::tensor::Tensor;

impl Tape {
    /// `sum over tables of table[index[i]]` for each token `i`.
    pub fn embed(&mut self, tables: &[(&Weight, &[u32])]) -> Result<Value, ComputeError> {
        let Some((first, index)) = tables.first() else {
            return Err(ComputeError::Empty { operation: "embedding", what: "list of tables" });
        };
        let (tokens, width) = (index.len(), first.tensor.cols());
        if tokens == 0 {
            return Err(ComputeError::Empty { operation: "embedding", what: "batch" });
        }
        for (table, index) in tables {
            ComputeError::expect("embedding", "table width", table.tensor.cols(), width)?;
            ComputeError::expect("embedding", "number of indices", index.len(), tokens)?;
            ComputeError::within("embedding", table.id.role.name(), index, table.tensor.rows())?;
        }
        let mut sum = Tensor::scratch(&self.device, tokens, width);
        match &self.device {
            Device::Cpu(_) => {
                let sources: Vec<_> =
                    tables.iter().map(|(table, index)| (table.tensor.data(), *index)).collect();
                gather(sum.data_mut(), width, &sources);
            }
        }
        let trained: Vec<_> = tables.iter().filter(|(table, _)| table.trains).collect();
        Ok(self.finish(sum, !trained.is_empty(), |result| Embedding {
            result,
            tables: trained
                .into_iter()
                .map(|(table, index)| ((*table).clone(), index.to_vec()))
                .collect(),
        }))
    }
}

#[derive(Debug)]
struct Embedding {
    result: Slot,
    tables: Vec<(Weight, Vec<u32>)>,
}

impl Recorded for Embedding {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        for (table, index) in self.tables {
            let occurrences = Occurrences::of(&index);
            let mut values = Tensor::scratch(&flow.device, occurrences.rows.len(), dy.cols());
            match &flow.device {
                Device::Cpu(_) => occurrences.sum_rows(values.data_mut(), dy.cols(), dy.data()),
            }
            let of = table.tensor.rows();
            flow.add_gradient(table.id, Gradient::Rows { of, rows: occurrences.rows, values });
        }
    }
}
