//! Which part of a model, written down: sets of parameters, combined.
//!
//! A rule is data and not code, so that two rules can be compared and everything that a rule names can
//! be checked before anything trains. It knows neither rounds nor evidence: whoever chooses blocks
//! from round to round hands them over, and [`Rule::Chosen`] stands for them.

use std::collections::BTreeSet;
use std::ops::{BitAnd, BitOr, Sub};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::PlanError;
use crate::id::{Layer, ParamId};
use crate::layout::Layout;
use crate::role::{Part, Role};
use crate::scope::Scope;
use crate::shape::Shape;

/// Which part, written down.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Every parameter.
    Everything,
    /// No parameter.
    Nothing,
    /// All parameters of these layers; checkpoints and messages have the older word.
    #[serde(rename = "sites")]
    Layers(BTreeSet<Layer>),
    /// All parameters with these roles, of those the model has.
    Roles(BTreeSet<Role>),
    /// All parameters that are these parts, of those the model has.
    Parts(BTreeSet<Part>),
    /// These whole blocks.
    Blocks(BTreeSet<u16>),
    /// The whole blocks that were chosen for the round and the client (SAFL).
    Chosen,
    /// Some parameters of a set, as if at random: as many elements as another rule selects, or
    /// somewhat fewer where no parameter fits into the rest. One `draw` names one choice, on every
    /// machine.
    Drawn {
        /// The set to draw from.
        from: Box<Rule>,
        /// The rule whose number of elements is matched.
        like: Box<Rule>,
        /// Which choice.
        draw: u64,
    },
    /// What any of the rules selects; nothing if there is none.
    Union(Vec<Rule>),
    /// What all of the rules select; everything if there is none.
    Intersection(Vec<Rule>),
    /// What one rule selects and another does not.
    Without {
        /// The rule to take from.
        of: Box<Rule>,
        /// The rule that says what is taken away.
        minus: Box<Rule>,
    },
}

impl Rule {
    /// The part of a model, for a rule that needs no chosen blocks; others are refused.
    pub fn select(&self, layout: &Layout) -> Result<Scope, PlanError> {
        self.select_from(layout, None)
    }

    /// The part of a model when these blocks were chosen.
    pub fn select_with(&self, layout: &Layout, chosen: &BTreeSet<u16>) -> Result<Scope, PlanError> {
        self.select_from(layout, Some(chosen))
    }

    /// Whether blocks have to be chosen before the rule selects anything.
    pub fn needs_choice(&self) -> bool {
        *self == Self::Chosen || self.inner().into_iter().any(Self::needs_choice)
    }

    /// Refuses a rule that names a block which the model does not have.
    pub fn check(&self, layout: &Layout) -> Result<(), PlanError> {
        let blocks = layout.blocks();
        let exists = |block: u16| {
            if block < blocks {
                return Ok(());
            }
            let found = format!("a rule names block {block}");
            Err(PlanError::unusable(found, format!("a block within 0..{blocks}")))
        };
        if let Self::Layers(layers) = self {
            layers.iter().filter_map(|layer| layer.block()).try_for_each(exists)?;
        }
        if let Self::Blocks(numbers) = self {
            numbers.iter().copied().try_for_each(exists)?;
        }
        self.inner().into_iter().try_for_each(|rule| rule.check(layout))
    }

    fn select_from(
        &self,
        layout: &Layout,
        chosen: Option<&BTreeSet<u16>>,
    ) -> Result<Scope, PlanError> {
        let select = |rule: &Self| rule.select_from(layout, chosen);
        match self {
            Self::Everything => Ok(Scope::everything(layout)),
            Self::Nothing => Ok(Scope::empty()),
            Self::Roles(roles) => Ok(Scope::of_roles(layout, roles.iter().copied())),
            Self::Parts(parts) => Ok(Scope::of_parts(layout, parts.iter().copied())),
            Self::Layers(layers) => {
                self.check(layout)?;
                Ok(Scope::of_layers(layout, layers.iter().copied()))
            }
            Self::Blocks(blocks) => {
                self.check(layout)?;
                Ok(Scope::of_blocks(layout, blocks.iter().copied()))
            }
            Self::Chosen => {
                let blocks = chosen.ok_or_else(|| {
                    PlanError::unusable(
                        "a rule takes the chosen blocks",
                        "blocks to be chosen first",
                    )
                })?;
                Self::Blocks(blocks.clone()).select(layout)
            }
            Self::Drawn { from, like, draw } => {
                let size = select(like)?.elements(layout);
                Ok(drawn(layout, &select(from)?, size, *draw))
            }
            Self::Union(rules) => {
                rules.iter().try_fold(Scope::empty(), |scope, rule| Ok(scope | select(rule)?))
            }
            Self::Intersection(rules) => rules
                .iter()
                .try_fold(Scope::everything(layout), |scope, rule| Ok(scope & select(rule)?)),
            Self::Without { of, minus } => Ok(select(of)? - select(minus)?),
        }
    }

