//! Laws of scopes: set algebra within a layout, and bitmaps.

use fedra_plan::{Part, Role, Scope};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::{layout, three_scopes};

proptest! {
    #[test]
    fn union_and_intersection_commute_and_associate((_, a, b, c) in three_scopes()) {
        prop_assert_eq!(&a | &b, &b | &a);
        prop_assert_eq!(&a & &b, &b & &a);
        prop_assert_eq!((&a | &b) | &c, &a | (&b | &c));
        prop_assert_eq!((&a & &b) & &c, &a & (&b & &c));
    }

    #[test]
    fn each_distributes_over_the_other((_, a, b, c) in three_scopes()) {
        prop_assert_eq!(&a & (&b | &c), (&a & &b) | (&a & &c));
        prop_assert_eq!(&a | (&b & &c), (&a | &b) & (&a | &c));
    }

    #[test]
    fn nothing_and_everything_are_neutral((layout, a, _, _) in three_scopes()) {
        prop_assert_eq!(&a | Scope::empty(), a.clone());
        prop_assert_eq!(&a & Scope::everything(&layout), a.clone());
        prop_assert_eq!(&a - Scope::empty(), a.clone());
        prop_assert!((&a - &a).is_empty());
    }

    #[test]
    fn de_morgan_holds_within_a_layout((layout, a, b, _) in three_scopes()) {
        let all = Scope::everything(&layout);
        prop_assert_eq!(&all - (&a | &b), (&all - &a) & (&all - &b));
        prop_assert_eq!(&all - (&a & &b), (&all - &a) | (&all - &b));
    }

    #[test]
    fn difference_is_intersection_with_the_complement((layout, a, b, _) in three_scopes()) {
        prop_assert_eq!(&a - &b, &a & (Scope::everything(&layout) - &b));
        prop_assert_eq!((&a - &b) | (&a & &b), a);
    }

    #[test]
    fn subset_means_that_nothing_is_left((_, a, b, _) in three_scopes()) {
        prop_assert_eq!(a.is_subset(&b), (&a - &b).is_empty());
        prop_assert!((&a & &b).is_subset(&a));
        prop_assert!(a.is_subset(&(&a | &b)));
    }

    #[test]
    fn elements_follow_inclusion_and_exclusion((layout, a, b, _) in three_scopes()) {
        let count = |scope: &Scope| scope.elements(&layout);
        prop_assert_eq!(count(&(&a | &b)) + count(&(&a & &b)), count(&a) + count(&b));
    }

    #[test]
    fn roles_parts_and_layers_each_divide_the_layout(layout in layout()) {
        let all = Scope::everything(&layout);
        let roles = Role::ALL.map(|role| Scope::of_roles(&layout, [role]));
        let parts = Part::ALL.map(|part| Scope::of_parts(&layout, [part]));
        prop_assert_eq!(roles.iter().map(Scope::len).sum::<usize>(), all.len());
        prop_assert_eq!(parts.iter().map(Scope::len).sum::<usize>(), all.len());
        let in_blocks = Scope::of_blocks(&layout, 0..layout.blocks());
        prop_assert_eq!(in_blocks, all.filter(|id| id.layer.block().is_some()));
    }

    #[test]
    fn a_bitmap_reads_back_as_its_scope((layout, a, _, _) in three_scopes()) {
        let bytes = a.bitmap(&layout).expect("within the layout");
        prop_assert_eq!(bytes.len(), layout.len().div_ceil(8));
        prop_assert_eq!(Scope::from_bitmap(&layout, &bytes), Ok(a));
    }

    #[test]
    fn whatever_bytes_read_as_a_scope_are_its_bitmap(
        (layout, bytes) in layout().prop_flat_map(|layout| {
            let length = layout.len().div_ceil(8);
            (Just(layout), vec(any::<u8>(), length..length + 2))
        })
    ) {
        match Scope::from_bitmap(&layout, &bytes) {
            Ok(scope) => prop_assert_eq!(scope.bitmap(&layout), Ok(bytes)),
            Err(_) if bytes.len() != layout.len().div_ceil(8) => {}
            Err(error) => {
                prop_assert!(error.to_string().contains("sets padding"), "{}", error);
                prop_assert_ne!(layout.len() % 8, 0);
            }
        }
    }

    #[test]
    fn a_scope_reads_back_from_json((_, a, _, _) in three_scopes()) {
        let json = serde_json::to_string(&a).expect("a list of strings");
        prop_assert_eq!(serde_json::from_str::<Scope>(&json).expect("just written"), a);
    }
}
