//! Rows of a table put among those of every sequence: the class token in front of an image's patches.
//! Saves nothing but where they are.

use super::example_factors::{ExampleFactors, Lookup};
use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels;
use crate::params::Weight;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// Every sequence of `x` with all rows of a table in front of its row `place`.
    ///
    /// ```
    /// # use fedra_compute::{Device, Sequences, Tape, Tensor, Weight};
    /// # use fedra_plan::{Layer, ParamId, Part, Role};
    /// let device = Device::cpu();
    /// let mut tape = Tape::new(&device);
    /// let x = tape.constant(Tensor::from_slice(&device, 3, 1, &[1.0, 2.0, 3.0])?);
    /// let x = x.in_sequences(&Sequences::of_lengths(&[2, 1]))?;
    /// let id = ParamId::new(Layer::Embedding, Role::ClassToken, Part::Weight);
    /// let tensor = Tensor::from_slice(&device, 1, 1, &[9.0])?;
    /// let y = tape.insert_rows(&x, 0, &Weight { id, tensor, trains: false })?;
    /// assert_eq!(*y.tensor.to_host(), [9.0, 1.0, 2.0, 9.0, 3.0]);
    /// # Ok::<(), fedra_compute::ComputeError>(())
    /// ```
    pub fn insert_rows(
        &mut self,
        x: &Value,
        place: usize,
        table: &Weight,
    ) -> Result<Value, ComputeError> {
        let operation = "inserted rows";
        let (more, width) = table.tensor.shape();
        ComputeError::not_empty(operation, "table", more)?;
        ComputeError::not_empty(operation, "row", width)?;
        ComputeError::expect(operation, "table width", width, x.tensor.cols())?;
        let Some(sequences) = x.sequences() else {
            let what = "description of where sequences begin";
            return Err(ComputeError::Empty { operation, what });
        };
        let lengths: Vec<usize> = sequences.ranges().map(|rows| rows.len()).collect();
        if let Some(short) = lengths.iter().find(|length| **length < place) {
            let (found, expected) =
                (place.to_string(), format!("at most {short}, the length of a sequence"));
            return Err(ComputeError::shape(operation, "place", found, expected));
        }
        let examples =
            self.example_rows(operation, Some(sequences), std::iter::once(table))?.is_some();
        let (mut own, mut inserted) = (Vec::with_capacity(x.tensor.rows()), Vec::new());
        let mut next = 0;
        for length in &lengths {
            own.extend((next..next + place).map(|row| row as u32));
            inserted.extend((next + place..next + place + more).map(|row| row as u32));
            own.extend((next + place + more..next + length + more).map(|row| row as u32));
            next += length + more;
        }
        let mut y = Tensor::activation(&self.device, next, width);
        y.clear();
        kernels::scatter_add(&mut y, &own, &x.tensor);
        let index: Vec<u32> = lengths.iter().flat_map(|_| 0..more as u32).collect();
        let mut rows = Tensor::activation(&self.device, index.len(), width);
        kernels::gather(&self.device, &mut rows, &[(&table.tensor, &index)]);
        kernels::scatter_add(&mut y, &inserted, &rows);
        drop(rows);
        let sequences: Vec<usize> = lengths.iter().map(|length| length + more).collect();
        let y = self.finish(y, wanted(&[x], &[table]), || {
            let (from, (id, trains)) = (x.slot, (table.id, table.trains));
            move |flow: &mut Flow, dy: Tensor| {
                let picked = |rows: &[u32]| {
                    let mut picked = Tensor::activation(&flow.device, rows.len(), width);
                    kernels::gather(&flow.device, &mut picked, &[(&dy, rows)]);
                    picked
                };
                let of_table = trains.then(|| picked(&inserted));
                let of_input = from.map(|_| picked(&own));
                drop(dy);
                if let Some(dy) = of_table {
                    if examples {
                        let examples = Sequences::of_lengths(&vec![more; lengths.len()]);
                        let lookup = Lookup::new((id, more), index, dy, examples);
                        flow.keep(ExampleFactors::Lookup(lookup));
                    } else {
                        let (rows, values) = kernels::sum_by_row(&flow.device, &index, &dy);
                        flow.add_gradient(id, Gradient::Rows { of: more, rows, values });
                    }
                }
                if let Some(dx) = of_input {
                    flow.add(from, dx);
                }
            }
        });
        y.in_sequences(&Sequences::of_lengths(&sequences))
    }
}
