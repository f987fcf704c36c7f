//! The passes, written once.
//!
//! Everything here is plain safe code that a compiler turns into vector instructions; `dispatch`
//! compiles it for each kind of processor. Sums are a product and an addition, each rounded, so
//! the bits do not depend on which of them runs, nor on the order in which quarters are visited.

use super::lanes::{LINE, Lanes};
use super::prefetch::prefetch;

/// No trained parameter, and no change of one, comes near this. Sums over billions of examples of
/// values below it stay finite in f32, which those of merely finite values would not.
pub const LIMIT: f32 = 1e15;
/// Quarters of a run that are visited in turn.
const STREAMS: usize = 4;
/// Lines that are worked on while they are in registers and in the nearest cache.
const LINES: usize = 8;
const GROUP: usize = LINES * LINE;
/// How far ahead of the work memory is asked for, in groups.
const AHEAD: usize = 4;

type Group = [u8; GROUP];

/// What a pass over numbers found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inspected {
    /// The sums for the checksum.
    pub lanes: Lanes,
    /// The first number that must not be summed.
    pub excess: Option<Excess>,
}

/// A number that is NaN, infinite or above [`LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excess {
    /// Its place among the numbers.
    pub index: usize,
    /// The number.
    pub value: f32,
}

/// The sums of some bytes, for their checksum.
#[inline(always)]
pub(crate) fn lanes(bytes: &[u8]) -> Lanes {
    let (groups, rest) = bytes.as_chunks::<GROUP>();
    let (streams, beyond) = quarters(groups);
    let mut sums = [Lanes::default(); STREAMS];
    for at in 0..streams[0].len() {
        for (sums, stream) in sums.iter_mut().zip(streams) {
            prefetch(stream, at + AHEAD);
            sums.take(stream[at].as_chunks().0);
        }
    }
    joined(sums).then(lanes_in_turn(beyond.as_flattened(), rest))
}

/// The sums of some numbers' bytes, and the first number that is too large.
#[inline(always)]
pub(crate) fn inspect(bytes: &[u8]) -> Inspected {
    let (groups, rest) = bytes.as_chunks::<GROUP>();
    let (streams, beyond) = quarters(groups);
    let mut sums = [Lanes::default(); STREAMS];
    let mut first = First(None);
    for at in 0..streams[0].len() {
        for (number, (sums, stream)) in sums.iter_mut().zip(streams).enumerate() {
            prefetch(stream, at + AHEAD);
            sums.take(stream[at].as_chunks().0);
            if exceeds(&stream[at]) {
                first.note(number * stream.len() + at, &stream[at]);
            }
        }
    }
    for (at, group) in beyond.iter().enumerate() {
        first.note(groups.len() - beyond.len() + at, group);
    }
    first.note(groups.len(), rest);
    let lanes = joined(sums).then(lanes_in_turn(beyond.as_flattened(), rest));
    Inspected { lanes, excess: first.0 }
}

