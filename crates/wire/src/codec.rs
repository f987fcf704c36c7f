//! The bytes of one parameter in each encoding.
//!
//! Checking comes first and takes no memory; adding then reads straight from the payload into the
//! sum, so that folding an update never makes a second copy of it.
//!
//! ```text
//! f32, f16, bf16   every element, little endian
//! int8             one f32 scale a row, then one signed byte an element: value = scale * byte
//! top_k            the places of the kept elements (u32 indices or a bitmap, whichever is
//!                  shorter), then their f32 values in the order of places
//! heads            a bit a head, then the f32 values of the kept heads, head by head
//! ```

use crate::kernels::LIMIT;
use fedra_plan::{ParamId, Shape};
use half::f16;

use crate::encoding::{Encoding, Places, kept, rows};
use crate::error::WireError;
use crate::heads::HeadSlices;

/// What [`Encoding::at`] has seen to.
const SLICED: &str = "parameters without heads are written in f32";

/// Appends a parameter's values.
pub(crate) fn write(
    encoding: Encoding,
    (id, shape): (ParamId, Shape),
    values: &[f32],
    into: &mut Vec<u8>,
) -> Result<(), WireError> {
    let limit = if encoding == Encoding::F16 { f16::MAX.to_f32() } else { LIMIT };
    let refused = |found| WireError::Magnitude { id, found, limit };
    let length = encoding.length(shape);
    let written = match encoding {
        Encoding::F32 => write_plain(values, limit, into, f32::to_le_bytes),
        Encoding::F16 => {
            write_plain(values, limit, into, |value| f16::from_f32(value).to_le_bytes())
        }
        Encoding::Bf16 => write_plain(values, limit, into, bf16_bytes),
        Encoding::Int8 { .. } => {
            write_parts(values, limit, (into, length), |bytes| write_int8(shape, values, bytes))
        }
        Encoding::TopK { share, .. } | Encoding::Pruned { share, .. } => {
            let kept = kept(share, values.len());
            write_parts(values, limit, (into, length), |bytes| write_top(kept, values, bytes))
        }
        Encoding::Heads { share, of } => {
            let slices = HeadSlices::of(id, shape, of).expect(SLICED);
            let kept = kept(share, slices.heads);
            let write = |bytes: &mut [u8]| write_heads(kept, slices, values, bytes);
            write_parts(values, limit, (into, length), write)
        }
    };
    written.map_err(refused)
}

/// Appends so many bytes, which `write` fills in parts that lie apart, such as places and what is there. Returns the first
/// value above the limit.
fn write_parts(
    values: &[f32],
    limit: f32,
    (into, length): (&mut Vec<u8>, usize),
    write: impl FnOnce(&mut [u8]),
) -> Result<(), f32> {
    within(values, limit)?;
    let start = into.len();
    into.resize(start + length, 0);
    write(&mut into[start..]);
    Ok(())
}

/// Appends each value in bytes of its own, in one pass: a model is new memory on both sides, and costs what it is
/// touched. Returns the first value above the limit.
pub(crate) fn write_plain<const N: usize>(
    values: &[f32],
    limit: f32,
    into: &mut Vec<u8>,
    written: impl Fn(f32) -> [u8; N],
) -> Result<(), f32> {
    const RUN: usize = 1024;
    into.reserve(N * values.len());
    let mut bytes = [[0; N]; RUN];
    for run in values.chunks(RUN) {
        within(run, limit)?;
        for (place, value) in bytes.iter_mut().zip(run) {
            *place = written(*value);
        }
        into.extend_from_slice(bytes[..run.len()].as_flattened());
    }
    Ok(())
}

/// The nearest bf16 of a finite number. Without a look at what is none, so that many are rounded at once.
pub(crate) fn bf16_bytes(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let to_even = 0x7fff + (bits >> 16 & 1);
    ((bits.wrapping_add(to_even) >> 16) as u16).to_le_bytes()
}

/// What a bf16 stands for.
pub(crate) fn of_bf16_bytes(bytes: [u8; 2]) -> f32 {
    of_bf16_bits(u16::from_le_bytes(bytes))
}

