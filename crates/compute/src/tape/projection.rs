//! What a linear operation is given: weights with their bias and low-rank correction.

use crate::error::ComputeError;
use crate::params::Weight;

/// A weight `[outputs, inputs]` with what belongs to it.
#[derive(Clone, Debug)]
pub struct Projection {
    /// The matrix.
    pub weight: Weight,
    /// One number per output.
    pub bias: Option<Weight>,
    /// A low-rank correction.
    pub lora: Option<Lora>,
}

impl Projection {
    pub(super) fn outputs(&self) -> usize {
        self.weight.tensor.rows()
    }

    pub(super) fn trains(&self) -> bool {
        let bias = self.bias.as_ref().is_some_and(|bias| bias.trains);
        let lora = self.lora.as_ref().is_some_and(|lora| lora.a.trains || lora.b.trains);
        self.weight.trains || bias || lora
    }

    /// All of its weights.
    pub(super) fn weights(&self) -> impl Iterator<Item = &Weight> {
        let lora = self.lora.iter().flat_map(|lora| [&lora.a, &lora.b]);
        std::iter::once(&self.weight).chain(&self.bias).chain(lora)
    }

    /// Whether a gradient of this projection needs the input.
    pub(super) fn reads_input(&self) -> bool {
        self.weight.trains || self.lora.as_ref().is_some_and(|lora| lora.a.trains || lora.b.trains)
    }

    pub(super) fn check(&self, inputs: usize) -> Result<(), ComputeError> {
        ComputeError::expect("linear", "input width", inputs, self.weight.tensor.cols())?;
        if let Some(bias) = &self.bias {
            let shape = (1, self.outputs());
            ComputeError::expect("linear", "bias shape", bias.tensor.shape(), shape)?;
        }
        if let Some(lora) = &self.lora {
            let (rank, shape) = (lora.a.tensor.rows(), lora.a.tensor.shape());
            ComputeError::expect("linear", "LoRA A shape", shape, (rank, inputs))?;
            let shape = (self.outputs(), rank);
            ComputeError::expect("linear", "LoRA B shape", lora.b.tensor.shape(), shape)?;
        }
        Ok(())
    }
}

/// A low-rank correction `scale * B A` of a weight.
#[derive(Clone, Debug)]
pub struct Lora {
    /// `[rank, inputs]`.
    pub a: Weight,
    /// `[outputs, rank]`.
    pub b: Weight,
    /// `alpha / rank`.
    pub scale: f32,
}
