//! Gaussian noise for gradients and updates that are to be private.
//!
//! Noise covers the whole support: a gradient that holds only some rows of a table becomes dense, and a
//! weight that no example reached gets a gradient of zeros first. Gaps would tell who was in the batch.

use crate::error::ComputeError;
use crate::gradients::Gradients;
use crate::kernels::{self, Fill};
use crate::params::Params;
use fedra_plan::Scope;
use fedra_seed::SecretKey;

impl Gradients {
    /// Gives every parameter of a scope a dense gradient: zeros where there was none.
    pub fn cover(&mut self, params: &Params, scope: &Scope) -> Result<(), ComputeError> {
        for id in scope {
            let weight = params.get(id)?;
            let (mut covered, fill) = self.open(&weight.device(), id, weight.shape());
            if fill == Fill::Overwrite {
                covered.clear();
            }
            self.close(id, covered);
        }
        Ok(())
    }

    /// Adds independent Gaussian noise of this standard deviation to every element of every gradient.
    pub fn add_noise(&mut self, deviation: f32, key: &SecretKey) -> Result<(), ComputeError> {
        if !deviation.is_finite() || deviation < 0.0 {
            let (what, expected) = ("deviation of noise", "zero or a positive number");
            return Err(ComputeError::Setting { what, found: deviation, expected });
        }
        let mut tensors: Vec<_> = self
            .iter_mut()
            .enumerate()
            .map(|(stream, (_, gradient))| (gradient.densify(), key.with(stream as u64)))
            .collect();
        kernels::add_noise(deviation, &mut tensors);
        Ok(())
    }
}