pub(crate) fn of_bf16_bits(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Returns the first value above the limit, as an error.
pub(crate) fn within(values: &[f32], limit: f32) -> Result<(), f32> {
    // The largest first: a search that stops at the first looks at one value at a time.
    let largest = values.iter().fold(0, |most, value| most.max(magnitude(*value)));
    let is_above = |value: &f32| magnitude(*value) > limit.to_bits();
    if largest <= limit.to_bits() {
        return Ok(());
    }
    values.iter().copied().find(is_above).map_or(Ok(()), Err)
}

/// Writes the scales of rows, then their bytes.
pub(crate) fn write_int8(shape: Shape, values: &[f32], bytes: &mut [u8]) {
    let rows = rows(shape);
    let (scales, bytes) = bytes.split_at_mut(rows * 4);
    let width = values.len() / rows;
    let rows = scales.as_chunks_mut().0.iter_mut().zip(values.chunks(width));
    for ((scale_place, row), bytes) in rows.zip(bytes.chunks_mut(width)) {
        let scale = row.iter().fold(0.0_f32, |most, value| most.max(value.abs())) / 127.0;
        *scale_place = scale.to_le_bytes();
        for (place, value) in bytes.iter_mut().zip(row) {
            let steps = if scale > 0.0 { (value / scale).round() } else { 0.0 };
            *place = (steps.clamp(-127.0, 127.0) as i8).cast_unsigned();
        }
    }
}

fn write_top(kept: usize, values: &[f32], bytes: &mut [u8]) {
    let mut magnitudes: Vec<u32> = values.iter().copied().map(magnitude).collect();
    let (_, &mut least, _) = magnitudes.select_nth_unstable_by(kept - 1, |a, b| b.cmp(a));
    // Of those that equal the least magnitude kept, the first ones are.
    let mut ties = kept - values.iter().filter(|value| magnitude(**value) > least).count();
    let chosen = values.iter().enumerate().filter(|(_, value)| {
        let own = magnitude(**value);
        let tied = own == least && ties > 0;
        ties -= usize::from(tied);
        own > least || tied
    });
    let places = Places::of(values.len(), kept);
    let (place_bytes, value_bytes) = bytes.split_at_mut(bytes.len() - kept * 4);
    let value_places = value_bytes.as_chunks_mut().0.iter_mut();
    for (rank, ((index, value), place)) in chosen.zip(value_places).enumerate() {
        *place = value.to_le_bytes();
        match places {
            Places::Indices => {
                place_bytes[rank * 4..][..4].copy_from_slice(&(index as u32).to_le_bytes());
            }
            Places::Bitmap => place_bytes[index / 8] |= 1 << (index % 8),
        }
    }
}

fn write_heads(kept: usize, slices: HeadSlices, values: &[f32], bytes: &mut [u8]) {
    let squares = slices.squares(values);
    let mut order: Vec<usize> = (0..slices.heads).collect();
    // A stable sort: of equals the first ones are kept.
    order.sort_by(|left, right| squares[*right].total_cmp(&squares[*left]));
    order.truncate(kept);
    order.sort_unstable();
    let (bits, rest) = bytes.split_at_mut(slices.heads.div_ceil(8));
    let mut places = rest.as_chunks_mut().0.iter_mut();
    for head in order {
        bits[head / 8] |= 1 << (head % 8);
        let values = slices.places(head).flat_map(|range| &values[range]);
        for (value, place) in values.zip(&mut places) {
            *place = value.to_le_bytes();
        }
    }
}

/// Refuses what must not be summed; the bytes have the right length.
pub(crate) fn check(
    encoding: Encoding,
    (id, shape): (ParamId, Shape),
    bytes: &[u8],
) -> Result<(), WireError> {
    match encoding {
        Encoding::F32 => check_values(id, bytes),
        Encoding::F16 => check_halves(id, bytes, |bits| f16::from_bits(bits).to_f32()),
        Encoding::Bf16 => check_halves(id, bytes, of_bf16_bits),
        Encoding::Int8 { .. } => {
            let (scales, _) = bytes.split_at(rows(shape) * 4);
            check_values(id, scales)?;
            let scales = scales.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            match scales.into_iter().find(|scale| scale.is_sign_negative()) {
                Some(found) => Err(WireError::Scale { id, found }),
                None => Ok(()),
            }
        }
        Encoding::TopK { share, .. } | Encoding::Pruned { share, .. } => {
            let expected = kept(share, shape.elements());
            let (place_bytes, values) = bytes.split_at(bytes.len() - expected * 4);
            check_values(id, values)?;
            let legal = match Places::of(shape.elements(), expected) {
                Places::Indices => legal_indices(place_bytes, shape.elements()),
                Places::Bitmap => legal_bitmap(place_bytes, shape.elements(), expected),
            };
            if legal { Ok(()) } else { Err(WireError::Places { id, expected }) }
        }
        Encoding::Heads { share, of } => {
            let heads = usize::from(of);
            let expected = kept(share, heads);
            let (bits, values) = bytes.split_at(heads.div_ceil(8));
            check_values(id, values)?;
            let legal = legal_bitmap(bits, heads, expected);
            if legal { Ok(()) } else { Err(WireError::Places { id, expected }) }
        }
    }
}

/// Refuses f32 elements that are NaN, infinite or too large.
fn check_values(id: ParamId, bytes: &[u8]) -> Result<(), WireError> {
    match crate::kernels::inspect(bytes).excess {
        None => Ok(()),
        Some(excess) => Err(WireError::Magnitude { id, found: excess.value, limit: LIMIT }),
    }
}

/// The same for the two-byte floats.
fn check_halves(id: ParamId, bytes: &[u8], widen: impl Fn(u16) -> f32) -> Result<(), WireError> {
    let magnitudes = bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes) << 1 >> 1);
    let found = widen(magnitudes.fold(0, u16::max));
    if found <= LIMIT { Ok(()) } else { Err(WireError::Magnitude { id, found, limit: LIMIT }) }
}

