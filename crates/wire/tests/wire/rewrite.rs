//! Payloads that are edited where they lie.

use fedra_plan::{Layer, Layout, ParamId, Part, Role, Round, Shape};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, ParamValues, WireError, decode, encode, rewrite,
};

#[test]
fn a_rewritten_payload_is_the_one_that_would_have_been_encoded() {
    let bias = ParamId::new(Layer::Head, Role::Classifier, Part::Bias);
    let layout = Layout::new([(bias, Shape::vector(3))]).expect("legal");
    let (kind, encoding) = (Kind::Change, Encoding::F32);
    let (round, client) = (Round(3), ClientId(5));
    let header = Header { kind, encoding, round, client, examples: 12, steps: 4, loss: Some(0.5) };
    let payload = |values: [f32; 3]| {
        let tensors = ParamValues::from_iter([(bias, values.to_vec())]);
        encode(&layout, &header, &tensors, None).expect("legal")
    };
    let (mut edited, wanted) = (payload([1.0, 2.0, 3.0]), payload([4.0, 5.0, 6.0]));
    let before = edited.clone();
    rewrite(&mut edited, &layout, |front, values| {
        assert_eq!(*front, before[..front.len()]);
        for (bytes, value) in values.as_chunks_mut().0.iter_mut().zip([4.0_f32, 5.0, 6.0]) {
            *bytes = value.to_le_bytes();
        }
    })
    .expect("long enough");
    assert_eq!(edited, wanted);

    // Only the seal is made good: what the front says is still held against what is due.
    rewrite(&mut edited, &layout, |front, _| front[4] += 1).expect("long enough");
    let expected = Expectation { layout: &layout, kind, encoding, round, client, scope: None };
    let refused = decode(&edited, &expected).expect_err("another version");
    assert!(matches!(refused, WireError::Claim { what: "format version", .. }), "{refused}");
    for length in [0, 7, 64] {
        let refused = rewrite(&mut edited[..length], &layout, |_, _| ()).expect_err("too short");
        assert!(
            refused.to_string().contains(&format!("number of bytes is {length}, ")),
            "{refused}"
        );
    }
}
