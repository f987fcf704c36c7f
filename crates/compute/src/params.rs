//! A model's parameters by name, and the view of them that one computation trains.

use crate::error::ComputeError;
use crate::tensor::Tensor;
use fedra_plan::{ParamId, Scope};
use std::collections::BTreeMap;

/// Every parameter of a model, in the order of [`ParamId`].
///
/// A clone shares all tensors with the original; whoever writes to one copies just that one.
#[derive(Clone, Debug, Default)]
pub struct Params(BTreeMap<ParamId, Tensor>);

impl Params {
    /// The tensor of a parameter.
    pub fn get(&self, id: ParamId) -> Result<&Tensor, ComputeError> {
        self.0.get(&id).ok_or(ComputeError::Missing(id))
    }

    /// The tensor of a parameter, if it is among these.
    pub fn find(&self, id: ParamId) -> Option<&Tensor> {
        self.0.get(&id)
    }

    /// The tensor of a parameter, to be written.
    pub fn get_mut(&mut self, id: ParamId) -> Result<&mut Tensor, ComputeError> {
        self.0.get_mut(&id).ok_or(ComputeError::Missing(id))
    }

    /// Adds or replaces a parameter.
    pub fn insert(&mut self, id: ParamId, tensor: Tensor) {
        self.0.insert(id, tensor);
    }

    /// Takes a parameter away.
    pub fn remove(&mut self, id: ParamId) -> Option<Tensor> {
        self.0.remove(&id)
    }

    /// All parameters in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ParamId, &Tensor)> {
        self.0.iter().map(|(id, tensor)| (*id, tensor))
    }

    /// All parameters in order, to be written.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (ParamId, &mut Tensor)> {
        self.0.iter_mut().map(|(id, tensor)| (*id, tensor))
    }

    /// Number of parameters (tensors, not elements).
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These parameters, of which those in `scope` are to be trained.
    pub fn training<'a>(&'a self, scope: &'a Scope) -> Weights<'a> {
        Weights { params: self, scope: Some(scope) }
    }

    /// These parameters with nothing to be trained: evaluation.
    pub fn frozen(&self) -> Weights<'_> {
        Weights { params: self, scope: None }
    }
}

impl FromIterator<(ParamId, Tensor)> for Params {
    fn from_iter<I: IntoIterator<Item = (ParamId, Tensor)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

/// Parameters seen through a [`Scope`]: the scope decides which want gradients.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    params: &'a Params,
    scope: Option<&'a Scope>,
}

impl Weights<'_> {
    /// One parameter, ready for an operation.
    pub fn get(&self, id: ParamId) -> Result<Weight, ComputeError> {
        let tensor = self.params.get(id)?.clone();
        Ok(Weight { id, tensor, trains: self.scope.is_some_and(|scope| scope.contains(id)) })
    }

    /// One parameter if the model has it.
    pub fn find(&self, id: ParamId) -> Option<Weight> {
        self.get(id).ok()
    }
}

/// One parameter as an operation sees it.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Its name.
    pub id: ParamId,
    /// Its numbers.
    pub tensor: Tensor,
    /// Whether its gradient is wanted.
    pub trains: bool,
}
