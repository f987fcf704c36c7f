//! What a local rule adds to a client's gradients.
//!
//! ```text
//! proximal   g + mu (w - w0)             FedProx, Li et al. 2020, <https://arxiv.org/abs/1812.06127>
//! variates   g - c_i + c                 SCAFFOLD, Karimireddy et al. 2020, <https://arxiv.org/abs/1910.06378>
//! dynamic    g - h_i + alpha (w - w0)    FedDyn, Acar et al. 2021, <https://arxiv.org/abs/2111.04263>
//! ```
//! Only gradients that exist are corrected, so what is frozen has nothing to add to. The terms reach
//! every row of a table, hence a sparse embedding gradient becomes a dense one.

use fedra_compute::{Device, Gradient, Gradients, Params, Tensor};
use fedra_plan::ParamId;
use fedra_wire::Tensors;

use crate::error::{ClientError, Result};

/// The term that a rule adds. Of the numbers it carries, an absent parameter is zero everywhere.
#[derive(Clone, Copy, Debug)]
pub enum Correction<'a> {
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
        own: &'a Tensors,
        /// The server's, `c`.
        server: &'a Tensors,
    },
    /// A penalty that remembers the client's earlier rounds.
    Dynamic {
        /// Strength of the penalty.
        alpha: f32,
        /// What the client remembers, `h_i`.
        memory: &'a Tensors,
    },
}

impl Correction<'_> {
    /// Corrects the gradients of a step; `now` and `start` are the weights now and at the beginning.
    pub(crate) fn apply(
        self,
        device: &Device,
        gradients: &mut Gradients,
        (now, start): (&Params, &Params),
    ) -> Result<()> {
        if matches!(self, Self::Nothing) {
            return Ok(());
        }
        for (id, gradient) in gradients.iter_mut() {
            let dense = densified(device, gradient)?;
            let (now, start) = (now.get(id)?.to_host(), start.get(id)?.to_host());
            let pull = |g: &mut [f32], strength: f32| {
                for ((g, w), w0) in g.iter_mut().zip(&*now).zip(&*start) {
                    *g += strength * (w - w0);
                }
            };
            match self {
                Self::Nothing => {}
                Self::Proximal { mu } => dense.update(|g| pull(g, mu)),
                Self::Variates { own, server } => {
                    let (own, server) = (find(own, id, now.len())?, find(server, id, now.len())?);
                    dense.update(|g| {
                        add(g, -1.0, own);
                        add(g, 1.0, server);
                    });
                }
                Self::Dynamic { alpha, memory } => {
                    let memory = find(memory, id, now.len())?;
                    dense.update(|g| {
                        add(g, -1.0, memory);
                        pull(g, alpha);
                    });
                }
            }
        }
        Ok(())
    }
}

/// The gradient with every row in it.
fn densified<'a>(device: &Device, gradient: &'a mut Gradient) -> Result<&'a mut Tensor> {
    if let Gradient::Rows { of, values, .. } = &*gradient {
        let (rows, cols) = (*of, values.cols());
        *gradient = Gradient::Dense(Tensor::from_slice(device, rows, cols, &gradient.to_dense())?);
    }
    Ok(gradient.values_mut())
}

/// A parameter's numbers, if there are any, of the right length.
fn find(values: &Tensors, id: ParamId, expected: usize) -> Result<Option<&[f32]>> {
    match values.get(id) {
        None => Ok(None),
        Some(found) if found.len() == expected => Ok(Some(found)),
        Some(found) => Err(ClientError::Length { id, found: found.len(), expected }),
    }
}

fn add(sum: &mut [f32], sign: f32, values: Option<&[f32]>) {
    for (sum, value) in sum.iter_mut().zip(values.unwrap_or_default()) {
        *sum += sign * value;
    }
}
