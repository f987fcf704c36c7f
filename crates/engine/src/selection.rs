//! How the blocks that learn in a round are chosen.
//!
//! The [`Rule`](fedra_plan::Rule) of a recipe says what becomes of the chosen blocks; this says which are chosen. Every selector is the same three steps, so that a control differs from
//! the real thing in one word:
//!
//! ```text
//! scores of clients --mean, correct, spread--> one basis --Criterion::order--> blocks, best first
//!                                                        --explore----------> some by lot instead
//! the first K are handed to the rule, which adds whatever else always learns
//! ```
//! Everything that is drawn comes from the experiment's seed, and everything that is remembered is
//! in a [`Memory`], which a checkpoint holds.

mod memory;
mod order;
mod report;
mod settings;

pub(crate) use memory::{Memory, Profile};
pub use order::Criterion;
pub(crate) use order::{Turn, explored};
pub(crate) use report::Observed;
pub use report::{SelectionReport, Warning, WarningKind};
pub use settings::{Masks, Selection};
