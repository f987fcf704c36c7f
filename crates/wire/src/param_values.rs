//! Values by parameter: what travels, what is summed, what a client keeps.
//!
//! Plain vectors of f32 in id order. The crate that trains has tensors of its own; between crates
//! and between machines this is the one form parameters take.

use std::collections::{BTreeMap, btree_map};

use fedra_plan::{Layout, ParamId, Scope, Shape};

use crate::error::WireError;

/// An ordered map from parameter to its elements, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParamValues {
    values: BTreeMap<ParamId, Vec<f32>>,
}

impl ParamValues {
    /// No parameter.
    pub const fn new() -> Self {
        Self { values: BTreeMap::new() }
    }

    /// Zeros for every parameter of the scope that the layout holds.
    pub fn zeros(layout: &Layout, scope: &Scope) -> Self {
        let zeros = |id| layout.get(id).map(|shape: &Shape| (id, vec![0.0; shape.elements()]));
        scope.iter().filter_map(zeros).collect()
    }

    /// The elements of a parameter, if it is here.
    pub fn get(&self, id: ParamId) -> Option<&[f32]> {
        self.values.get(&id).map(Vec::as_slice)
    }

    /// The elements of a parameter, to be changed.
    pub fn get_mut(&mut self, id: ParamId) -> Option<&mut [f32]> {
        self.values.get_mut(&id).map(Vec::as_mut_slice)
    }

    /// Puts a parameter in; gives back the elements it had before.
    pub fn insert(&mut self, id: ParamId, values: Vec<f32>) -> Option<Vec<f32>> {
        self.values.insert(id, values)
    }

    /// Takes a parameter out.
    pub fn remove(&mut self, id: ParamId) -> Option<Vec<f32>> {
        self.values.remove(&id)
    }

    /// The elements of a parameter, which become so many zeros if it was not here.
    pub fn or_zeros(&mut self, id: ParamId, elements: usize) -> &mut [f32] {
        self.values.entry(id).or_insert_with(|| vec![0.0; elements])
    }

    /// Parameters and elements in id order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ParamId, &[f32])> {
        self.values.iter().map(|(id, values)| (*id, values.as_slice()))
    }

    /// Parameters and elements in id order, to be changed.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (ParamId, &mut [f32])> {
        self.values.iter_mut().map(|(id, values)| (*id, values.as_mut_slice()))
    }

    /// Which parameters are here.
    pub fn scope(&self) -> Scope {
        self.values.keys().copied().collect()
    }

    /// A copy of the parameters that are also in the scope.
    pub fn subset(&self, scope: &Scope) -> Self {
        let copy = |id| self.get(id).map(|values| (id, values.to_vec()));
        scope.iter().filter_map(copy).collect()
    }

    /// Moves all of the other's parameters in here, over those that were here before.
    pub fn absorb(&mut self, other: Self) {
        self.values.extend(other.values);
    }

    /// Adds the other's elements times a factor; a parameter that was not here starts from zero.
    pub fn add_scaled(&mut self, factor: f32, other: &Self) {
        for (id, values) in other.iter() {
            let sum = self.or_zeros(id, values.len());
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
        }
    }

    /// Takes the other's elements away from the parameters that are here.
    pub fn subtract(&mut self, other: &Self) {
        for (id, values) in self.iter_mut() {
            let other = other.get(id).unwrap_or_default();
            values.iter_mut().zip(other).for_each(|(value, other)| *value -= other);
        }
    }

    /// All elements times a factor, each rounded once.
    pub fn scaled(&self, factor: f64) -> Self {
        let scaled = |values: &[f32]| {
            values.iter().map(|value| (f64::from(*value) * factor) as f32).collect()
        };
        self.iter().map(|(id, values)| (id, scaled(values))).collect()
    }

    /// The sum of the squares of all elements, in id order.
    pub fn squares(&self) -> f64 {
        self.iter().flat_map(|(_, values)| values).map(|value| f64::from(*value).powi(2)).sum()
    }

    /// All elements end to end, in id order.
    pub fn flattened(&self) -> Vec<f32> {
        self.values.values().flatten().copied().collect()
    }

    /// Whether no element of a parameter is NaN or infinite.
    pub fn is_finite(&self, id: ParamId) -> bool {
        self.get(id).is_none_or(|values| values.iter().all(|value| value.is_finite()))
    }

    /// The number of parameters.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no parameter.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number of elements over all parameters.
    pub fn elements(&self) -> usize {
        self.values.values().map(Vec::len).sum()
    }

    /// Refuses parameters that the layout does not hold or that have another number of elements.
    pub fn check(&self, layout: &Layout) -> Result<(), WireError> {
        for (id, values) in self.iter() {
            let shape = layout.get(id).ok_or(WireError::UnknownParameter { id })?;
            let (found, expected) = (values.len(), shape.elements());
            if found != expected {
                return Err(WireError::ElementCount { id, found, expected });
            }
        }
        Ok(())
    }
}

impl FromIterator<(ParamId, Vec<f32>)> for ParamValues {
    fn from_iter<I: IntoIterator<Item = (ParamId, Vec<f32>)>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

impl IntoIterator for ParamValues {
    type Item = (ParamId, Vec<f32>);
    type IntoIter = btree_map::IntoIter<ParamId, Vec<f32>>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}
