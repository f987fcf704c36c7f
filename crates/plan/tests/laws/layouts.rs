//! Laws of ids, layouts and digests.

use fedra_plan::{Layer, ParamId, Part, Role, Shape};
use proptest::prelude::*;

use crate::strategies::{layout, legal, parameters, part, role, shape};

fn any_layer() -> impl Strategy<Value = Layer> {
    prop_oneof![Just(Layer::Embedding), Just(Layer::Head), any::<u16>().prop_map(Layer::Block),]
}

#[test]
fn every_role_and_part_reads_back_at_every_kind_of_layer() {
    for layer in [Layer::Embedding, Layer::Block(0), Layer::Block(u16::MAX), Layer::Head] {
        for role in Role::ALL {
            for part in Part::ALL {
                let id = ParamId::new(layer, role, part);
                assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
    }
}

proptest! {
    #[test]
    fn every_id_reads_back_from_its_text(layer in any_layer(), role in role(), part in part()) {
        let id = ParamId::new(layer, role, part);
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        let json = serde_json::to_string(&id).expect("a string");
        prop_assert_eq!(serde_json::from_str::<ParamId>(&json).expect("just written"), id);
    }

    #[test]
    fn whatever_text_reads_as_an_id_prints_as_that_text(
        text in "(block\\.[0-9+]{1,5}|head)\\.(query|key)\\.(bias|lora_a)"
    ) {
        if let Ok(id) = text.parse::<ParamId>() {
            prop_assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_construction(
        (ordered, shuffled) in parameters()
            .prop_flat_map(|ordered| (Just(ordered.clone()), Just(ordered).prop_shuffle()))
    ) {
        let (first, second) = (legal(ordered), legal(shuffled));
        prop_assert_eq!(first.digest(), second.digest());
        prop_assert_eq!(first, second);
    }

    #[test]
    fn the_digest_differs_exactly_when_the_layouts_do(first in layout(), second in layout()) {
        prop_assert_eq!(first.digest() == second.digest(), first == second);
    }

    #[test]
    fn one_other_shape_changes_the_digest(
        parameters in parameters(),
        place in any::<prop::sample::Index>(),
        found in shape(),
    ) {
        let reference = legal(parameters.clone());
        let mut changed = parameters;
        let place = place.index(changed.len());
        let (id, expected) = changed[place];
        changed[place] = (id, found);
        let changed = legal(changed);
        if found == expected {
            prop_assert_eq!(reference.digest(), changed.digest());
        } else {
            prop_assert_ne!(reference.digest(), changed.digest());
        }
    }

    #[test]
    fn one_parameter_less_changes_the_digest(parameters in parameters()) {
        // The last one, so that no block number goes missing in the middle.
        let reference = legal(parameters.clone());
        let mut shorter = parameters;
        shorter.pop().expect("every model has a block");
        let shorter = legal(shorter);
        prop_assert_ne!(reference.digest(), shorter.digest());
    }

    #[test]
    fn elements_are_the_sum_over_the_shapes(layout in layout()) {
        let sum: usize = layout.iter().map(|(_, shape)| shape.elements()).sum();
        prop_assert_eq!(layout.elements(), sum);
    }

    #[test]
    fn a_shape_reads_back_from_its_dimensions(shape in shape()) {
        prop_assert_eq!(Shape::new(shape.dims()), Ok(shape));
    }
}
