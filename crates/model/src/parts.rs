//! The weights of one site, fetched by role.

use crate::error::ModelError;
use fedra_compute::{Lora, Projection, Weight, Weights};
use fedra_plan::{ParamId, Part, Role, Site};

/// One site's view of the weights.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    weights: Weights<'a>,
    site: Site,
    lora_scale: f32,
}

impl<'a> Parts<'a> {
    /// The weights of a site; `lora_scale` applies to the adapters found there.
    pub fn of(weights: Weights<'a>, site: Site, lora_scale: f32) -> Self {
        Self { weights, site, lora_scale }
    }

    /// A weight that must be there.
    pub fn weight(&self, role: Role) -> Result<Weight, ModelError> {
        Ok(self.weights.get(self.id(role, Part::Weight))?)
    }

    /// A bias that must be there.
    pub fn bias(&self, role: Role) -> Result<Weight, ModelError> {
        Ok(self.weights.get(self.id(role, Part::Bias))?)
    }

    /// A bias if the model has one.
    pub fn find_bias(&self, role: Role) -> Option<Weight> {
        self.weights.find(self.id(role, Part::Bias))
    }

    /// A projection with its bias and adapter, if it has them.
    pub fn projection(&self, role: Role) -> Result<Projection, ModelError> {
        let lora = match self.weights.find(self.id(role, Part::LoraA)) {
            None => None,
            Some(a) => {
                let b = self.weights.get(self.id(role, Part::LoraB))?;
                Some(Lora { a, b, scale: self.lora_scale })
            }
        };
        Ok(Projection { weight: self.weight(role)?, bias: self.find_bias(role), lora })
    }

    fn id(&self, role: Role, part: Part) -> ParamId {
        ParamId::new(self.site, role, part)
    }
}