    /// The rules this one is made of.
    fn inner(&self) -> Vec<&Self> {
        match self {
            Self::Union(rules) | Self::Intersection(rules) => rules.iter().collect(),
            Self::Without { of, minus } => vec![of, minus],
            Self::Drawn { from, like, draw: _ } => vec![from, like],
            Self::Everything
            | Self::Nothing
            | Self::Layers(_)
            | Self::Roles(_)
            | Self::Parts(_)
            | Self::Blocks(_)
            | Self::Chosen => Vec::new(),
        }
    }
}

/// Goes through a set in the order of its parameters' digests and takes whatever still fits. A
/// digest stands in for chance: this crate draws no random number.
fn drawn(layout: &Layout, from: &Scope, size: usize, draw: u64) -> Scope {
    let digest = |id: ParamId| Digest::of(format!("{draw} {id}").as_bytes());
    let mut order: Vec<(Digest, ParamId)> = from.iter().map(|id| (digest(id), id)).collect();
    order.sort_unstable();
    let mut left = size;
    let fits = |(_, id): &(Digest, ParamId)| {
        let elements = layout.get(*id).map_or(0, Shape::elements);
        let fits = elements <= left;
        left -= if fits { elements } else { 0 };
        fits
    };
    order.into_iter().filter(fits).map(|(_, id)| id).collect()
}

impl BitOr for Rule {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self::Union(vec![self, other])
    }
}

impl BitAnd for Rule {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self::Intersection(vec![self, other])
    }
}

impl Sub for Rule {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::Without { of: Box::new(self), minus: Box::new(other) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::layout;

    #[test]
    fn chosen_blocks_are_taken_whole_and_the_head_joins_by_union() {
        let rule = Rule::Chosen | Rule::Layers([Layer::Head].into());
        let scope = rule.select_with(&layout(4), &[2, 3].into()).expect("legal");
        let layers = [Layer::Block(2), Layer::Block(3), Layer::Head];
        assert_eq!(scope, Scope::of_layers(&layout(4), layers));
    }

    #[test]
    fn a_choice_that_is_missing_or_of_another_model_is_refused() {
        let deep = Rule::Everything - (Rule::Nothing | Rule::Chosen);
        assert!(deep.needs_choice());
        assert_eq!(
            deep.select(&layout(4)),
            Err(PlanError::unusable("a rule takes the chosen blocks", "blocks to be chosen first"))
        );
        let refused = deep.select_with(&layout(4), &[4].into());
        assert_eq!(
            refused,
            Err(PlanError::unusable("a rule names block 4", "a block within 0..4"))
        );
        assert!(!Rule::Blocks([1].into()).needs_choice());
    }

    #[test]
    fn a_block_the_model_lacks_is_refused_however_deep_it_lies() {
        let refused = |rule: Rule| rule.check(&layout(4)).expect_err("illegal").to_string();
        assert_eq!(
            refused(Rule::Everything - (Rule::Nothing | Rule::Blocks([4].into()))),
            "a rule names block 4, expected a block within 0..4"
        );
        assert_eq!(
            refused(Rule::Layers([Layer::Block(7), Layer::Head].into())),
            "a rule names block 7, expected a block within 0..4"
        );
    }

    #[test]
    fn a_drawn_set_has_the_size_asked_for_and_another_draw_is_another_set() {
        let layout = layout(4);
        let query = Rule::Roles([Role::Query].into());
        let value = Rule::Roles([Role::Value].into());
        let draw = |draw, from: &Rule| {
            let (from, like) = (from.clone().into(), query.clone().into());
            Rule::Drawn { from, like, draw }.select(&layout).expect("legal")
        };
        for number in 0..20 {
            let scope = draw(number, &value);
            assert_eq!(scope, draw(number, &value));
            assert_eq!(scope.elements(&layout), 64, "draw {number}");
            assert!(scope.iter().all(|id| id.role == Role::Value));
            // Where sizes do not add up, a little is missing and never too much.
            let odd = draw(number, &(Rule::Everything - query.clone())).elements(&layout);
            assert!((57..=64).contains(&odd), "draw {number}: {odd}");
        }
        assert_ne!(draw(0, &value), draw(1, &value));
    }

    #[test]
    fn an_empty_union_is_nothing_and_an_empty_intersection_everything() {
        assert_eq!(Rule::Union(vec![]).select(&layout(4)), Ok(Scope::empty()));
        let everything = Scope::everything(&layout(4));
        assert_eq!(Rule::Intersection(vec![]).select(&layout(4)), Ok(everything));
    }

    #[test]
    fn a_rule_reads_from_plain_words_and_refuses_unknown_ones() {
        let text = r#"{"without":{"of":"chosen","minus":{"roles":["query","key"]}}}"#;
        let expected = Rule::Chosen - Rule::Roles([Role::Query, Role::Key].into());
        assert_eq!(serde_json::from_str::<Rule>(text).expect("legal"), expected);
        for typo in [
            r#""everyone""#,
            r#"{"roles":["kwery"]}"#,
            r#"{"sites":["block.x"]}"#,
            r#"{"without":{"of":"chosen","minus":"nothing","n":1}}"#,
        ] {
            assert!(serde_json::from_str::<Rule>(typo).is_err(), "{typo} was accepted");
        }
    }
}
