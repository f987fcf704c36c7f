//! Laws of plans: sides, traffic and the reach of the backward pass.

use fedra_plan::{Crossing, Cut, Layer, Plan, Scope, Side};
use proptest::prelude::*;

use crate::strategies::{cut, plan_parts, three_scopes};

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
        let inner = (0..blocks).map(Layer::Block);
        let path: Vec<Layer> =
            [Layer::Embedding].into_iter().chain(inner).chain([Layer::Head]).collect();
        let changes: Vec<(Side, Layer)> = path
            .windows(2)
            .filter(|pair| cut.side(pair[0]) != cut.side(pair[1]))
            .map(|pair| (cut.side(pair[1]), pair[0]))
            .collect();
        let crossings = cut.crossings();
        prop_assert_eq!(crossings.len(), changes.len());
        for (crossing, (receiver, below)) in crossings.into_iter().zip(changes) {
            let into_server = matches!(crossing, Crossing::IntoServer { .. });
            prop_assert_eq!(into_server, receiver == Side::Server);
            let before = path.iter().filter(|layer| crossing.comes_after(**layer));
            prop_assert_eq!(before.max(), Some(&below));
        }
    }

    #[test]
    fn without_a_cut_everything_that_learns_travels_and_nothing_crosses(
        (layout, scope, _, _) in three_scopes()
    ) {
        let plan = Plan::new(&layout, scope.clone(), Cut::none()).expect("within the layout");
        prop_assert_eq!(plan.uploads(), scope);
        prop_assert!(plan.crossings().is_empty() && plan.gradient_crossings().is_empty());
    }

    #[test]
    fn nothing_learns_in_the_frozen_prefix(
        (layout, scope, cut) in plan_parts()
    ) {
        let plan = Plan::new(&layout, scope.clone(), cut).expect("drawn for this layout");
        let prefix = plan.frozen_prefix();
        prop_assert_eq!(prefix.is_none(), scope.lowest_layer() == Some(Layer::Embedding));
        let frozen = prefix.unwrap_or(0);
        prop_assert!(scope.blocks().into_iter().all(|number| number >= frozen));
    }
}
