//! What attention is computed over: heads, which keys a query sees, and the rows of each sequence.

use std::ops::Range;

/// Heads, their width, and how scores become weights.
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
    /// The furthest distance to a key that a query sees, to either side; any if absent. (A sliding
    /// window of `w` tokens is a distance of `w - 1`.)
    pub window: Option<usize>,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Scaled scores `s` become `cap * tanh(s / cap)`.
    pub soft_cap: Option<f32>,
}

impl Attention {
    /// The usual attention: scores are divided by the root of the width, without a window or a cap.
    pub fn new(heads: usize, kv_heads: usize, width: usize, mask: Mask) -> Self {
        let scale = 1.0 / (width as f32).sqrt();
        Self { heads, kv_heads, width, mask, window: None, scale, soft_cap: None }
    }

    /// The distance that hides some key of a span from some query; `None` where the window is longer
    /// than the text.
    pub(crate) fn narrow_window(self, span: &Span) -> Option<usize> {
        self.window.filter(|distance| distance.saturating_add(1) < span.keys.len())
    }

    /// The keys that query `i` of a span sees.
    #[inline]
    pub(crate) fn visible(self, span: &Span, i: usize) -> Range<usize> {
        let (position, all) = (span.offset.saturating_add(i), span.keys.len());
        let distance = self.window.unwrap_or(usize::MAX);
        let end = match self.mask {
            Mask::Bidirectional => position.saturating_add(distance).saturating_add(1),
            Mask::Causal => position.saturating_add(1),
        };
        position.saturating_sub(distance)..end.min(all)
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
