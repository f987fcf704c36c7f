//! The weights of one layer, fetched by role.

use crate::error::ModelError;
use fedra_compute::{Lora, Projection, Weight, Weights};
use fedra_plan::{Layer, Layout, ParamId, Part, Role};

/// One layer's view of the weights.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    layout: &'a Layout,
    weights: Weights<'a>,
    layer: Layer,
    lora_scale: f32,
}

impl<'a> Parts<'a> {
    /// The weights of a layer; `lora_scale` applies to the adapters that the layout has there.
    pub fn of(layout: &'a Layout, weights: Weights<'a>, layer: Layer, lora_scale: f32) -> Self {
        Self { layout, weights, layer, lora_scale }
    }

    /// Which layer it is.
    pub fn layer(&self) -> Layer {
        self.layer
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
    pub fn find_bias(&self, role: Role) -> Result<Option<Weight>, ModelError> {
        self.find(role, Part::Bias)
    }

    /// A projection with its bias and adapter, if the model has them.
    pub fn projection(&self, role: Role) -> Result<Projection, ModelError> {
        let lora = match (self.find(role, Part::LoraA)?, self.find(role, Part::LoraB)?) {
            (Some(a), Some(b)) => Some(Lora { a, b, scale: self.lora_scale }),
            (None, _) | (_, None) => None,
        };
        Ok(Projection { weight: self.weight(role)?, bias: self.find_bias(role)?, lora })
    }

    /// The layout decides what a model has, so that a lost parameter is an error and not a zero.
    fn find(&self, role: Role, part: Part) -> Result<Option<Weight>, ModelError> {
        let id = self.id(role, part);
        Ok(self.layout.contains(id).then(|| self.weights.get(id)).transpose()?)
    }

    fn id(&self, role: Role, part: Part) -> ParamId {
        ParamId::new(self.layer, role, part)
    }
}