/// Inspects an update, takes the sum of its squares if it is to be measured, and puts `sum + weight * update` in its
/// place.
#[inline(always)]
pub(crate) fn merge(
    update: &mut [u8],
    sum: &[u8],
    weight: f32,
    measures: bool,
) -> (Inspected, f64) {
    assert_eq!(update.len(), sum.len(), "an update beside the sum of its like");
    let count = update.len() / GROUP;
    let (groups, rest) = update.as_chunks_mut::<GROUP>();
    let (sum_groups, sum_rest) = sum.as_chunks::<GROUP>();
    let (mut streams, beyond) = quarters_mut(groups);
    let (sum_streams, sum_beyond) = quarters(sum_groups);
    let mut sums = [Lanes::default(); STREAMS];
    let mut squares = [Squares::default(); STREAMS];
    let mut first = First(None);
    for at in 0..sum_streams[0].len() {
        for number in 0..STREAMS {
            let (stream, sum_stream) = (&mut streams[number], sum_streams[number]);
            prefetch(stream, at + AHEAD);
            prefetch(sum_stream, at + AHEAD);
            sums[number].take(stream[at].as_chunks().0);
            if measures {
                squares[number].take(&stream[at]);
            }
            if exceeds(&stream[at]) {
                first.note(number * stream.len() + at, &stream[at]);
            }
            combine(&mut stream[at], &sum_stream[at], |update, sum| sum + weight * update);
        }
    }
    for (at, group) in beyond.iter().enumerate() {
        first.note(count - beyond.len() + at, group);
    }
    first.note(count, rest);
    let squares = Squares::total(&squares, beyond, rest);
    let lanes = joined(sums).then(lanes_in_turn(beyond.as_flattened(), rest));
    let last = beyond.as_flattened_mut();
    combine(last, sum_beyond.as_flattened(), |update, sum| sum + weight * update);
    combine(rest, sum_rest, |update, sum| sum + weight * update);
    (Inspected { lanes, excess: first.0 }, squares)
}

/// Adds an update, times its weight, to a sum.
#[inline(always)]
pub(crate) fn add(sum: &mut [u8], update: &[u8], weight: f32) {
    assert_eq!(update.len(), sum.len(), "an update beside the sum of its like");
    let (groups, rest) = sum.as_chunks_mut::<GROUP>();
    let (update_groups, update_rest) = update.as_chunks::<GROUP>();
    let (mut streams, beyond) = quarters_mut(groups);
    let (update_streams, update_beyond) = quarters(update_groups);
    for at in 0..update_streams[0].len() {
        for (stream, update_stream) in streams.iter_mut().zip(update_streams) {
            prefetch(stream, at + AHEAD);
            prefetch(update_stream, at + AHEAD);
            combine(&mut stream[at], &update_stream[at], |sum, update| sum + weight * update);
        }
    }
    let last = beyond.as_flattened_mut();
    combine(last, update_beyond.as_flattened(), |sum, update| sum + weight * update);
    combine(rest, update_rest, |sum, update| sum + weight * update);
}

/// Divides numbers where they are.
#[inline(always)]
pub(crate) fn divide(numbers: &mut [u8], divisor: f32) {
    let (groups, rest) = numbers.as_chunks_mut::<GROUP>();
    let (mut streams, beyond) = quarters_mut(groups);
    for at in 0..streams[0].len() {
        for stream in &mut streams {
            prefetch(stream, at + AHEAD);
            replace(&mut stream[at], |number| number / divisor);
        }
    }
    replace(beyond.as_flattened_mut(), |number| number / divisor);
    replace(rest, |number| number / divisor);
}

/// The sum of squares of numbers, in f64: the same bits everywhere, and as [`merge`] finds it.
#[inline(always)]
pub(crate) fn squares(bytes: &[u8]) -> f64 {
    let (groups, rest) = bytes.as_chunks::<GROUP>();
    let (streams, beyond) = quarters(groups);
    let mut squares = [Squares::default(); STREAMS];
    for at in 0..streams[0].len() {
        for (squares, stream) in squares.iter_mut().zip(streams) {
            prefetch(stream, at + AHEAD);
            squares.take(&stream[at]);
        }
    }
    Squares::total(&squares, beyond, rest)
}

/// Four runs of equal length, and what is left.
#[inline(always)]
fn quarters(groups: &[Group]) -> ([&[Group]; STREAMS], &[Group]) {
    let each = groups.len() / STREAMS;
    let (a, rest) = groups.split_at(each);
    let (b, rest) = rest.split_at(each);
    let (c, rest) = rest.split_at(each);
    let (d, rest) = rest.split_at(each);
    ([a, b, c, d], rest)
}

