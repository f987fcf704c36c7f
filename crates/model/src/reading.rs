//! What is read of a last block's output, so that the rest of it need not be computed.

/// Which rows of the last block's output anybody reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every token's.
    All,
    /// These, ascending, at least one per sequence (exactly one for a decoder).
    Rows(Vec<u32>),
}
