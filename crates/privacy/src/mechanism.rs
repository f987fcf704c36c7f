//! Mechanisms of which a statement says more than their numbers.

/// Hidden states that leave a client where the model is cut, a row for each token.
pub const STATES_AT_CUT: &str = "hidden states at the cut";
/// Gradients that leave a client there.
pub const GRADIENTS_AT_CUT: &str = "gradients at the cut";