#[inline(always)]
fn quarters_mut(groups: &mut [Group]) -> ([&mut [Group]; STREAMS], &mut [Group]) {
    let each = groups.len() / STREAMS;
    let (a, rest) = groups.split_at_mut(each);
    let (b, rest) = rest.split_at_mut(each);
    let (c, rest) = rest.split_at_mut(each);
    let (d, rest) = rest.split_at_mut(each);
    ([a, b, c, d], rest)
}

/// The sums of the quarters' bytes end to end.
fn joined([a, b, c, d]: [Lanes; STREAMS]) -> Lanes {
    a.then(b).then(c).then(d)
}

/// The sums of the few bytes behind the quarters.
fn lanes_in_turn(whole: &[u8], rest: &[u8]) -> Lanes {
    let mut sums = Lanes::default();
    sums.take(whole.as_chunks().0);
    let (lines, loose) = rest.as_chunks();
    sums.take(lines);
    sums.take_loose(loose);
    sums
}

/// Whether a number is too large: without a branch, and in integers, where NaN is a large number.
#[inline(always)]
fn exceeds(group: &Group) -> bool {
    const ROOM: u32 = i32::MAX.cast_unsigned() - LIMIT.to_bits();
    let mut seen = [0; LINE / 4];
    for line in group.as_chunks::<LINE>().0 {
        for (seen, number) in seen.iter_mut().zip(line.as_chunks().0) {
            // The uppermost bit is set by what goes past the limit, and by nothing else.
            *seen |= (u32::from_le_bytes(*number) & i32::MAX.cast_unsigned()) + ROOM;
        }
    }
    seen.iter().fold(0, |all, seen| all | seen) >> 31 == 1
}

/// The first number that is too large.
struct First(Option<Excess>);

impl First {
    /// Looks through the group with this number.
    #[cold]
    #[inline(never)]
    fn note(&mut self, group: usize, bytes: &[u8]) {
        let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let legal = |value: f32| value.abs() <= LIMIT;
        let found = values.enumerate().find(|(_, value)| !legal(*value));
        let found = found.map(|(at, value)| Excess { index: group * (GROUP / 4) + at, value });
        let earlier = |new: &Excess| self.0.is_none_or(|old| new.index < old.index);
        self.0 = found.filter(earlier).or(self.0);
    }
}

/// A sum of squares in lanes.
#[derive(Clone, Copy, Default)]
struct Squares([f64; 16]);

impl Squares {
    /// Adds those of a group.
    #[inline(always)]
    fn take(&mut self, group: &Group) {
        let Self(mut lanes) = *self;
        for run in group.as_chunks::<4>().0.as_chunks::<16>().0 {
            for (lane, number) in lanes.iter_mut().zip(run) {
                *lane += square(number);
            }
        }
        self.0 = lanes;
    }

    /// All together, with what is behind the quarters.
    #[inline(always)]
    fn total(quarters: &[Self; STREAMS], beyond: &[Group], rest: &[u8]) -> f64 {
        let mut behind = Self::default();
        for group in beyond {
            behind.take(group);
        }
        let lanes = quarters.iter().chain([&behind]).flat_map(|squares| squares.0);
        lanes.sum::<f64>() + rest.as_chunks().0.iter().map(square).sum::<f64>()
    }
}

#[inline(always)]
fn square(number: &[u8; 4]) -> f64 {
    let number = f64::from(f32::from_le_bytes(*number));
    number * number
}

/// Combines each number with its counterpart in the other run.
#[inline(always)]
fn combine(into: &mut [u8], other: &[u8], with: impl Fn(f32, f32) -> f32) {
    for (place, other) in into.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0) {
        *place = with(f32::from_le_bytes(*place), f32::from_le_bytes(*other)).to_le_bytes();
    }
}

/// Replaces each number.
#[inline(always)]
fn replace(numbers: &mut [u8], with: impl Fn(f32) -> f32) {
    for place in numbers.as_chunks_mut().0 {
        *place = with(f32::from_le_bytes(*place)).to_le_bytes();
    }
}
