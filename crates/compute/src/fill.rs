//! What a result does to the numbers that were there before.

/// What happens to the numbers that a result is written over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// They are lost.
    Overwrite,
    /// The result is added to them.
    Add,
}
