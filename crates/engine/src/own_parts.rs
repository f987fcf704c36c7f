//! Parts of a method that a program has as code: who takes part, which blocks come first, what the mean change becomes,
//! and what a model is judged by.
//!
//! A recipe is plain data, which can be written down, compared and foreseen. Code cannot, so it stands beside the recipe:
//! a forecast does not follow it, and whoever resumes a run has to bring it again. What it remembers between rounds is
//! the server's state, which every checkpoint holds, so that a resumed run has the same bits.

use std::fmt::Debug;

use fedra_plan::{Layout, Round};
use fedra_wire::{ClientId, ParamValues};

use crate::error::EngineError;
use crate::protocol::fleet::{ClientInfo, Scored};
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

    /// What the model is judged by, larger for better; none where these answers have no such score.
    fn score(&self, answers: OwnAnswers) -> Result<Option<f64>, EngineError>;
}

/// Which choices a program makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "any of them may be made beside any other")]
pub struct OwnChoices {
    /// Who takes part.
    pub cohort: bool,
    /// Which blocks learn.
    pub order: bool,
    /// What the mean change becomes.
    pub change: bool,
    /// What the model is judged by.
    pub score: bool,
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

/// The name of a score that code of a program gives. A run is judged by it rather than by any other.
pub const OWN_SCORE: &str = "own_score";

/// What a model answered to some examples, in rows: one an example, or one for each word that has a label.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnAnswers {
    /// What should have been answered.
    pub truth: OwnTruth,
    /// A probability for each label, row by row.
    pub probabilities: Vec<f64>,
    /// How many labels there are.
    pub labels: usize,
}

/// What should have been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnTruth {
    /// The number of the right label of each row.
    One(Vec<i64>),
    /// For each row and label a 1 where it is among the right ones, and a 0 otherwise.
    Several(Vec<u8>),
}

impl dyn OwnParts + '_ {
    /// The same scores, with that of the code beside them.
    pub fn judge(&self, mut scored: Scored, answers: OwnAnswers) -> Result<Scored, EngineError> {
        let score = self.score(answers)?.filter(|score| score.is_finite());
        scored.scores.extend(score.map(|score| (OWN_SCORE.to_owned(), score)));
        Ok(scored)
    }
}

impl OwnChoices {
    /// What a method is called beside its own name, if any of it is code.
    pub const fn suffix(self) -> &'static str {
        let Self { cohort, order, change, score } = self;
        match (cohort || order || change, score) {
            (false, false) => "",
            (true, false) => "-with-own-parts",
            (false, true) => "-with-own-score",
            (true, true) => "-with-own-parts-and-score",
        }
    }

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
        if self.score && recipe.split.is_some() {
            return refuse("split", "no score of a program: its answers come from a whole model");
        }
        Ok(())
    }
}
