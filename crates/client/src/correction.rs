//! What a local rule adds to a client's gradients.
//!
//! ```text
//! proximal   g + mu (w - w0)             FedProx, Li et al. 2020, <https://arxiv.org/abs/1812.06127>
//! variates   g - c_i + c                 SCAFFOLD, Karimireddy et al. 2020, <https://arxiv.org/abs/1910.06378>
//! dynamic    g - h_i + alpha (w - w0)    FedDyn, Acar et al. 2021, <https://arxiv.org/abs/2111.04263>
//! ```
//! Only gradients that exist are corrected, so what is frozen has nothing to add to. The terms reach
//! every row of a table, hence a sparse embedding gradient becomes a dense one.

use fedra_compute::{Device, Gradients, Params, Tensor};
use fedra_engine::LocalRule;
use fedra_plan::{ParamId, Scope};
use fedra_wire::ParamValues;

use crate::error::{ClientError, Result};

/// The term that a rule adds, with numbers as they came or where the gradients are. Of these, an absent
/// parameter is zero everywhere.
#[derive(Clone, Copy, Debug)]
pub enum Correction<N> {
    /// None: plain local training.
    Nothing,
    /// A pull towards where the round began.
    Proximal {
        /// Strength of the pull.
        mu: f32,
    },
    /// Control variates against drift.
    Variates {
        /// The client's own, `c_i`.
        own: N,
        /// The server's, `c`.
        server: N,
    },
    /// A penalty that remembers the client's earlier rounds.
    Dynamic {
        /// Strength of the penalty.
        alpha: f32,
        /// What the client remembers, `h_i`.
        memory: N,
    },
}

impl<'a> Correction<&'a ParamValues> {
    /// The term of a rule, with what the client remembers and what the server sent.
    pub(crate) fn of(rule: LocalRule, own: &'a ParamValues, server: &'a ParamValues) -> Self {
        match rule {
            LocalRule::Plain => Self::Nothing,
            LocalRule::Proximal { mu } => Self::Proximal { mu },
            LocalRule::ControlVariate => Self::Variates { own, server },
            LocalRule::Dynamic { alpha } => Self::Dynamic { alpha, memory: own },
        }
    }

    /// The same with the numbers of what learns on a device, once per round; `params` have their shapes.
    pub(crate) fn placed(
        self,
        device: &Device,
        (params, scope): (&Params, &Scope),
    ) -> Result<Correction<Params>> {
        let place = |values| place(device, values, (params, scope));
        Ok(match self {
            Self::Nothing => Correction::Nothing,
            Self::Proximal { mu } => Correction::Proximal { mu },
            Self::Variates { own, server } => {
                Correction::Variates { own: place(own)?, server: place(server)? }
            }
            Self::Dynamic { alpha, memory } => {
                Correction::Dynamic { alpha, memory: place(memory)? }
            }
        })
    }
}

impl Correction<Params> {
    /// Corrects the gradients of a step; `now` and `start` are the weights now and at the beginning.
    pub(crate) fn apply(
        &self,
        gradients: &mut Gradients,
        (now, start): (&Params, &Params),
    ) -> Result<()> {
        for (id, gradient) in gradients.iter_mut() {
            match self {
                Self::Nothing => {}
                Self::Proximal { mu } => {
                    gradient.densify().add_scaled_difference(*mu, now.get(id)?, start.get(id)?)?;
                }
                Self::Variates { own, server } => {
                    let sum = gradient.densify();
                    add(sum, -1.0, own, id)?;
                    add(sum, 1.0, server, id)?;
                }
                Self::Dynamic { alpha, memory } => {
                    let sum = gradient.densify();
                    add(sum, -1.0, memory, id)?;
                    sum.add_scaled_difference(*alpha, now.get(id)?, start.get(id)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Numbers of a scope on a device, in the shapes of their parameters.
fn place(
    device: &Device,
    values: &ParamValues,
    (params, scope): (&Params, &Scope),
) -> Result<Params> {
    let tensor = |(id, values): (ParamId, &[f32])| {
        let (rows, cols) = params.get(id)?.shape();
        if values.len() != rows * cols {
            let (found, expected) = (values.len(), rows * cols);
            return Err(ClientError::Length { id, found, expected });
        }
        Ok((id, Tensor::from_slice(device, rows, cols, values)?))
    };
    values.iter().filter(|(id, _)| scope.contains(*id)).map(tensor).collect()
}

/// Adds a parameter's numbers, if there are any.
fn add(sum: &mut Tensor, factor: f32, values: &Params, id: ParamId) -> Result<()> {
    match values.find(id) {
        None => Ok(()),
        Some(values) => Ok(sum.add_scaled(factor, values)?),
    }
}