fn legal_indices(bytes: &[u8], elements: usize) -> bool {
    let indices = || bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    indices().zip(indices().skip(1)).all(|(left, right)| left < right)
        && indices().next_back().is_none_or(|last| last < elements)
}

fn legal_bitmap(bytes: &[u8], elements: usize, expected: usize) -> bool {
    let set: usize = bytes.iter().map(|byte| byte.count_ones() as usize).sum();
    let padding = bytes.last().map_or(0, |last| match elements % 8 {
        0 => 0,
        used => last >> used,
    });
    set == expected && padding == 0
}

/// Brings each element of checked bytes together with its place; elements left out are skipped.
#[inline]
pub(crate) fn visit<Place>(
    encoding: Encoding,
    (id, shape): (ParamId, Shape),
    bytes: &[u8],
    into: &mut [Place],
    combine: impl Fn(&mut Place, f32),
) {
    match encoding {
        Encoding::F32 => visit_each(bytes, into, f32::from_le_bytes, combine),
        Encoding::F16 => visit_each(bytes, into, |two| f16::from_le_bytes(two).to_f32(), combine),
        Encoding::Bf16 => visit_each(bytes, into, of_bf16_bytes, combine),
        Encoding::Int8 { .. } => {
            let rows = rows(shape);
            let (scales, bytes) = bytes.split_at(rows * 4);
            let width = into.len() / rows;
            let rows = scales.as_chunks().0.iter().zip(into.chunks_mut(width));
            for ((scale, places), bytes) in rows.zip(bytes.chunks(width)) {
                let scale = f32::from_le_bytes(*scale);
                for (place, byte) in places.iter_mut().zip(bytes) {
                    combine(place, scale * f32::from(byte.cast_signed()));
                }
            }
        }
        Encoding::TopK { share, .. } | Encoding::Pruned { share, .. } => {
            let kept = kept(share, into.len());
            let (places, values) = bytes.split_at(bytes.len() - kept * 4);
            let values = values.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            match Places::of(into.len(), kept) {
                Places::Indices => {
                    for (place, value) in places.as_chunks().0.iter().zip(values) {
                        combine(&mut into[u32::from_le_bytes(*place) as usize], value);
                    }
                }
                Places::Bitmap => {
                    let set = |index: &usize| places[index / 8] >> (index % 8) & 1 == 1;
                    for (index, value) in (0..into.len()).filter(set).zip(values) {
                        combine(&mut into[index], value);
                    }
                }
            }
        }
        Encoding::Heads { of, .. } => {
            let slices = HeadSlices::of(id, shape, of).expect(SLICED);
            let (bits, values) = bytes.split_at(slices.heads.div_ceil(8));
            let mut values = values.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            let set = |head: &usize| bits[head / 8] >> (head % 8) & 1 == 1;
            for range in (0..slices.heads).filter(set).flat_map(|head| slices.places(head)) {
                for (place, value) in into[range].iter_mut().zip(&mut values) {
                    combine(place, value);
                }
            }
        }
    }
}

#[inline]
fn visit_each<Place, const N: usize>(
    bytes: &[u8],
    into: &mut [Place],
    read: impl Fn([u8; N]) -> f32,
    combine: impl Fn(&mut Place, f32),
) {
    for (place, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
        combine(place, read(*bytes));
    }
}

