//! What can go wrong while computing.

use fedra_plan::ParamId;

/// A refused computation: which operation, what was found, what was expected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ComputeError {
    /// Two sizes that must be equal are not.
    #[error("{operation}: {what} is {found}, expected {expected}")]
    Shape {
        /// The operation that refused.
        operation: &'static str,
        /// The size in question.
        what: &'static str,
        /// What it was.
        found: String,
        /// What it had to be.
        expected: String,
    },
    /// An index points outside its table.
    #[error(
        "{operation}: {what} {found} at place {place} is out of range, expected less than {limit}"
    )]
    Index {
        /// The operation that refused.
        operation: &'static str,
        /// What the index names.
        what: &'static str,
        /// The index.
        found: usize,
        /// Where it stood.
        place: usize,
        /// First value that is too large.
        limit: usize,
    },
    /// There is nothing to compute with.
    #[error("{operation}: {what} is empty")]
    Empty {
        /// The operation that refused.
        operation: &'static str,
        /// What was empty.
        what: &'static str,
    },
    /// A parameter that the model needs is not there.
    #[error("parameter {0} is not among the parameters")]
    Missing(ParamId),
    /// A gradient arrived for a value that nothing was recorded for.
    #[error("backward: the value was computed without any trainable part, so it takes no gradient")]
    NoGradient,
    /// A tape that tells examples apart was replayed as if it did not.
    #[error("backward: the tape separates examples, expected backward_by_example")]
    ByExample,
    /// A tape that does not tell examples apart was asked to.
    #[error("backward_by_example: the tape does not separate examples, expected Tape::by_example")]
    NotByExample,
    /// Something trains through an operation that has no backward pass.
    #[error("{operation}: something below it trains, but it has no backward pass")]
    NoBackward {
        /// The operation that refused.
        operation: &'static str,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] crate::cuda::CudaError),
    /// A learning rate, decay or similar that makes no sense.
    #[error("{what} is {found}, expected {expected}")]
    Setting {
        /// The setting's name.
        what: &'static str,
        /// Its value.
        found: f32,
        /// What would be accepted.
        expected: &'static str,
    },
}

impl ComputeError {
    /// Checks that a size is the expected one.
    pub(crate) fn expect<T: Copy + PartialEq + std::fmt::Debug>(
        operation: &'static str,
        what: &'static str,
        found: T,
        expected: T,
    ) -> Result<(), Self> {
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
        Err(Self::Shape { operation, what, found, expected })
    }

    /// Refuses a setting that is not a positive number.
    pub(crate) fn positive(what: &'static str, found: f32) -> Result<(), Self> {
        let expected = "a positive number";
        let is_positive = found.is_finite() && found > 0.0;
        if is_positive { Ok(()) } else { Err(Self::Setting { what, found, expected }) }
    }

    /// Refuses what has a size of zero.
    pub(crate) fn not_empty(
        operation: &'static str,
        what: &'static str,
        size: usize,
    ) -> Result<(), Self> {
        if size == 0 { Err(Self::Empty { operation, what }) } else { Ok(()) }
    }

    pub(crate) fn shape(
        operation: &'static str,
        what: &'static str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Shape { operation, what, found: found.into(), expected: expected.into() }
    }

    /// Checks that every index is below `limit`.
    pub(crate) fn within(
        operation: &'static str,
        what: &'static str,
        indices: &[u32],
        limit: usize,
    ) -> Result<(), Self> {
        match indices.iter().position(|&index| index as usize >= limit) {
            None => Ok(()),
            Some(place) => {
                let found = indices[place] as usize;
                Err(Self::Index { operation, what, found, place, limit })
            }
        }
    }
}
