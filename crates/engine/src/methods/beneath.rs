//! What a method asks of the one that it stands on.
//!
//! `FedFrozen` and SAFL change another method. They know it by this trait, so that neither knows the list of all
//! methods, which has both.

use crate::error::EngineError;
use crate::recipe::Recipe;

/// A method that another one may stand on.
pub trait Beneath {
    /// The recipe of this method, under the name of the one on top.
    fn recipe_beneath(self, base: Recipe) -> Recipe;

    /// Refuses settings that contradict each other, and methods that the one on top cannot stand on, by name and with
    /// what is expected instead.
    fn check_beneath(&self, unfit: &[(&str, &'static str)]) -> Result<(), EngineError>;
}
