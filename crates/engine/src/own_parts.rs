//! Parts of a method that a program has as code: who takes part, which blocks come first, what the mean change becomes.
//!
//! A recipe is plain data, which can be written down, compared and foreseen. Code cannot, so it stands beside the recipe:
//! a forecast does not follow it, and whoever resumes a run has to bring it again. What it remembers between rounds is
//! the server's state, which every checkpoint holds, so that a resumed run has the same bits.

use std::fmt::Debug;

use fedra_plan::{Layout, Round};
use fedra_wire::{ClientId, ParamValues};

use crate::error::EngineError;
use crate::protocol::fleet::ClientInfo;
use crate::recipe::Recipe;
use fedra_wire::ServerRule;

/// Code in the place of some choices of a recipe. An error ends the round as if it had not begun.
pub trait OwnParts: Debug + Send + Sync {
    /// Which of its choices it makes.
    fn makes(&self) -> OwnChoices;

    /// Who takes part in a round, out of these clients.
    fn cohort(&self, round: Round, clients: &[ClientInfo]) -> Result<Vec<ClientId>, EngineError>;

    /// The blocks of a client, best first.
    fn order(&self, asked: &OwnRanking<'_>) -> Result<Vec<u16>, EngineError>;

    /// Turns the mean change of a round into the one that the server's rule adds to the model.
    fn change(&self, step: OwnStep<'_>) -> Result<(), EngineError>;
}

/// Which choices a program makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnChoices {
    /// Who takes part.
    pub cohort: bool,
    /// Which blocks learn.
    pub order: bool,
    /// What the mean change becomes.
    pub change: bool,
}

/// What blocks are ranked by.
#[derive(Clone, Copy, Debug)]
pub struct OwnRanking<'a> {
    /// The round.
    pub round: Round,
    /// Whose blocks.
    pub client: &'a ClientInfo,
    /// What was measured of each block; empty where nothing was.
    pub measured: &'a [f64],
    /// The order of the recipe's own selection.
    pub usual: &'a [u16],
}

/// A step of the server.
#[derive(Debug)]
pub struct OwnStep<'a> {
    /// The round.
    pub round: Round,
    /// The shapes of the model's parameters.
    pub layout: &'a Layout,
    /// The model before it.
    pub model: &'a ParamValues,
    /// The mean change, to be changed.
    pub change: &'a mut ParamValues,
    /// What is remembered between rounds, by parameter; zeros at the start.
    pub state: &'a mut ParamValues,
}

impl OwnChoices {
    /// Refuses code in places that this recipe does not leave to it.
    pub fn check(self, recipe: &Recipe) -> Result<(), EngineError> {
        let refuse = |key, expected| {
            let found = "code of a program".to_owned();
            Err(EngineError::Setting { key, found, expected })
        };
        if recipe.privacy.is_some() && (self.cohort || self.order) {
            let expected = "no sampler or selector of a program: the privacy guarantee does not cover what it looks at";
            return refuse("privacy", expected);
        }
        if self.order && !recipe.learns.needs_choice() {
            return refuse("method.name", "a method that selects blocks, such as safl");
        }
        if self.change && !matches!(recipe.server, ServerRule::Average { .. }) {
            return refuse(
                "method.name",
                "a method whose server adds the mean change, such as fedavg",
            );
        }
        Ok(())
    }
}
