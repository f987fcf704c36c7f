//! What attention is computed over: heads, which keys a query sees, and the rows of each sequence.

use std::ops::Range;

/// Heads and their width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Features per head.
    pub width: usize,
    /// Which keys a query sees.
    pub mask: Mask,
}

impl Attention {
    /// What scores are multiplied by: `1 / sqrt(width)`.
    pub(crate) fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of its sequence.
    Bidirectional,
    /// Those up to its own position.
    Causal,
}

/// One sequence: which rows hold its queries and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rows of the query tensor.
    pub queries: Range<usize>,
    /// Rows of the key and value tensor; of the sequence's own, if it has a cache.
    pub keys: Range<usize>,
    /// Position, among the keys, of the first query.
    pub offset: usize,
}
