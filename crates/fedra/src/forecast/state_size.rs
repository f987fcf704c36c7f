//! What a client keeps from round to round, and how much that is.

use fedra_client::{PATTERN_EXAMPLES, PATTERN_NUMBERS, PATTERN_TOKENS};
use fedra_engine::{LocalRule, MomentsLife, Population, Recipe};
use fedra_model::Model;
use fedra_plan::{ByteCount, ParamMemory, Plan, Scope, Side};

use crate::config::Experiment;

/// What a client keeps from round to round, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// Parameters of its own.
    personal: u64,
    /// A control variate (SCAFFOLD) or a linear term (`FedDyn`).
    correction: u64,
    /// What its encoding lost so far.
    residual: u64,
    /// Moments of its optimiser.
    moments: u64,
    /// Attention patterns to compare with, at most: the first and the last.
    attention: u64,
}

impl StateSize {
    /// What is kept by a client with this plan; of blocks that are chosen anew in each
    /// round, all may come to be kept.
    pub fn of(model: &Model, (recipe, experiment): (&Recipe, &Experiment), plan: &Plan) -> Self {
        let layout = model.layout();
        let attention = if recipe.evaluation.attention {
            2 * pattern(model, Some(experiment.max_tokens))
        } else {
            0
        };
        let moments = match recipe.work.moments {
            MomentsLife::Fresh => 0,
            MomentsLife::Kept => recipe.work.solver.moments(),
        };
        if recipe.population == Population::Pooled {
            let moments = moments * plan.memory(Side::Client, layout).trained;
            return Self { moments, attention, ..Self::default() };
        }
        let blocks =
            if recipe.learns.needs_choice() && !stays(recipe) { layout.blocks() } else { 0 };
        let ever = plan.learns() | &Scope::of_blocks(layout, 0..blocks);
        let ParamMemory { trained, sent, kept, .. } =
            plan.clone().learning(&ever).memory(Side::Client, layout);
        Self {
            personal: kept,
            correction: match recipe.work.local {
                LocalRule::Plain | LocalRule::Proximal { .. } => 0,
                LocalRule::ControlVariate => sent,
                LocalRule::Dynamic { .. } => trained,
            },
            residual: if recipe.work.encoding.feedback() { sent } else { 0 },
            moments: moments * trained,
            attention,
        }
    }

    /// The larger of the two.
    pub fn max_by_bytes(self, other: Self) -> Self {
        if other.bytes() > self.bytes() { other } else { self }
    }

    /// In f32.
    pub fn bytes(self) -> ByteCount {
        let Self { personal, correction, residual, moments, attention } = self;
        ByteCount(4 * (personal + correction + residual + moments + attention))
    }

    /// Of that, the moments of its optimiser.
    pub fn moments(self) -> ByteCount {
        ByteCount(4 * self.moments)
    }

    /// What it is, in words.
    pub fn in_words(self, recipe: &Recipe) -> String {
        let correction = match recipe.work.local {
            LocalRule::Dynamic { .. } => "a linear term",
            LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::ControlVariate => {
                "a control variate"
            }
        };
        let parts = [
            (self.personal, "personal parameters"),
            (self.correction, correction),
            (self.residual, "residuals of its encoding"),
            (self.moments, "moments of its optimiser"),
            (self.attention, "attention statistics"),
        ];
        let words: Vec<&str> = parts.iter().filter(|part| part.0 > 0).map(|part| part.1).collect();
        words.join(" and ")
    }
}

/// Whether a client takes the same blocks in every round, if it takes blocks at all.
pub fn stays(recipe: &Recipe) -> bool {
    recipe.selection.criterion.is_fixed() && recipe.selection.explore == 0
}

/// Numbers of the largest attention pattern that a client looks at.
fn pattern(model: &Model, longest: Option<usize>) -> u64 {
    let tokens = longest.unwrap_or(PATTERN_TOKENS).min(PATTERN_TOKENS);
    let numbers = PATTERN_EXAMPLES * model.heads() * model.blocks() * tokens * tokens;
    numbers.min(PATTERN_NUMBERS) as u64
}
