//! What is applied to the result of a projection.

/// What is applied to a projection's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The error-function GELU.
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
}
