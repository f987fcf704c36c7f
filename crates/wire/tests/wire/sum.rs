//! Sums of updates: one pass gives the bits of two, and what is refused leaves no trace.

use crate::letter::{expectation, header, tensors};
use fedra_plan::{Layout, Scope, Shape};
use fedra_wire::{Encoding, Header, ParamValues, Sum, Taken, WireError, decode, encode, open};
use proptest::prelude::*;

const ENCODINGS: [Encoding; 7] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::Bf16,
    Encoding::Int8 { feedback: false },
    Encoding::TopK { share: 0.3, feedback: false },
    Encoding::Pruned { share: 0.3, feedback: false },
    Encoding::Heads { share: 0.5, of: 3 },
];

fn layout() -> Layout {
    crate::letter::layout(Shape::matrix(31, 53))
}

fn payload(layout: &Layout, encoding: Encoding, bitmap: u8, seed: u64) -> Vec<u8> {
    let scope = Scope::from_bitmap(layout, &[bitmap]).expect("four parameters");
    encode(layout, &header(encoding), &tensors(layout, &scope, seed), None).expect("finite")
}

fn take(
    sum: &mut Sum,
    payload: Vec<u8>,
    layout: &Layout,
    (encoding, weight): (Encoding, f32),
) -> Result<Taken, WireError> {
    sum.take(payload, &expectation(layout, encoding), |_| Ok(weight))
}

/// What the sum comes to.
fn total(sum: &Sum) -> ParamValues {
    sum.clone().divided(|_| 1.0).tensors()
}

proptest! {
    #[test]
    fn checking_and_adding_at_once_gives_the_values_of_doing_it_one_after_the_other(
        updates in prop::collection::vec((0_u8..16, any::<u64>(), 0..ENCODINGS.len(), 0.1_f32..9.0), 1..6),
        alike: bool,
    ) {
        let layout = layout();
        let (mut at_once, mut in_turn, mut plain) = (Sum::default(), Sum::default(), ParamValues::new());
        for (bitmap, seed, which, weight) in updates {
            let (bitmap, encoding) = if alike { (15, Encoding::F32) } else { (bitmap, ENCODINGS[which]) };
            let payload = payload(&layout, encoding, bitmap, seed);
            let update = open(payload.clone(), &expectation(&layout, encoding)).expect("just written");
            in_turn.add(&update, weight);
            for (id, values) in update.tensors().iter() {
                let places = plain.or_zeros(id, values.len());
                places.iter_mut().zip(values).for_each(|(place, value)| *place += weight * value);
            }
            let taken = take(&mut at_once, payload.clone(), &layout, (encoding, weight));
            let taken = taken.expect("just written");
            prop_assert_eq!(&taken.header, &update.header);
            prop_assert_eq!(&taken.scope, &update.scope);
            prop_assert_eq!(total(&at_once), total(&in_turn));
            prop_assert_eq!(total(&at_once), plain.clone());
        }
    }

    #[test]
    fn damage_is_refused_by_the_same_name_and_leaves_the_sum_as_it_was(
        bit in 0_usize..(96 + 1659 * 4 + 8) * 8, before in 0_u64..3,
    ) {
        let layout = layout();
        let mut sum = Sum::default();
        for seed in 0..before {
            let payload = payload(&layout, Encoding::F32, 15, seed);
            take(&mut sum, payload, &layout, (Encoding::F32, 1.5)).expect("just written");
        }
        let untouched = total(&sum);
        let mut bad = payload(&layout, Encoding::F32, 15, 9);
        bad[bit / 8] ^= 1 << (bit % 8);
        let expected = decode(&bad, &expectation(&layout, Encoding::F32)).expect_err("damaged");
        let refused = take(&mut sum, bad, &layout, (Encoding::F32, 2.0)).expect_err("damaged");
        prop_assert_eq!(refused.to_string(), expected.to_string());
        prop_assert_eq!(total(&sum), untouched);
    }
}

#[test]
fn a_number_that_would_spoil_the_sum_is_refused_by_name_under_a_right_checksum() {
    let layout = layout();
    let mut sum = Sum::default();
    take(&mut sum, payload(&layout, Encoding::F32, 15, 1), &layout, (Encoding::F32, 1.0))
        .expect("just written");
    let untouched = total(&sum);
    for found in [f32::NAN, f32::INFINITY, -2e15] {
        let mut bad = payload(&layout, Encoding::F32, 15, 2);
        let end = bad.len() - 8;
        bad[end - 8..end - 4].copy_from_slice(&found.to_le_bytes());
        let seal = fedra_wire::checksum(&bad[..end]);
        bad[end..].copy_from_slice(&seal.to_le_bytes());
        let refused =
            take(&mut sum, bad, &layout, (Encoding::F32, 1.0)).expect_err("past the limit");
        let expected = format!(
            "block.0.query.bias holds {found}, expected a finite number of magnitude at most 1e15"
        );
        assert_eq!(refused.to_string(), expected);
        assert_eq!(total(&sum), untouched);
    }
}

#[test]
fn an_update_that_is_weighed_and_found_wanting_leaves_the_sum_as_it_was() {
    #[derive(Debug, PartialEq)]
    enum Refusal {
        Payload(WireError),
        Wanting,
    }
    impl From<WireError> for Refusal {
        fn from(error: WireError) -> Self {
            Self::Payload(error)
        }
    }
    let layout = layout();
    let mut sum = Sum::default();
    let good = payload(&layout, Encoding::F32, 15, 1);
    take(&mut sum, good.clone(), &layout, (Encoding::F32, 1.0)).expect("just written");
    let untouched = total(&sum);
    for encoding in ENCODINGS {
        let expected = expectation(&layout, encoding);
        let good = payload(&layout, encoding, 15, 1);
        let mut refuse = |payload| {
            let wanting = |_: &Header| Err(Refusal::Wanting);
            sum.take(payload, &expected, wanting).expect_err("nothing is enough")
        };
        assert_eq!(refuse(good.clone()), Refusal::Wanting);
        let mut bad = good;
        *bad.last_mut().expect("a checksum") ^= 1;
        let refused = refuse(bad);
        let damaged =
            matches!(refused, Refusal::Payload(WireError::Claim { what: "checksum", .. }));
        assert!(damaged, "{refused:?}");
        assert_eq!(total(&sum), untouched);
    }
}

#[test]
fn the_buffer_of_the_old_sum_is_handed_back_for_the_next_payload() {
    let layout = layout();
    let mut sum = Sum::default();
    let payload = |seed| payload(&layout, Encoding::F32, 15, seed);
    let first = take(&mut sum, payload(1), &layout, (Encoding::F32, 1.0)).expect("just written");
    assert_eq!(first.spare.len(), 0);
    let second = take(&mut sum, payload(2), &layout, (Encoding::F32, 1.0)).expect("just written");
    assert_eq!(second.spare.len(), payload(3).len());
}
