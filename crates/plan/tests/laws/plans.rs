//! Laws of plans: sides, traffic and the reach of the backward pass.

use fedra_plan::{ByteCount, Cut, ElementWidth, HiddenStates, Plan, Scope, Side, Site};
use proptest::prelude::*;

use crate::strategies::{cut, plan_parts, three_scopes};

const STATES: HiddenStates = HiddenStates { tokens: 7, width: 5 };

proptest! {
    #[test]
    fn what_is_uploaded_and_what_the_server_trains_divide_the_scope(
        (layout, scope, cut) in plan_parts()
    ) {
        let plan = Plan::new(&layout, scope.clone(), cut).expect("drawn for this layout");
        let (up, server) = (plan.uploads(), plan.trained_by(Side::Server));
        prop_assert!((&up & &server).is_empty());
        prop_assert_eq!(up | server, scope);
    }

    #[test]
    fn the_two_sides_divide_the_layout((layout, scope, cut) in plan_parts()) {
        let plan = Plan::new(&layout, scope, cut).expect("drawn for this layout");
        let (client, server) =
            (plan.held_by(Side::Client), plan.held_by(Side::Server));
        prop_assert!((&client & &server).is_empty());
        prop_assert!(plan.trained_by(Side::Client).is_subset(&client));
        prop_assert!(plan.trained_by(Side::Server).is_subset(&server));
        prop_assert_eq!(client | server, Scope::everything(&layout));
    }

    #[test]
    fn the_side_changes_exactly_at_the_crossings(
        (blocks, cut) in (1_u16..9).prop_flat_map(|blocks| (Just(blocks), cut(blocks)))
    ) {
        let inner = (0..blocks).map(Site::Block);
        let path: Vec<Site> =
            [Site::Embedding].into_iter().chain(inner).chain([Site::Head]).collect();
        let changes: Vec<(Side, Site)> = path
            .windows(2)
            .filter(|pair| cut.side(pair[0]) != cut.side(pair[1]))
            .map(|pair| (cut.side(pair[1]), pair[0]))
            .collect();
        let crossings = cut.crossings();
        prop_assert_eq!(crossings.len(), changes.len());
        for (crossing, (receiver, below)) in crossings.into_iter().zip(changes) {
            prop_assert_eq!(crossing.receiver(), receiver);
            let before = path.iter().filter(|site| crossing.comes_after(**site));
            prop_assert_eq!(before.max(), Some(&below));
        }
    }

    #[test]
    fn without_a_cut_everything_that_learns_travels_and_nothing_crosses(
        (layout, scope, _, _) in three_scopes()
    ) {
        let plan = Plan::new(&layout, scope.clone(), Cut::none()).expect("within the layout");
        let traffic =
            plan.bytes(&layout, ElementWidth::F32, (&scope, STATES)).expect("same layout");
        prop_assert_eq!(plan.uploads(), scope.clone());
        prop_assert_eq!(traffic.up(), ByteCount(4 * scope.elements(&layout) as u64));
        prop_assert_eq!(traffic.crossing(), ByteCount(0));
    }

    #[test]
    fn parameter_bytes_add_over_disjoint_scopes(
        (layout, first, other, cut) in three_scopes().prop_flat_map(|(layout, a, b, _)| {
            let cut = cut(layout.blocks());
            (Just(layout), Just(a), Just(b), cut)
        })
    ) {
        let second = other - &first;
        let whole = &first | &second;
        let bytes = |scope: Scope| {
            let plan = Plan::new(&layout, scope, cut.clone()).expect("drawn for this layout");
            let back = &plan.uploads();
            plan.bytes(&layout, ElementWidth::F16, (back, STATES)).expect("same layout")
        };
        let (whole, first, second) = (bytes(whole), bytes(first), bytes(second));
        prop_assert_eq!(whole.parameters_up, first.parameters_up + second.parameters_up);
        prop_assert_eq!(whole.parameters_down, first.parameters_down + second.parameters_down);
    }

    #[test]
    fn crossing_bytes_are_one_load_for_each_boundary_and_direction(
        (layout, scope, cut) in plan_parts()
    ) {
        let plan = Plan::new(&layout, scope, cut).expect("drawn for this layout");
        let back = &plan.uploads();
        let traffic = plan.bytes(&layout, ElementWidth::F32, (back, STATES)).expect("same layout");
        let passes = (plan.crossings().len() + plan.gradient_crossings().len()) as u64;
        prop_assert_eq!(traffic.crossing(), ByteCount(passes * 7 * 5 * 4));
    }

    #[test]
    fn the_backward_pass_reaches_all_that_learns_and_nothing_in_the_frozen_prefix(
        (layout, scope, cut) in plan_parts()
    ) {
        let plan = Plan::new(&layout, scope.clone(), cut).expect("drawn for this layout");
        for side in [Side::Client, Side::Server] {
            let trained = plan.trained_by(side);
            let reached = plan.backward_reaches(side);
            let covers = |lowest: Site| reached.is_some_and(|site| site <= lowest);
            prop_assert!(trained.lowest_site().is_none_or(covers));
            prop_assert!(reached.is_none_or(|site| Some(site) >= scope.lowest_site()));
        }
        let prefix = plan.frozen_prefix();
        prop_assert_eq!(prefix.is_none(), scope.lowest_site() == Some(Site::Embedding));
        let frozen = prefix.unwrap_or(0);
        prop_assert!(scope.blocks().into_iter().all(|number| number >= frozen));
    }

    #[test]
    fn the_server_takes_part_in_the_backward_pass_exactly_when_a_gradient_reaches_it(
        (layout, scope, cut) in plan_parts()
    ) {
        let plan = Plan::new(&layout, scope, cut).expect("drawn for this layout");
        let taking_part = plan.backward_reaches(Side::Server).is_some();
        prop_assert_eq!(taking_part, !plan.gradient_crossings().is_empty());
    }
}
