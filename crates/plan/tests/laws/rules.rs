//! Laws of rules: a rule is the set algebra of what its parts select.

use fedra_plan::{BlockScores, Layout, Probe, Round, Rule, Scope, Selector, Site, View};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::{any_rule, layout, rule};

/// A layout, its scores, a round, and two rules that fit.
fn setting() -> impl Strategy<Value = (Layout, BlockScores, Round, Rule, Rule)> {
    layout().prop_flat_map(|layout| {
        let blocks = layout.blocks();
        // Few distinct values, so that ties are common.
        let scores = vec((-2_i8..3).prop_map(f64::from), usize::from(blocks)).prop_map(|values| {
            BlockScores::new(Probe::GradientNorm, values).expect("drawn finite")
        });
        let round = (0_u32..6).prop_map(Round);
        (Just(layout), scores, round, rule(blocks), rule(blocks))
    })
}

fn select(rule: &Rule, (layout, scores, round): (&Layout, &BlockScores, Round)) -> Scope {
    rule.select(View { layout, round, scores: Some(scores) }).expect("drawn for this layout")
}

proptest! {
    #[test]
    fn a_rule_drawn_for_its_model_passes_its_check(
        (layout, scores, round, rule, _) in setting()
    ) {
        prop_assert_eq!(rule.check(&layout), Ok(()));
        prop_assert_eq!(select(&rule, (&layout, &scores, round)).check(&layout), Ok(()));
    }

    #[test]
    fn operators_on_rules_are_operators_on_what_they_select(
        (layout, scores, round, a, b) in setting()
    ) {
        let at = (&layout, &scores, round);
        let (left, right) = (select(&a, at), select(&b, at));
        prop_assert_eq!(select(&(a.clone() | b.clone()), at), &left | &right);
        prop_assert_eq!(select(&(a.clone() & b.clone()), at), &left & &right);
        prop_assert_eq!(select(&(a - b), at), &left - &right);
    }

    #[test]
    fn a_switch_is_its_first_rule_before_the_turn_and_its_second_from_then_on(
        (layout, scores, round, before, after) in setting(),
        turn in (0_u32..6).prop_map(Round),
    ) {
        let at = (&layout, &scores, round);
        let active = if round < turn { &before } else { &after };
        let (expected, probe) = (select(active, at), active.probe(round));
        let switch = Rule::switch(before, turn, after);
        prop_assert_eq!(select(&switch, at), expected);
        prop_assert_eq!(switch.probe(round), probe);
    }

    #[test]
    fn no_chosen_block_scores_below_one_left_out(
        (layout, scores, round, _, _) in setting(),
        share in 0.0..1.0_f64,
    ) {
        let k = 1 + (share * f64::from(layout.blocks())) as u16;
        let k = k.min(layout.blocks());
        let rule = Rule::TopBlocks { k, probe: Probe::GradientNorm };
        let scope = select(&rule, (&layout, &scores, round));
        let chosen = scope.blocks();
        prop_assert_eq!(chosen.len(), usize::from(k));
        prop_assert_eq!(&scope, &Scope::of_blocks(&layout, chosen.iter().copied()));
        let score = |block: u16| scores.as_slice()[usize::from(block)];
        for inside in &chosen {
            for outside in (0..layout.blocks()).filter(|block| !chosen.contains(block)) {
                let wins = score(*inside) > score(outside)
                    || (score(*inside) == score(outside) && *inside < outside);
                prop_assert!(wins, "block {} over block {}", inside, outside);
            }
        }
    }

    #[test]
    fn the_top_of_all_blocks_with_both_ends_is_everything(
        (layout, scores, round, _, _) in setting()
    ) {
        let top = Rule::TopBlocks { k: layout.blocks(), probe: Probe::GradientNorm };
        let rule = top | Rule::Sites([Site::Embedding, Site::Head].into());
        let scope = select(&rule, (&layout, &scores, round));
        prop_assert_eq!(scope, Scope::everything(&layout));
    }

    #[test]
    fn a_rule_that_asks_for_nothing_selects_without_scores(
        (layout, scores, round, rule, _) in setting()
    ) {
        let blind = rule.select(View { layout: &layout, round, scores: None });
        match rule.probe(round) {
            Probe::Nothing => prop_assert_eq!(blind, Ok(select(&rule, (&layout, &scores, round)))),
            Probe::Attention { .. }
            | Probe::GradientNorm
            | Probe::RelativeGradient
            | Probe::ServerOrder => prop_assert!(blind.is_err()),
        }
    }

    #[test]
    fn a_rule_reads_back_from_json(rule in any_rule()) {
        let json = serde_json::to_string(&rule).expect("plain data");
        prop_assert_eq!(serde_json::from_str::<Rule>(&json).expect("just written"), rule);
    }
}
