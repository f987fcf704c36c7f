//! Sums of table look-ups: token, position, segment. Saves the indices; gradients stay sparse.

use super::example_factors::{ExampleFactors, Lookup};
use super::record::{Flow, Recorded, Tape};
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels;
use crate::params::Weight;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};

impl Tape {
    /// `sum over tables of table[index[i]]` for each token `i`.
    pub fn embed(&mut self, tables: &[(&Weight, &[u32])]) -> Result<Value, ComputeError> {
        let Some((first, index)) = tables.first() else {
            return Err(ComputeError::Empty { operation: "embedding", what: "list of tables" });
        };
        let (tokens, width) = (index.len(), first.tensor.cols());
        ComputeError::not_empty("embedding", "batch", tokens)?;
        ComputeError::not_empty("embedding", "row of a table", width)?;
        for (table, index) in tables {
            ComputeError::expect("embedding", "table width", table.tensor.cols(), width)?;
            ComputeError::expect("embedding", "number of indices", index.len(), tokens)?;
            ComputeError::within("embedding", table.id.role.name(), index, table.tensor.rows())?;
        }
        let mut sum = Tensor::scratch(&self.device, tokens, width);
        let sources: Vec<_> = tables.iter().map(|(table, index)| (&table.tensor, *index)).collect();
        kernels::gather(&self.device, &mut sum, &sources);
        let examples = self.example_tokens(tokens, tables.iter().map(|(table, _)| *table))?;
        let trained: Vec<_> = tables.iter().filter(|(table, _)| table.trains).collect();
        let sequences = self.sequences_of(tokens);
        let sum = self.finish(sum, !trained.is_empty(), |result| Embedding {
            result,
            tables: trained
                .into_iter()
                .map(|(table, index)| ((*table).clone(), index.to_vec()))
                .collect(),
            examples,
        });
        Ok(Value { sequences, ..sum })
    }
}

#[derive(Debug)]
struct Embedding {
    result: Slot,
    tables: Vec<(Weight, Vec<u32>)>,
    /// The rows of each example, where examples are told apart.
    examples: Option<Sequences>,
}

impl Recorded for Embedding {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        if let Some(examples) = self.examples {
            let lookup = |(table, index): (Weight, Vec<u32>)| Lookup {
                id: table.id,
                of: table.tensor.rows(),
                index,
                dy: dy.clone(),
                examples: examples.clone(),
            };
            self.tables
                .into_iter()
                .map(lookup)
                .for_each(|lookup| flow.keep(ExampleFactors::Lookup(lookup)));
            return;
        }
        for (table, index) in self.tables {
            let (rows, values) = kernels::sum_by_row(&flow.device, &index, &dy);
            let of = table.tensor.rows();
            flow.add_gradient(table.id, Gradient::Rows { of, rows, values });
        }
    }
}
