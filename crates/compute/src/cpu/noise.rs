//! Gaussian noise from ChaCha20, many blocks at a time.
//!
//! Block `n` of a stream is 16 words of ChaCha20 with the block's number as its counter, so a number
//! depends on its place alone and never on threads. Pairs of words become pairs of normal numbers by the
//! method of Box and Muller; the radius comes from all 32 bits, so tails reach 6.7 deviations.
//!
//! A private step draws one number for every trained weight, more than twenty million for a small
//! encoder: one at a time that would take as long as the step.

use super::math;
use super::simd::vectorised;
use crate::thread_pool;

/// Blocks that are computed side by side, one per lane.
const LANES: usize = 16;
/// Words of a block.
const WORDS: usize = 16;
/// Numbers made at once.
const BATCH: usize = LANES * WORDS;
/// Numbers per task.
const RUN: usize = 64 * BATCH;

/// `x += deviation * normal`, from one stream of a key.
pub fn add(x: &mut [f32], deviation: f32, (key, stream): (&[u32; 8], u64)) {
    thread_pool::each_chunk(x, RUN, |task, x| {
        let first = (task * RUN / WORDS) as u64;
        add_run(x, deviation, key, stream, first);
    });
}

vectorised! {
    fn add_run(x: &mut [f32], deviation: f32, key: &[u32; 8], stream: u64, first: u64) {
        for (batch, x) in x.chunks_mut(BATCH).enumerate() {
            let words = blocks(key, stream, first + (batch * LANES) as u64);
            let mut normal = [[0.0; LANES]; WORDS];
            for pair in 0..WORDS / 2 {
                for lane in 0..LANES {
                    let (radius, turn) = (words[2 * pair][lane], words[2 * pair + 1][lane]);
                    let (a, b) = normal_pair(radius, turn);
                    normal[2 * pair][lane] = a;
                    normal[2 * pair + 1][lane] = b;
                }
            }
            for (x, normal) in x.iter_mut().zip(normal.as_flattened()) {
                *x = normal.mul_add(deviation, *x);
            }
        }
    }
}

/// Two independent normal numbers from 64 random bits.
#[expect(
    clippy::inline_always,
    reason = "a call inside a loop would keep it from being vectorised"
)]
#[inline(always)]
fn normal_pair(radius: u32, turn: u32) -> (f32, f32) {
    const UNIT: f32 = 1.0 / 4_294_967_296.0;
    // In (0, 1]: half a step away from zero.
    let uniform = (radius as f32 + 0.5) * UNIT;
    let radius = (-2.0 * math::ln(uniform)).max(0.0).sqrt();
    let (sin, cos) = math::sin_cos_turn(turn);
    (radius * cos, radius * sin)
}

/// Sixteen neighbouring blocks; word by word, one lane for each block.
#[expect(clippy::inline_always, reason = "it is compiled for the widest vectors of its caller")]
#[inline(always)]
fn blocks(key: &[u32; 8], stream: u64, first: u64) -> [[u32; LANES]; WORDS] {
    let mut start = [[0; LANES]; WORDS];
    let constants = [0x6170_7865, 0x3320_646E, 0x7962_2D32, 0x6B20_6574];
    for (word, value) in constants.iter().chain(key).enumerate() {
        start[word] = [*value; LANES];
    }
    for lane in 0..LANES {
        let counter = first.wrapping_add(lane as u64);
        start[12][lane] = counter as u32;
        start[13][lane] = (counter >> 32) as u32;
    }
    start[14] = [stream as u32; LANES];
    start[15] = [(stream >> 32) as u32; LANES];
    let mut state = start;
    for _ in 0..10 {
        for [a, b, c, d] in [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]] {
            quarter(&mut state, [a, b, c, d]);
        }
        for [a, b, c, d] in [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]] {
            quarter(&mut state, [a, b, c, d]);
        }
    }
    for (word, start) in state.iter_mut().zip(&start) {
        for lane in 0..LANES {
            word[lane] = word[lane].wrapping_add(start[lane]);
        }
    }
    state
}

/// A quarter round in every lane.
#[expect(clippy::inline_always, reason = "it is compiled for the widest vectors of its caller")]
#[inline(always)]
fn quarter(state: &mut [[u32; LANES]; WORDS], [a, b, c, d]: [usize; 4]) {
    let (mut wa, mut wb, mut wc, mut wd) = (state[a], state[b], state[c], state[d]);
    for lane in 0..LANES {
        wa[lane] = wa[lane].wrapping_add(wb[lane]);
        wd[lane] = (wd[lane] ^ wa[lane]).rotate_left(16);
        wc[lane] = wc[lane].wrapping_add(wd[lane]);
        wb[lane] = (wb[lane] ^ wc[lane]).rotate_left(12);
        wa[lane] = wa[lane].wrapping_add(wb[lane]);
        wd[lane] = (wd[lane] ^ wa[lane]).rotate_left(8);
        wc[lane] = wc[lane].wrapping_add(wd[lane]);
        wb[lane] = (wb[lane] ^ wc[lane]).rotate_left(7);
    }
    (state[a], state[b], state[c], state[d]) = (wa, wb, wc, wd);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_of_a_zero_key_is_the_published_one() {
        // RFC 8439, appendix A.1, vectors 1 and 2.
        let words = blocks(&[0; 8], 0, 0);
        let block = |lane: usize| [0, 1, 2, 15].map(|word: usize| words[word][lane]);
        assert_eq!(block(0), [0xade0_b876, 0x903d_f1a0, 0xe56a_5d40, 0x8665_eeb2]);
        assert_eq!(block(1), [0xbee7_079f, 0x7a38_5155, 0x7c97_ba98, 0x0d08_2d73]);
    }

    #[test]
    fn a_number_depends_on_its_place_and_not_on_how_many_are_drawn() {
        let draw = |count: usize| {
            let mut x = vec![0.0; count];
            add(&mut x, 1.0, (&[7; 8], 3));
            x
        };
        let all = draw(2 * RUN + 300);
        for count in [1, 255, 257, RUN, RUN + 1] {
            assert!(draw(count) == all[..count], "{count}");
        }
    }

    #[test]
    fn draws_are_normal_and_streams_differ() {
        let count = if cfg!(miri) { 1000 } else { 1 << 20 };
        let draw = |stream| {
            let mut x = vec![0.0f32; count];
            add(&mut x, 2.0, (&[1, 2, 3, 4, 5, 6, 7, 8], stream));
            x.into_iter().map(|x| f64::from(x) / 2.0).collect::<Vec<_>>()
        };
        let (x, y) = (draw(0), draw(1));
        let n = count as f64;
        let moment = |power: i32| x.iter().map(|x| x.powi(power)).sum::<f64>() / n;
        // Five deviations of each estimate.
        let near = |found: f64, expected: f64, variance: f64| {
            assert!((found - expected).abs() < 5.0 * (variance / n).sqrt(), "{found} {expected}");
        };
        near(moment(1), 0.0, 1.0);
        near(moment(2), 1.0, 2.0);
        near(moment(3), 0.0, 15.0);
        near(moment(4), 3.0, 96.0);
        near(x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>() / n, 0.0, 1.0);
        near(x.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / n, 0.0, 1.0);
        for (limit, share) in
            [(0.5, 0.617_075), (1.0, 0.317_311), (2.0, 0.045_500), (3.0, 0.002_700)]
        {
            let beyond = x.iter().filter(|x| x.abs() > limit).count() as f64 / n;
            near(beyond, share, share * (1.0 - share));
        }
    }
}
