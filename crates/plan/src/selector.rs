//! How a round chooses the part that learns.
//!
//! A selector first says what evidence it wants and then chooses, so that the one who measures
//! knows nothing of rules and a rule knows nothing of data. It draws no random number: the same
//! view always gives the same scope. [`Rule`](crate::Rule) is the selector one can write down.

use crate::error::PlanError;
use crate::evidence::{BlockScores, Probe};
use crate::layout::Layout;
use crate::round::Round;
use crate::scope::Scope;

/// Chooses the scope of a round.
pub trait Selector {
    /// The evidence that [`Selector::select`] needs in the given round.
    fn probe(&self, round: Round) -> Probe;

    /// The part that learns, given what the round knows.
    fn select(&self, view: View<'_>) -> Result<Scope, PlanError>;
}

/// What a selector may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'round> {
    /// The model to choose from.
    pub layout: &'round Layout,
    /// The round to choose for.
    pub round: Round,
    /// The evidence that was asked for, if any was.
    pub scores: Option<&'round BlockScores>,
}
