//! Payloads as properties: what goes in comes out, and what was touched does not.

use crate::letter::{expectation, header, tensors};
use fedra_plan::{Layer, Layout, Role, Round, Scope, Shape};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, ParamValues, Sum, WireError, decode, encode,
    open, payload_length,
};
use proptest::prelude::*;

const ENCODINGS: [Encoding; 9] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::Bf16,
    Encoding::Int8 { feedback: false },
    Encoding::Int8 { feedback: true },
    Encoding::TopK { share: 0.3, feedback: false },
    Encoding::TopK { share: 0.01, feedback: true },
    Encoding::Pruned { share: 0.3, feedback: true },
    Encoding::Heads { share: 0.5, of: 3 },
];

fn layout() -> Layout {
    crate::letter::layout(Shape::matrix(7, 5))
}

proptest! {
    #[test]
    fn an_accepted_payload_reads_as_it_did_when_it_was_opened(
        bitmap in 0_u8..16, seed: u64, which in 0..ENCODINGS.len(),
    ) {
        let (layout, encoding) = (layout(), ENCODINGS[which]);
        let scope = Scope::from_bitmap(&layout, &[bitmap]).expect("four parameters");
        let sent = tensors(&layout, &scope, seed);
        let bytes = encode(&layout, &header(encoding), &sent, None).expect("finite");
        let expected = expectation(&layout, encoding);
        let accepted = open(bytes.clone(), &expected).expect("just written");
        let opened = open(&bytes, &expected).expect("just written");
        prop_assert_eq!(accepted.tensors(), opened.tensors());
        prop_assert_eq!(&accepted.scope, &opened.scope);
        for (id, square) in accepted.squares() {
            let read = opened.tensors();
            let values = read.get(id).expect("in the scope");
            let expected: f64 = values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            prop_assert_eq!(square, expected);
        }
    }

    #[test]
    fn what_was_encoded_comes_back_as_exactly_as_its_encoding_allows(
        bitmap in 0_u8..16, seed: u64, which in 0..ENCODINGS.len(),
    ) {
        let (layout, encoding) = (layout(), ENCODINGS[which]);
        let scope = Scope::from_bitmap(&layout, &[bitmap]).expect("four parameters");
        let sent = tensors(&layout, &scope, seed);
        let bytes = encode(&layout, &header(encoding), &sent, None).expect("finite");
        prop_assert_eq!(bytes.len(), payload_length(&layout, &scope, encoding));
        let (claims, found) = decode(&bytes, &expectation(&layout, encoding)).expect("just written");
        prop_assert_eq!(claims, header(encoding));
        prop_assert_eq!(found.scope(), scope);
        for (id, values) in sent.iter() {
            let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            for (sent, found) in values.iter().zip(found.get(id).expect("in the scope")) {
                let tolerance = match encoding {
                    Encoding::F32 => 0.0,
                    Encoding::F16 => sent.abs() / 2048.0 + 1e-7,
                    Encoding::Bf16 => sent.abs() / 256.0,
                    Encoding::Int8 { .. } => most / 253.0,
                    Encoding::TopK { .. } | Encoding::Pruned { .. } | Encoding::Heads { .. } => {
                        if *found == 0.0 { most } else { 0.0 }
                    }
                };
                prop_assert!((sent - found).abs() <= tolerance, "{encoding} {sent} {found}");
            }
        }
    }

    #[test]
    fn adding_from_the_bytes_is_adding_the_decoded_values(seed: u64, which in 0..ENCODINGS.len()) {
        let (layout, encoding) = (layout(), ENCODINGS[which]);
        let sent = tensors(&layout, &Scope::everything(&layout), seed);
        let bytes = encode(&layout, &header(encoding), &sent, None).expect("finite");
        let opened = open(bytes, &expectation(&layout, encoding)).expect("just written");
        let mut expected = tensors(&layout, &Scope::everything(&layout), seed ^ 1);
        let before = encode(&layout, &header(Encoding::F32), &expected, None).expect("finite");
        let mut sum = Sum::default();
        sum.add(&open(before, &expectation(&layout, Encoding::F32)).expect("just written"), 1.0);
        sum.add(&opened, 2.5);
        for (id, values) in opened.tensors().iter() {
            let places = expected.get_mut(id).expect("everything");
            places.iter_mut().zip(values).for_each(|(place, value)| *place += 2.5 * value);
        }
        prop_assert_eq!(sum.divided(|_| 1.0).tensors(), expected);
    }

    #[test]
    fn any_bytes_at_all_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let layout = layout();
        for encoding in ENCODINGS {
            prop_assert!(decode(&bytes, &expectation(&layout, encoding)).is_err());
        }
    }

    #[test]
    fn a_true_header_before_any_bytes_is_refused_without_a_panic(
        tail in prop::collection::vec(any::<u8>(), 0..300), which in 0..ENCODINGS.len(),
    ) {
        let (layout, encoding) = (layout(), ENCODINGS[which]);
        let none = encode(&layout, &header(encoding), &ParamValues::new(), None).expect("finite");
        let bytes = [&none[..64], &tail].concat();
        prop_assert!(decode(&bytes, &expectation(&layout, encoding)).is_err());
    }
}

fn is_length<T>(read: &Result<T, WireError>) -> bool {
    matches!(read, Err(WireError::Claim { what: "number of bytes", .. }))
}

