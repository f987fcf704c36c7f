//! Whether a rule makes sense for a model, decided before anything trains.
//!
//! The kinds of evidence a rule asks for can change only where a switch turns, so looking at the
//! first round and at each turn covers every round there will ever be.

use std::collections::BTreeSet;

use super::Rule;
use crate::error::PlanError;
use crate::evidence::Probe;
use crate::layout::Layout;
use crate::round::Round;

impl Rule {
    /// Refuses a rule that in some round, early or late, could not be followed for this model.
    pub fn check(&self, layout: &Layout) -> Result<(), PlanError> {
        let all = self.all();
        all.iter().try_for_each(|rule| rule.check_own(layout))?;
        let turn = |rule: &&Self| if let Self::Switch { at, .. } = rule { Some(*at) } else { None };
        let turns: BTreeSet<Round> = all.iter().filter_map(turn).chain([Round(0)]).collect();
        turns.into_iter().try_for_each(|round| self.check_one_probe(round))
    }

    /// Refuses what is wrong with this rule itself, leaving the rules inside it aside.
    pub(super) fn check_own(&self, layout: &Layout) -> Result<(), PlanError> {
        let blocks = layout.blocks();
        let exists = |block: u16| {
            if block < blocks { Ok(()) } else { Err(PlanError::NoSuchBlock { block, blocks }) }
        };
        match self {
            Self::Sites(sites) => sites.iter().filter_map(|site| site.block()).try_for_each(exists),
            Self::Blocks(numbers) => numbers.iter().copied().try_for_each(exists),
            Self::TopBlocks { k, probe: Probe::Nothing } => {
                Err(PlanError::NothingToRankBy { k: *k })
            }
            Self::TopBlocks { k, probe: _ } => {
                let legal = (1..=blocks).contains(k);
                if legal { Ok(()) } else { Err(PlanError::BlockCount { k: *k, blocks }) }
            }
            Self::Everything
            | Self::Nothing
            | Self::Roles(_)
            | Self::Parts(_)
            | Self::Drawn { .. }
            | Self::Union(_)
            | Self::Intersection(_)
            | Self::Without { .. }
            | Self::Switch { .. } => Ok(()),
        }
    }

    /// What the rule asks for in a round, in the order in which it is met.
    pub(super) fn probes(&self, round: Round) -> Vec<Probe> {
        match self {
            Self::TopBlocks { probe, .. } => vec![*probe],
            Self::Switch { before, at, after } => {
                if round < *at {
                    before.probes(round)
                } else {
                    after.probes(round)
                }
            }
            Self::Everything
            | Self::Nothing
            | Self::Sites(_)
            | Self::Roles(_)
            | Self::Parts(_)
            | Self::Blocks(_)
            | Self::Drawn { .. }
            | Self::Union(_)
            | Self::Intersection(_)
            | Self::Without { .. } => {
                self.inner().into_iter().flat_map(|rule| rule.probes(round)).collect()
            }
        }
    }

    /// The rules this one is made of.
    fn inner(&self) -> Vec<&Self> {
        match self {
            Self::Union(rules) | Self::Intersection(rules) => rules.iter().collect(),
            Self::Without { of, minus } => vec![of, minus],
            Self::Drawn { from, like, draw: _ } => vec![from, like],
            Self::Switch { before, at: _, after } => vec![before, after],
            Self::Everything
            | Self::Nothing
            | Self::Sites(_)
            | Self::Roles(_)
            | Self::Parts(_)
            | Self::Blocks(_)
            | Self::TopBlocks { .. } => Vec::new(),
        }
    }

    /// This rule and all that it is made of, from the outside in.
    pub(super) fn all(&self) -> Vec<&Self> {
        let inside = self.inner().into_iter().flat_map(Self::all);
        std::iter::once(self).chain(inside).collect()
    }

    fn check_one_probe(&self, round: Round) -> Result<(), PlanError> {
        let probes = self.probes(round);
        let Some(first) = probes.first().copied() else {
            return Ok(());
        };
        match probes.into_iter().find(|probe| *probe != first) {
            None => Ok(()),
            Some(second) => Err(PlanError::TwoProbes { round, first, second }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{AttentionSide, RelevantTokens};
    use crate::fixture::layout;
    use crate::id::Site;

    const ATTENTION: Probe =
        Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Cls };

    fn top(k: u16, probe: Probe) -> Rule {
        Rule::TopBlocks { k, probe }
    }

    #[track_caller]
    fn check_refused(rule: &Rule, expected: &str) {
        assert_eq!(rule.check(&layout(4)).expect_err("illegal").to_string(), expected);
    }

    #[test]
    fn no_blocks_and_more_blocks_than_there_are_are_refused() {
        check_refused(&top(0, ATTENTION), "a rule takes the top 0 blocks: expected 1 to 4");
        check_refused(&top(5, ATTENTION), "a rule takes the top 5 blocks: expected 1 to 4");
        assert_eq!(top(4, ATTENTION).check(&layout(4)), Ok(()));
    }

    #[test]
    fn a_ranking_by_nothing_is_refused() {
        check_refused(
            &top(2, Probe::Nothing),
            "a rule takes the top 2 blocks by no evidence: expected an attention or gradient probe",
        );
    }

    #[test]
    fn a_block_the_model_lacks_is_refused_even_deep_inside_a_later_stage() {
        let late = Rule::Everything - Rule::Blocks([4].into());
        check_refused(
            &Rule::switch(Rule::Everything, Round(9), late),
            "a rule names block 4: expected a block within 0..4",
        );
        check_refused(
            &Rule::Sites([Site::Block(7), Site::Head].into()),
            "a rule names block 7: expected a block within 0..4",
        );
    }

    #[test]
    fn two_probes_in_one_round_are_refused_but_not_in_different_rounds() {
        let (attention, gradient) = (top(1, ATTENTION), top(1, Probe::GradientNorm));
        let in_turn = Rule::switch(attention.clone(), Round(5), gradient.clone());
        assert_eq!(in_turn.check(&layout(4)), Ok(()));
        check_refused(
            &(attention | in_turn),
            "round 5 of a rule needs both attention (key side, classification token) and \
             gradient norms: expected one probe a round",
        );
        assert_eq!((gradient.clone() | gradient).check(&layout(4)), Ok(()));
    }
}
