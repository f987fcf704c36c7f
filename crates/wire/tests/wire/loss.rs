//! A loss of zero is a loss; one that is not told is none; norms are the same however a payload is read.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fedra_plan::{Layer, Layout, ParamId, Part, Role, Round, Shape};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, ParamValues, Sum, WireError, decode, encode,
};

fn layout() -> Layout {
    let id = |layer| ParamId::new(layer, Role::Classifier, Part::Bias);
    Layout::new([(id(Layer::Head), Shape::vector(37)), (id(Layer::Block(0)), Shape::vector(5))])
        .unwrap()
}

fn values() -> ParamValues {
    layout()
        .iter()
        .map(|(id, shape)| (id, (0..shape.elements()).map(|n| n as f32 - 3.5).collect()))
        .collect()
}

fn header(encoding: Encoding, loss: Option<f32>) -> Header {
    let (kind, round, client) = (Kind::Change, Round(2), ClientId(1));
    Header { kind, encoding, round, client, examples: 12, steps: 4, loss }
}

fn expectation(layout: &Layout, encoding: Encoding) -> Expectation<'_> {
    let (kind, round, client) = (Kind::Change, Round(2), ClientId(1));
    Expectation { layout, kind, encoding, round, client, scope: None }
}

fn read(bytes: &[u8]) -> Result<Option<f32>, WireError> {
    decode(bytes, &expectation(&layout(), Encoding::F32)).map(|(header, _)| header.loss)
}

/// The payload with other bytes at a place, sealed anew.
fn edited(payload: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload[at..at + bytes.len()].copy_from_slice(bytes);
    let end = payload.len() - 8;
    let checksum = fedra_wire::checksum(&payload[..end]).to_le_bytes();
    payload[end..].copy_from_slice(&checksum);
    payload
}

#[test]
fn every_loss_reads_back_and_none_is_none() {
    for loss in [None, Some(0.0), Some(-0.0), Some(0.25), Some(f32::MAX)] {
        let payload = encode(&layout(), &header(Encoding::F32, loss), &values(), None).unwrap();
        assert_eq!(read(&payload).unwrap().map(f32::to_bits), loss.map(f32::to_bits));
    }
    for loss in [f32::NAN, f32::INFINITY] {
        let refused = encode(&layout(), &header(Encoding::F32, Some(loss)), &values(), None);
        let error = refused.unwrap_err();
        assert!(error.is_divergence(), "{error}");
    }
}

#[test]
fn a_payload_of_the_version_before_says_with_zero_that_it_does_not_tell() {
    let payload = encode(&layout(), &header(Encoding::F32, Some(0.0)), &values(), None).unwrap();
    let older = edited(&payload, 4, &[2]);
    assert_eq!(read(&older).unwrap(), None);
    let told = edited(&older, 60, &0.5_f32.to_le_bytes());
    assert_eq!(read(&told).unwrap(), Some(0.5));
    let older = read(&edited(&payload, 4, &[1]));
    assert!(matches!(older, Err(WireError::Claim { what: "format version", .. })), "{older:?}");
    // No other bits stand for a loss that is not told.
    for bits in [0x7fc0_0001_u32, 0x7f80_0000, 0xffc0_0000] {
        let odd = edited(&payload, 60, &bits.to_le_bytes());
        assert!(matches!(read(&odd), Err(WireError::Loss { .. })), "{bits:x}");
    }
}

#[test]
fn the_norm_is_that_of_all_values_in_every_encoding_and_the_same_when_it_is_added() {
    let squares = values()
        .iter()
        .flat_map(|(_, values)| values.to_vec())
        .map(|v| f64::from(v).powi(2))
        .sum::<f64>();
    for encoding in [Encoding::F32, Encoding::F16, Encoding::Bf16] {
        let payload = encode(&layout(), &header(encoding, None), &values(), None).unwrap();
        let layout = layout();
        let expected = expectation(&layout, encoding);
        let mut sum = Sum::default();
        sum.measures = true;
        let mut taken = || sum.take(payload.clone(), &expected, |_| Ok::<_, WireError>(0.5));
        let added = [taken(), taken()].map(|taken| taken.unwrap().norm.map(f64::to_bits));
        let accepted = fedra_wire::open(payload, &expected).unwrap();
        let norm = accepted.norm();
        assert!((norm - squares.sqrt()).abs() < 0.02 * norm, "{encoding:?}: {norm}");
        assert_eq!(added, [Some(norm.to_bits()); 2], "{encoding:?}");
    }
}
