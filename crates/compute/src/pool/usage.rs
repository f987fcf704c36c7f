//! How much memory is and was in use.

/// What a pool has handed out, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In use now.
    pub live_bytes: usize,
    /// Most ever in use at once.
    pub peak_bytes: usize,
    /// Kept for the next request.
    pub idle_bytes: usize,
    /// How often memory was taken that had never been used before.
    pub allocations: usize,
}
