//! Whether a classification head is kept as a folder has it, put in another order, or reinitialised.

use crate::hf::WhyFresh;

/// Where the rows of a classification head come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classifier {
    /// The folder's, in the order they have there; reinitialised where the folder has none of the
    /// wanted shape.
    Stored,
    /// The folder's: row `i` of the model is row `rows[i]` of the folder.
    Rows(Vec<usize>),
    /// Reinitialised, for this reason.
    Fresh(WhyFresh),
}
