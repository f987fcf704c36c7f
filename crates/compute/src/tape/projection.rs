//! What a linear operation is given: weights with their bias and low-rank correction.

use crate::error::ComputeError;
use crate::kernels;
use crate::params::Weight;
use crate::tensor::Tensor;

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
        let lora = self.lora.as_ref().is_some_and(Lora::trains);
        self.weight.trains || bias || lora
    }

    /// All of its weights.
    pub(super) fn weights(&self) -> impl Iterator<Item = &Weight> {
        let lora = self.lora.iter().flat_map(|lora| [&lora.a, &lora.b]);
        std::iter::once(&self.weight).chain(&self.bias).chain(lora)
    }

    /// The norms that the rows of its corrected weight are given, if it has some of its own.
    pub(super) fn magnitude(&self) -> Option<(&Lora, &Magnitude)> {
        self.lora.as_ref().and_then(|lora| Some((lora, lora.magnitude.as_ref()?)))
    }

    /// The same without norms of its own and without a bias.
    pub(super) fn direction(&self) -> Self {
        let lora = self.lora.clone().map(|lora| Lora { magnitude: None, ..lora });
        Self { lora, bias: None, weight: self.weight.clone() }
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
            if let Some(magnitude) = &lora.magnitude {
                let (found, shape) = (magnitude.weight().tensor.shape(), (1, self.outputs()));
                ComputeError::expect("linear", "LoRA magnitude shape", found, shape)?;
            }
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
    /// The norms that the rows of the corrected weight are given (`DoRA`); their own unless given.
    pub magnitude: Option<Magnitude>,
}

impl Lora {
    fn trains(&self) -> bool {
        let magnitude = self.magnitude.as_ref().is_some_and(Magnitude::trains);
        self.a.trains || self.b.trains || magnitude
    }
}

/// The norms of a corrected weight's rows, one number per output.
#[derive(Clone, Debug)]
pub enum Magnitude {
    /// They are divided by the norms that the rows have, which takes a pass over the weight.
    Norms(Weight),
    /// They have been divided already ([`magnitude_factors`](crate::magnitude_factors)), because nothing trains.
    Factors(Weight),
}

impl Magnitude {
    pub(super) fn weight(&self) -> &Weight {
        match self {
            Self::Norms(weight) | Self::Factors(weight) => weight,
        }
    }

    pub(super) fn trains(&self) -> bool {
        match self {
            Self::Norms(weight) => weight.trains,
            Self::Factors(_) => false,
        }
    }
}

/// What the columns of a projection are multiplied by, for rows that are given these norms.
pub fn magnitude_factors(
    weight: &Tensor,
    (a, b, scale): (&Tensor, &Tensor, f32),
    magnitude: &Tensor,
) -> Tensor {
    let [factors, _] =
        kernels::magnitude_factors(&weight.device(), (weight, (a, b, scale)), magnitude);
    factors
}