#[test]
fn a_cut_at_any_byte_a_flip_of_any_bit_and_any_byte_more_is_refused() {
    let layout = layout();
    for encoding in ENCODINGS {
        let sent = tensors(&layout, &Scope::everything(&layout), 1);
        let good = encode(&layout, &header(encoding), &sent, None).expect("finite");
        let expected = expectation(&layout, encoding);
        for length in 0..good.len() {
            let refused = decode(&good[..length], &expected);
            assert!(is_length(&refused), "{encoding} {length}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, &expected).is_err(), "{encoding} bit {bit}");
        }
        for byte in [0, 1, 255] {
            let longer = [&good[..], &[byte]].concat();
            assert!(is_length(&decode(&longer, &expected)));
        }
    }
}

#[test]
fn each_wrong_claim_has_its_own_name() {
    let layout = layout();
    let scope = Scope::everything(&layout);
    let sent = tensors(&layout, &scope, 1);
    let refuse = |change: &dyn Fn(&mut Header)| {
        let mut header = header(Encoding::F32);
        change(&mut header);
        let bytes = encode(&layout, &header, &sent, None).expect("finite");
        decode(&bytes, &expectation(&layout, Encoding::F32)).expect_err("a wrong claim").to_string()
    };
    assert_eq!(refuse(&|h| h.round = Round(4)), "a payload: round is 4, expected 3");
    assert_eq!(
        refuse(&|h| h.client = ClientId(6)),
        "a payload: sender in the header is 6, expected 5"
    );
    assert_eq!(refuse(&|h| h.kind = Kind::Variate), "a payload: kind is 2, expected 1 (change)");
    assert_eq!(
        refuse(&|h| h.encoding = Encoding::F16),
        "a payload: encoding is 1, expected 0 (f32)"
    );

    let head = Scope::of_layers(&layout, [Layer::Head]);
    let part = encode(&layout, &header(Encoding::F32), &sent.subset(&head), None).expect("finite");
    let whole = Expectation { scope: Some(&scope), ..expectation(&layout, Encoding::F32) };
    assert_eq!(
        decode(&part, &whole).expect_err("a part").to_string(),
        "a payload: number of parameters is 1, without embedding.token.weight, expected 4"
    );

    let other = Layout::new([(head.iter().next().expect("one"), Shape::vector(2))]).expect("legal");
    let bytes = encode(&other, &header(Encoding::F32), &ParamValues::new(), None).expect("finite");
    let refused = decode(&bytes, &expectation(&layout, Encoding::F32));
    assert!(matches!(refused, Err(WireError::Claim { what: "layout", .. })), "{refused:?}");
}

#[test]
fn with_feedback_nothing_is_lost_over_time() {
    let layout = layout();
    let scope = Scope::everything(&layout);
    for encoding in
        [Encoding::Int8 { feedback: true }, Encoding::TopK { share: 0.2, feedback: true }]
    {
        let (mut sent, mut arrived) = (ParamValues::new(), ParamValues::new());
        let mut residual = ParamValues::new();
        for round in 0..30 {
            let update = tensors(&layout, &scope, round);
            let bytes = encode(&layout, &header(encoding), &update, Some(&mut residual));
            let bytes = bytes.expect("finite");
            let (_, seen) = decode(&bytes, &expectation(&layout, encoding)).expect("just written");
            for (id, values) in update.iter() {
                let total = sent.or_zeros(id, values.len());
                total.iter_mut().zip(values).for_each(|(total, value)| *total += value);
                let total = arrived.or_zeros(id, values.len());
                let seen = seen.get(id).expect("everything");
                total.iter_mut().zip(seen).for_each(|(total, value)| *total += value);
            }
        }
        for (id, values) in sent.iter() {
            let (arrived, owed) = (arrived.get(id).expect("all"), residual.get(id).expect("all"));
            for ((sent, arrived), owed) in values.iter().zip(arrived).zip(owed) {
                assert!((sent - arrived - owed).abs() < 1e-4, "{encoding} {sent} {arrived} {owed}");
            }
        }
    }
}

#[test]
fn heads_keep_the_largest_slices_whole_and_all_that_belongs_to_no_head() {
    let layout = layout();
    let sent = tensors(&layout, &Scope::everything(&layout), 3);
    let encoding = Encoding::Heads { share: 0.5, of: 3 };
    let bytes = encode(&layout, &header(encoding), &sent, None).expect("finite");
    // Two of three heads: 8 of 12 weights and 2 of 3 biases, each with a byte of bits.
    let whole = payload_length(&layout, &Scope::everything(&layout), Encoding::F32);
    assert_eq!(bytes.len(), whole - 4 * 4 - 4 + 2);
    let (_, found) = decode(&bytes, &expectation(&layout, encoding)).expect("just written");
    for (id, values) in sent.iter() {
        let (found, width) = (found.get(id).expect("whole"), values.len() / 3);
        if id.role != Role::Query {
            assert_eq!(found, values, "{id}");
            continue;
        }
        let square = |head: usize| -> f64 {
            values[head * width..][..width].iter().map(|x| f64::from(*x) * f64::from(*x)).sum()
        };
        let least = (0..3).min_by(|a, b| square(*a).total_cmp(&square(*b))).expect("three");
        for head in 0..3 {
            let slice = head * width..(head + 1) * width;
            let expected =
                if head == least { vec![0.0; width] } else { values[slice.clone()].to_vec() };
            assert_eq!(found[slice], expected, "{id} {head}");
        }
    }
}
