//! A selector as a value: sets of parameters, combined, and possibly switched at some round.
//!
//! A rule is data and not code, so that an experiment file can hold it, two rules can be compared,
//! and everything a rule may ask for can be checked before anything trains. In TOML:
//!
//! ```toml
//! [rule.switch]
//! before = "everything"
//! at = 3
//! after = { without = { of = "everything", minus = { roles = ["query", "key"] } } }
//! ```

mod check;
mod count;

use std::collections::BTreeSet;
use std::ops::{BitAnd, BitOr, Sub};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::PlanError;
use crate::evidence::{BlockScores, Probe};
use crate::id::{ParamId, Site};
use crate::layout::Layout;
use crate::role::{Part, Role};
use crate::round::Round;
use crate::scope::Scope;
use crate::selector::{Selector, View};
use crate::shape::Shape;

/// Which part learns, written down.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Every parameter.
    Everything,
    /// No parameter.
    Nothing,
    /// All parameters of these sites.
    Sites(BTreeSet<Site>),
    /// All parameters with these roles, of those the model has.
    Roles(BTreeSet<Role>),
    /// All parameters that are these parts, of those the model has.
    Parts(BTreeSet<Part>),
    /// These whole blocks.
    Blocks(BTreeSet<u16>),
    /// The whole blocks with the highest scores; of equal scores the lower block wins.
    TopBlocks {
        /// How many blocks (K in SAFL).
        k: u16,
        /// What to score them by.
        probe: Probe,
    },
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
    /// One rule in the first rounds and another from then on.
    Switch {
        /// The rule in rounds `0 .. at`.
        before: Box<Rule>,
        /// The first round of the other rule; hence the number of rounds before (W in FedFrozen).
        at: Round,
        /// The rule in round `at` and later.
        after: Box<Rule>,
    },
}

impl Rule {
    /// `before` in rounds `0 .. at`, `after` from round `at` on.
    pub fn switch(before: Self, at: Round, after: Self) -> Self {
        Self::Switch { before: Box::new(before), at, after: Box::new(after) }
    }
}

impl Selector for Rule {
    fn probe(&self, round: Round) -> Probe {
        let asked = self.probes(round);
        asked.into_iter().find(|probe| *probe != Probe::Nothing).unwrap_or(Probe::Nothing)
    }