/// The bits of a float without its sign: they order as magnitudes do, with NaN above infinity.
fn magnitude(value: f32) -> u32 {
    value.to_bits() << 1 >> 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{Layer, Part, Role};

    const ID: ParamId = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);

    #[track_caller]
    fn check_back(encoding: Encoding, shape: Shape, values: &[f32], expected: &[f32]) {
        let mut bytes = Vec::new();
        write(encoding, (ID, shape), values, &mut bytes).expect("legal values");
        assert_eq!(bytes.len(), encoding.length(shape));
        check(encoding, (ID, shape), &bytes).expect("just written");
        let mut back = vec![0.0; values.len()];
        visit(encoding, (ID, shape), &bytes, &mut back, |place, value| *place = value);
        assert_eq!(back, expected);
    }

    #[test]
    fn tiny_numbers_come_back_as_each_encoding_can_say_them() {
        let row = Shape::vector(4);
        let values = [0.1, -2.0, 0.0, 65504.0];
        check_back(Encoding::F32, row, &values, &values);
        check_back(Encoding::F16, row, &values, &[0.099_975_586, -2.0, 0.0, 65504.0]);
        check_back(Encoding::Bf16, row, &values, &[0.100_097_656, -2.0, 0.0, 65536.0]);
    }

    #[test]
    fn int8_has_a_scale_for_each_row() {
        let int8 = Encoding::Int8 { feedback: false };
        let values = [127.0, 63.4, -126.6, 0.0, 1.27, -0.635, 0.0, 0.0];
        let steps = [127.0, 63.0, -127.0, 0.0, 127.0, -64.0, 0.0, 0.0];
        let scales = [1.0, 1.27 / 127.0];
        let expected: Vec<f32> = steps
            .iter()
            .zip([scales[0]; 4].iter().chain(&[scales[1]; 4]))
            .map(|(q, s)| s * q)
            .collect();
        check_back(int8, Shape::matrix(2, 4), &values, &expected);
        check_back(int8, Shape::vector(3), &[0.0; 3], &[0.0; 3]);
    }

    #[test]
    fn top_k_keeps_the_largest_and_of_equals_the_first() {
        let top = |share| Encoding::TopK { share, feedback: false };
        check_back(top(0.5), Shape::vector(4), &[1.0, -3.0, 1.0, 0.5], &[1.0, -3.0, 0.0, 0.0]);
        check_back(top(0.01), Shape::vector(4), &[0.0, 0.0, 0.0, 0.0], &[0.0; 4]);
        let mut long = vec![0.001; 1000];
        (long[3], long[999]) = (5.0, -6.0);
        let mut expected = vec![0.0; 1000];
        (expected[3], expected[999]) = (5.0, -6.0);
        check_back(top(0.002), Shape::vector(1000), &long, &expected);
    }

    #[test]
    fn what_would_spoil_a_sum_is_neither_written_nor_read() {
        for found in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -2e15] {
            for encoding in [Encoding::F32, Encoding::F16, Encoding::Bf16] {
                let refused = write(encoding, (ID, Shape::vector(1)), &[found], &mut Vec::new());
                assert!(matches!(refused, Err(WireError::Magnitude { .. })), "{found} {refused:?}");
            }
            let bytes = found.to_le_bytes();
            let read = check(Encoding::F32, (ID, Shape::vector(1)), &bytes);
            assert!(matches!(read, Err(WireError::Magnitude { .. })), "{found} {read:?}");
        }
        let refused = write(Encoding::F16, (ID, Shape::vector(1)), &[70000.0], &mut Vec::new());
        assert_eq!(
            refused.expect_err("past f16").to_string(),
            "head.classifier.weight holds 70000, expected a finite number of magnitude at most 6.5504e4"
        );
    }

    #[test]
    fn hostile_scales_and_places_are_refused() {
        let int8 = Encoding::Int8 { feedback: false };
        let shape = Shape::vector(4);
        for scale in [-1.0, -0.0, f32::NAN, f32::INFINITY, 1e30] {
            let bytes = [&f32::to_le_bytes(scale)[..], &[1; 4]].concat();
            assert!(check(int8, (ID, shape), &bytes).is_err(), "{scale}");
        }
        let long = Shape::vector(1000);
        let top = Encoding::TopK { share: 0.002, feedback: false };
        for indices in [[4_u32, 3], [3, 3], [0, 1000], [u32::MAX, 1]] {
            let bytes = [indices.map(u32::to_le_bytes).concat(), vec![0; 8]].concat();
            let refused = check(top, (ID, long), &bytes);
            assert_eq!(refused, Err(WireError::Places { id: ID, expected: 2 }), "{indices:?}");
        }
        let half = Encoding::TopK { share: 0.5, feedback: false };
        for bitmap in [0b0000_0001, 0b0000_0111, 0b0001_0001] {
            let bytes = [vec![bitmap], vec![0; 8]].concat();
            let refused = check(half, (ID, shape), &bytes);
            assert_eq!(refused, Err(WireError::Places { id: ID, expected: 2 }), "{bitmap:b}");
        }
    }
}
