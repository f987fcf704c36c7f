//! A client's data.

use crate::matrix::Matrix;

/// Samples of one client, packed: `length` rows each.
#[derive(Clone, Debug)]
pub struct Client {
    /// `H`, all samples' tokens, one row each.
    pub tokens: Matrix,
    /// `Y`, one row for each token.
    pub targets: Matrix,
    /// Tokens per sample.
    pub length: usize,
    /// `p_m`; the weights of all clients sum to one.
    pub weight: f64,
}
