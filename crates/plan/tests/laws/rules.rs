//! Laws of rules: a rule is the set algebra of what its parts select.

use std::collections::BTreeSet;

use fedra_plan::{Layer, Layout, Rule, Scope};
use proptest::collection::btree_set;
use proptest::prelude::*;

use crate::strategies::{layout, rule};

/// A layout, the blocks that were chosen, and two rules that fit.
fn setting() -> impl Strategy<Value = (Layout, BTreeSet<u16>, Rule, Rule)> {
    layout().prop_flat_map(|layout| {
        let blocks = layout.blocks();
        let chosen = btree_set(0..blocks, 0..=usize::from(blocks));
        (Just(layout), chosen, rule(blocks), rule(blocks))
    })
}

fn select(rule: &Rule, (layout, chosen): (&Layout, &BTreeSet<u16>)) -> Scope {
    rule.select_with(layout, chosen).expect("drawn for this layout")
}

proptest! {
    #[test]
    fn a_rule_drawn_for_its_model_passes_its_check((layout, chosen, rule, _) in setting()) {
        prop_assert_eq!(rule.check(&layout), Ok(()));
        prop_assert_eq!(select(&rule, (&layout, &chosen)).check(&layout), Ok(()));
    }

    #[test]
    fn operators_on_rules_are_operators_on_what_they_select((layout, chosen, a, b) in setting()) {
        let at = (&layout, &chosen);
        let (left, right) = (select(&a, at), select(&b, at));
        prop_assert_eq!(select(&(a.clone() | b.clone()), at), &left | &right);
        prop_assert_eq!(select(&(a.clone() & b.clone()), at), &left & &right);
        prop_assert_eq!(select(&(a - b), at), &left - &right);
    }

    #[test]
    fn the_chosen_blocks_are_those_handed_over((layout, chosen, _, _) in setting()) {
        let scope = select(&Rule::Chosen, (&layout, &chosen));
        prop_assert_eq!(scope, Scope::of_blocks(&layout, chosen));
    }

    #[test]
    fn all_blocks_with_both_ends_are_everything((layout, _, _, _) in setting()) {
        let rule = Rule::Chosen | Rule::Layers([Layer::Embedding, Layer::Head].into());
        let all = (0..layout.blocks()).collect();
        prop_assert_eq!(select(&rule, (&layout, &all)), Scope::everything(&layout));
    }

    #[test]
    fn a_rule_selects_without_a_choice_unless_it_needs_one((layout, chosen, rule, _) in setting()) {
        let blind = rule.select(&layout);
        if rule.needs_choice() {
            let said = blind.expect_err("nothing was chosen").to_string();
            prop_assert!(said.contains("expected blocks to be chosen first"), "{}", said);
        } else {
            prop_assert_eq!(blind, Ok(select(&rule, (&layout, &chosen))));
        }
    }

    #[test]
    fn a_rule_reads_back_from_json(rule in rule(6)) {
        let json = serde_json::to_string(&rule).expect("plain data");
        prop_assert_eq!(serde_json::from_str::<Rule>(&json).expect("just written"), rule);
    }
}
