//! Sums of table look-ups: token, position, segment. Saves the indices; gradients stay sparse.

use super::example_factors::{ExampleFactors, Lookup};
use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels;
use crate::params::Weight;
use crate::tensor::Tensor;
use crate::value::Value;

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
        let mut sum = Tensor::activation(&self.device, tokens, width);
        let sources: Vec<_> = tables.iter().map(|(table, index)| (&table.tensor, *index)).collect();
        kernels::gather(&self.device, &mut sum, &sources);
        let examples = self.example_tokens(tokens, tables.iter().map(|(table, _)| *table))?;
        let trained = || tables.iter().filter(|(table, _)| table.trains);
        let sequences = self.sequences_of(tokens);
        let sum = self.finish(sum, trained().next().is_some(), || {
            let kept = |(table, index): &(&Weight, &[u32])| ((*table).clone(), index.to_vec());
            let tables: Vec<(Weight, Vec<u32>)> = trained().map(kept).collect();
            move |flow: &mut Flow, dy: Tensor| {
                for (Weight { id, tensor, .. }, index) in tables {
                    let of = tensor.rows();
                    if let Some(examples) = examples.clone() {
                        let lookup = Lookup::new((id, of), index, dy.clone(), examples);
                        flow.keep(ExampleFactors::Lookup(lookup));
                    } else {
                        let (rows, values) = kernels::sum_by_row(&flow.device, &index, &dy);
                        flow.add_gradient(id, Gradient::Rows { of, rows, values });
                    }
                }
            }
        });
        Ok(Value { sequences, ..sum })
    }

    /// `x[i] + table[index[i]]`, in place when nobody else holds `x`.
    pub fn embed_onto(
        &mut self,
        x: Value,
        (table, index): (&Weight, &[u32]),
    ) -> Result<Value, ComputeError> {
        let (rows, width) = x.tensor.shape();
        ComputeError::not_empty("embedding", "row of a table", width)?;
        ComputeError::expect("embedding", "table width", table.tensor.cols(), width)?;
        ComputeError::expect("embedding", "number of indices", index.len(), rows)?;
        ComputeError::within("embedding", table.id.role.name(), index, table.tensor.rows())?;
        let examples = self.example_rows("embedding", x.sequences(), std::iter::once(table))?;
        let wanted = wanted(&[&x], &[table]);
        let mut looked_up = Tensor::activation(&self.device, rows, width);
        kernels::gather(&self.device, &mut looked_up, &[(&table.tensor, index)]);
        let Value { tensor: mut sum, slot, sequences } = x;
        sum.add_scaled(1.0, &looked_up)?;
        drop(looked_up);
        let sum = self.finish(sum, wanted, || {
            let (id, of) = (table.id, table.tensor.rows());
            let index = table.trains.then(|| index.to_vec());
            move |flow: &mut Flow, dy: Tensor| {
                match (index, examples) {
                    (Some(index), Some(examples)) => {
                        let lookup = Lookup::new((id, of), index, dy.clone(), examples);
                        flow.keep(ExampleFactors::Lookup(lookup));
                    }
                    (Some(index), None) => {
                        let (rows, values) = kernels::sum_by_row(&flow.device, &index, &dy);
                        flow.add_gradient(id, Gradient::Rows { of, rows, values });
                    }
                    (None, _) => {}
                }
                flow.add(slot, dy);
            }
        });
        Ok(Value { sequences, ..sum })
    }
}
