//! Rows between tensors and frames. A GPU that computes in bf16 hands them over as they are.

use fedra_compute::{Device, Tensor, unclip};
use fedra_wire::RowValues;

use crate::error::Result;

/// The numbers of a tensor.
pub(crate) fn rows_of(tensor: &Tensor) -> RowValues {
    match tensor.to_halves() {
        Some(halves) => RowValues::Bf16(halves.into_owned()),
        None => RowValues::F32(tensor.to_host().into_owned()),
    }
}

/// Rows of so many numbers as a tensor.
pub(crate) fn tensor_of(device: &Device, rows: &RowValues, width: usize) -> Result<Tensor> {
    let count = rows.len() / width.max(1);
    Ok(match rows {
        RowValues::F32(values) => Tensor::from_slice(device, count, width, values)?,
        RowValues::Bf16(bits) => Tensor::activation_of_bf16(device, count, width, bits)?,
    })
}

/// How rows were scaled before they left.
#[derive(Debug)]
pub(crate) enum Scaled {
    /// They left as they were.
    Nothing,
    /// Each by its factor; and what they were before.
    Rows { before: Vec<f32>, factors: Vec<f32> },
}

impl Scaled {
    /// The gradient by rows before they were scaled, from that by those that left.
    pub fn undone(&self, gradient: RowValues, width: usize) -> RowValues {
        match self {
            Self::Nothing => gradient,
            Self::Rows { before, factors } => {
                let mut gradient = gradient.into_f32();
                unclip(&mut gradient, (before, width), factors);
                RowValues::F32(gradient)
            }
        }
    }
}
