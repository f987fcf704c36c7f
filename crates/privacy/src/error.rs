//! What can be wrong with a guarantee, an event or a ledger.

use thiserror::Error;

use crate::shown;

/// The one error of this crate.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PrivacyError {
    /// A number outside its range.
    #[error("{name}: found {found}, expected {expected}")]
    Number {
        /// What the number is.
        name: &'static str,
        /// What was given.
        found: String,
        /// What would have been right, and why.
        expected: &'static str,
    },
    /// No noise, or no number of steps, keeps the wish.
    #[error("{wish} cannot be reached: {reason}")]
    Unreachable {
        /// What was wished for.
        wish: String,
        /// Why it is out of reach.
        reason: String,
    },
    /// A round would spend more than the budget allows; nothing was recorded.
    #[error(
        "{what} would bring epsilon to {} at delta {delta}; the budget is {budget}, and {} is spent",
        shown::up(*would_be, 4),
        shown::up(*spent, 4)
    )]
    OverBudget {
        /// The releases that were asked for.
        what: String,
        /// Epsilon after them.
        would_be: f64,
        /// The delta of the guarantee.
        delta: f64,
        /// The largest epsilon that was guaranteed.
        budget: f64,
        /// Epsilon before them.
        spent: f64,
    },
    /// A release without a bound was asked for under a budget; nothing was recorded.
    #[error("{what} has no bound on epsilon ({why}); the budget is {budget}")]
    Unbounded {
        /// The release.
        what: String,
        /// Why no bound is known.
        why: String,
        /// The largest epsilon that was guaranteed.
        budget: f64,
    },
    /// A ledger that is not what was written.
    #[error("privacy ledger, line {line}: {reason}")]
    Ledger {
        /// Counted from 1.
        line: usize,
        /// What was found and what was expected.
        reason: String,
    },
    /// A ledger that was made under another guarantee.
    #[error("privacy ledger: it guarantees {found}; this run guarantees {expected}")]
    OtherGuarantee {
        /// The guarantee in the ledger.
        found: String,
        /// The guarantee of the run.
        expected: String,
    },
}
