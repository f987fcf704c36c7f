//! The weights of one layer, fetched by role.

use crate::error::ModelError;
use crate::lora::{Adapters, Magnitudes};
use fedra_compute::{Lora, Magnitude, Projection, Weight, Weights};
use fedra_plan::{Layer, Layout, ParamId, Part, Role};

/// One layer's view of the weights.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    layout: &'a Layout,
    weights: Weights<'a>,
    layer: Layer,
    adapters: Option<&'a Adapters>,
}

impl<'a> Parts<'a> {
    /// The weights of a layer, of a model with these adapters.
    pub fn of(
        layout: &'a Layout,
        weights: Weights<'a>,
        layer: Layer,
        adapters: Option<&'a Adapters>,
    ) -> Self {
        Self { layout, weights, layer, adapters }
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
        self.projection_of(role, self.weight(role)?)
    }

    /// The same with a weight that may be another layer's.
    pub fn projection_of(&self, role: Role, weight: Weight) -> Result<Projection, ModelError> {
        let bias = self.find_bias(role)?;
        let pair = (self.find(role, Part::LoraA)?, self.find(role, Part::LoraB)?);
        let (Some(adapters), (Some(a), Some(b))) = (self.adapters, pair) else {
            return Ok(Projection { weight, bias, lora: None });
        };
        let magnitude = self.find(role, Part::Magnitude)?;
        let magnitude = magnitude.and_then(|magnitude| match adapters.magnitudes() {
            Magnitudes::None => None,
            Magnitudes::Norms => Some(Magnitude::Norms(magnitude)),
            Magnitudes::Factors => Some(Magnitude::Factors(magnitude)),
        });
        let lora = Some(Lora { a, b, scale: adapters.scale(), magnitude });
        Ok(Projection { weight, bias, lora })
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
