//! Which part of the last block's output is read, so that the rest need not be computed.

/// Which rows of the last block's output are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every token's.
    All,
    /// These, ascending, at least one per sequence (exactly one for a decoder).
    Rows(Vec<u32>),
}