    fn select(&self, view: View<'_>) -> Result<Scope, PlanError> {
        let layout = view.layout;
        self.check_own(layout)?;
        match self {
            Self::Everything => Ok(Scope::everything(layout)),
            Self::Nothing => Ok(Scope::empty()),
            Self::Sites(sites) => Ok(Scope::of_sites(layout, sites.iter().copied())),
            Self::Roles(roles) => Ok(Scope::of_roles(layout, roles.iter().copied())),
            Self::Parts(parts) => Ok(Scope::of_parts(layout, parts.iter().copied())),
            Self::Blocks(blocks) => Ok(Scope::of_blocks(layout, blocks.iter().copied())),
            Self::TopBlocks { k, probe } => {
                let top = scores_for(*probe, view)?.ranking().into_iter().take(usize::from(*k));
                Ok(Scope::of_blocks(layout, top))
            }
            Self::Drawn { from, like, draw } => {
                let size = like.select(view)?.elements(layout);
                Ok(drawn(layout, &from.select(view)?, size, *draw))
            }
            Self::Union(rules) => {
                rules.iter().try_fold(Scope::empty(), |scope, rule| Ok(scope | rule.select(view)?))
            }
            Self::Intersection(rules) => rules
                .iter()
                .try_fold(Scope::everything(layout), |scope, rule| Ok(scope & rule.select(view)?)),
            Self::Without { of, minus } => Ok(of.select(view)? - minus.select(view)?),
            Self::Switch { before, at, after } => {
                if view.round < *at {
                    before.select(view)
                } else {
                    after.select(view)
                }
            }
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

/// The scores of the view, if they are of the right kind and number.
fn scores_for(expected: Probe, view: View<'_>) -> Result<&BlockScores, PlanError> {
    let Some(scores) = view.scores else {
        return Err(PlanError::MissingScores { round: view.round, expected });
    };
    if scores.probe() != expected {
        return Err(PlanError::OtherProbe { found: scores.probe(), expected });
    }
    let (found, blocks) = (scores.as_slice().len(), view.layout.blocks());
    if found != usize::from(blocks) {
        return Err(PlanError::ScoreCount { found, expected: blocks });
    }
    Ok(scores)
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

    const TOP_TWO: Rule = Rule::TopBlocks { k: 2, probe: Probe::GradientNorm };

    fn scores(values: &[f64]) -> BlockScores {
        BlockScores::new(Probe::GradientNorm, values.to_vec()).expect("finite")
    }

    fn select(rule: &Rule, scores: Option<&BlockScores>) -> Result<Scope, PlanError> {
        rule.select(View { layout: &layout(4), round: Round(0), scores })
    }

    #[test]
    fn top_blocks_takes_the_highest_scores_and_the_lower_of_equal_blocks() {
        let scope = select(&TOP_TWO, Some(&scores(&[1.0, 2.0, 1.0, 1.0]))).expect("legal");
        assert_eq!(scope, Scope::of_blocks(&layout(4), [0, 1]));
    }

    #[test]
    fn top_blocks_takes_whole_blocks_and_the_head_joins_by_union() {
        let rule = TOP_TWO | Rule::Sites([Site::Head].into());
        let scope = select(&rule, Some(&scores(&[0.0, 0.0, 5.0, 7.0]))).expect("legal");
        let sites = [Site::Block(2), Site::Block(3), Site::Head];
        assert_eq!(scope, Scope::of_sites(&layout(4), sites));
    }

    #[test]
    fn scores_that_are_missing_short_or_of_another_kind_are_refused() {
        assert_eq!(
            select(&TOP_TWO, None).expect_err("no scores").to_string(),
            "round 0 brought no block scores: expected gradient norms"
        );
        assert_eq!(
            select(&TOP_TWO, Some(&scores(&[1.0]))),
            Err(PlanError::ScoreCount { found: 1, expected: 4 })
        );
        let other = BlockScores::new(Probe::Nothing, vec![0.0; 4]).expect("finite");
        assert_eq!(
            select(&TOP_TWO, Some(&other)),
            Err(PlanError::OtherProbe { found: Probe::Nothing, expected: Probe::GradientNorm })
        );
    }

    #[test]
    fn a_rule_asks_for_evidence_only_in_the_rounds_that_need_it() {
        let rule = Rule::switch(Rule::Everything, Round(2), Rule::Nothing | TOP_TWO);
        assert_eq!(rule.probe(Round(1)), Probe::Nothing);
        assert_eq!(rule.probe(Round(2)), Probe::GradientNorm);
    }

    #[test]
    fn a_drawn_set_has_the_size_asked_for_and_another_draw_is_another_set() {
        let layout = layout(4);
        let query = Rule::Roles([Role::Query].into());
        let value = Rule::Roles([Role::Value].into());
        let draw = |draw, from: &Rule| {
            let (from, like) = (from.clone().into(), query.clone().into());
            select(&Rule::Drawn { from, like, draw }, None).expect("legal")
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
        assert_eq!(select(&Rule::Union(vec![]), None), Ok(Scope::empty()));
        let everything = Scope::everything(&layout(4));
        assert_eq!(select(&Rule::Intersection(vec![]), None), Ok(everything));
    }

    #[test]
    fn a_rule_reads_from_plain_words_and_refuses_unknown_ones() {
        let text = r#"{"switch":{"before":"everything","at":3,"after":
            {"without":{"of":"everything","minus":{"roles":["query","key"]}}}}}"#;
        let frozen = Rule::Everything - Rule::Roles([Role::Query, Role::Key].into());
        let expected = Rule::switch(Rule::Everything, Round(3), frozen);
        assert_eq!(serde_json::from_str::<Rule>(text).expect("legal"), expected);
        for typo in [
            r#""everyone""#,
            r#"{"roles":["kwery"]}"#,
            r#"{"sites":["block.x"]}"#,
            r#"{"top_blocks":{"k":2,"probe":"gradient_norm","n":1}}"#,
        ] {
            assert!(serde_json::from_str::<Rule>(typo).is_err(), "{typo} was accepted");
        }
    }
}
