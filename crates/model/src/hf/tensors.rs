//! Named tensors in a file, whichever format it has.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

use ::safetensors::Dtype;
use fedra_compute::{Quantisation, QuantisedMatrix};
use fedra_plan::Shape;

use super::dtype::Precision;
use crate::error::ModelError;

/// A file of tensors whose header has been checked.
pub trait Tensors: Debug + Send + Sync {
    /// The file.
    fn path(&self) -> &Path;

    /// The tensors' names, sorted.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;

    /// Type and shape of a tensor, if the file has it.
    fn info(&self, name: &str) -> Option<Info<'_>>;

    /// The values of a tensor as f32.
    fn read_f32(&self, name: &str) -> Result<Vec<f32>, ModelError>;

    /// The values of a tensor that the file has as bf16, in that precision; `None` for any other.
    fn read_bf16(&self, _: &str) -> Result<Option<Vec<u16>>, ModelError> {
        Ok(None)
    }

    /// A matrix that is quantised in blocks of 32, of these many bits or fewer; `None` for any other tensor.
    fn read_quantised(
        &self,
        name: &str,
        most: Quantisation,
    ) -> Result<Option<QuantisedMatrix>, ModelError>;

    /// Some of them by their places; places behind the last are left out.
    fn read_part(&self, name: &str, part: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let values = self.read_f32(name)?;
        let end = part.end.min(values.len());
        Ok(values[part.start.min(end)..end].to_vec())
    }
}

/// What a header says about one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info<'a> {
    /// Element type as stored.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
}

impl Info<'_> {
    /// Whether a parameter of this shape can be read from it.
    pub(crate) fn fits(&self, shape: &Shape) -> bool {
        self.has(shape.dims())
    }

    /// Whether numbers of these dimensions can be read from it.
    pub(crate) fn has(&self, dims: &[usize]) -> bool {
        self.shape == dims && Precision::of(self.dtype).is_some()
    }
}
