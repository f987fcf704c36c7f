//! What a sum of updates comes to, in the memory the sum had.
//!
//! A server reads the mean of a round once or twice and then forgets it. Moving a whole model into
//! vectors for that costs more than dividing it does: all of that memory is new to the process. So
//! the values stay in the bytes of what was the last update.

use std::fmt;

use fedra_plan::{ParamId, Scope};

use crate::param_values::ParamValues;
use crate::sum::Sum;

/// Values by parameter, to be read.
#[derive(Clone, Default)]
pub struct Mean {
    /// It has been divided.
    sum: Sum,
}

/// The elements of a parameter, row by row.
#[derive(Clone, Copy)]
pub struct Values<'mean> {
    bytes: &'mean [[u8; 4]],
}

impl Mean {
    pub(crate) const fn of(sum: Sum) -> Self {
        Self { sum }
    }

    /// The elements of a parameter, if anybody sent it.
    pub fn get(&self, id: ParamId) -> Option<Values<'_>> {
        self.sum.get(id).map(|bytes| Values { bytes: bytes.as_chunks().0 })
    }

    /// Which parameters are here.
    pub fn scope(&self) -> Scope {
        self.sum.scope()
    }

    /// Parameters and elements in id order.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, Values<'_>)> {
        let ids: Vec<ParamId> = self.scope().iter().collect();
        ids.into_iter().filter_map(|id| self.get(id).map(|values| (id, values)))
    }

    /// The number of elements over all parameters.
    pub fn elements(&self) -> usize {
        self.iter().map(|(_, values)| values.len()).sum()
    }

    /// A copy of it.
    pub fn tensors(&self) -> ParamValues {
        self.iter().map(|(id, values)| (id, values.iter().collect())).collect()
    }
}

impl<'mean> Values<'mean> {
    /// One after another.
    pub fn iter(self) -> impl ExactSizeIterator<Item = f32> + 'mean {
        self.bytes.iter().map(|bytes| f32::from_le_bytes(*bytes))
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }
}

impl FromIterator<(ParamId, Vec<f32>)> for Mean {
    fn from_iter<I: IntoIterator<Item = (ParamId, Vec<f32>)>>(values: I) -> Self {
        let bytes = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect();
        Self::of(values.into_iter().map(|(id, values)| (id, bytes(values))).collect())
    }
}

impl fmt::Debug for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mean").field(&self.tensors()).finish()
    }
}
