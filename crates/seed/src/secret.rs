//! Randomness that nobody can predict without its key: `ChaCha20` (RFC 8439), and draws from it.
//!
//! Noise that protects somebody has to be such: who could predict a draw could subtract it. A key
//! names everything below it, as a seed does, so a draw belongs to its place (client, round, step,
//! parameter) and not to what was drawn before; no place is used twice.

#![expect(
    clippy::inline_always,
    reason = "a function is compiled for a processor only as far as it is inlined into the entry for it"
)]

use std::fmt;

use crate::Seed;

/// Blocks that are computed side by side, one in each lane.
pub(crate) const LANES: usize = 16;
/// One word of all blocks.
pub(crate) type Lane = [u32; LANES];

/// 256 secret bits.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub(crate) [u32; 8]);

impl SecretKey {
    /// From bytes of a good source, such as the operating system.
    pub fn new(bytes: [u8; 32]) -> Self {
        let mut words = [0; 8];
        for (word, four) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
        Self(words)
    }

    /// For a simulation that has to be repeatable. It is as secret as the seed, which is in the
    /// experiment: noise from it protects nobody who would not be protected without it.
    pub fn simulated(seed: Seed) -> Self {
        let word = |number: u64| {
            let mixed = seed.of("simulated key").with(number).0;
            [mixed as u32, (mixed >> 32) as u32]
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(word);
        Self([a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]])
    }

    /// The key for a purpose.
    #[must_use]
    pub fn of(&self, purpose: &str) -> Self {
        self.derived(1, Seed(0).of(purpose).0)
    }

    /// The key for a numbered thing: a client, a round, a step, a parameter.
    #[must_use]
    pub fn with(&self, number: u64) -> Self {
        self.derived(2, number)
    }

    /// The key for what is computed from this input, such as a digest of it: who computes the same again
    /// draws the same, and who computes anything else draws something else.
    #[must_use]
    pub fn over(&self, input: &[u8; 32]) -> Self {
        let (words, _) = input.as_chunks::<8>();
        words.iter().fold(self.derived(5, 0), |key, word| key.derived(5, u64::from_le_bytes(*word)))
    }

    /// Uniform draws from [0, 1), as many as asked for.
    pub fn uniforms(&self) -> impl Iterator<Item = f64> + use<> {
        let key = self.clone();
        (0_u32..).flat_map(move |number| {
            let block = one_block(&key.0, [3, 0, 0], number);
            let pair = |two: &[u32]| (u64::from(two[1]) << 32) | u64::from(two[0]);
            let eight: Vec<f64> = block
                .chunks_exact(2)
                .map(|two| (pair(two) >> 11) as f64 / (1_u64 << 53) as f64)
                .collect();
            eight
        })
    }

    /// The key itself, for a device that draws from its stream; as secret as the key.
    pub fn words(&self) -> [u32; 8] {
        self.0
    }

    fn derived(&self, domain: u32, number: u64) -> Self {
        let block = one_block(&self.0, [domain, number as u32, (number >> 32) as u32], 0);
        let mut words = [0; 8];
        words.copy_from_slice(&block[..8]);
        Self(words)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey(..)")
    }
}

/// A block of the key's stream.
fn one_block(key: &[u32; 8], nonce: [u32; 3], counter: u32) -> [u32; 16] {
    blocks(key, nonce, counter).map(|words| words[0])
}

/// Sixteen blocks of the key's stream, from a counter on: word by word, a lane for each block.
#[inline(always)]
pub(crate) fn blocks(key: &[u32; 8], nonce: [u32; 3], counter: u32) -> [Lane; 16] {
    const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646E, 0x7962_2D32, 0x6B20_6574];
    let [a, b, c, d] = CONSTANTS;
    let [e, f, g, h, i, j, k, l] = *key;
    let [m, n, o] = nonce;
    let start = [a, b, c, d, e, f, g, h, i, j, k, l, counter, m, n, o];
    let mut state = [[0; LANES]; 16];
    add(&mut state, start);
    for _ in 0..10 {
        quarter(&mut state, [0, 4, 8, 12]);
        quarter(&mut state, [1, 5, 9, 13]);
        quarter(&mut state, [2, 6, 10, 14]);
        quarter(&mut state, [3, 7, 11, 15]);
        quarter(&mut state, [0, 5, 10, 15]);
        quarter(&mut state, [1, 6, 11, 12]);
        quarter(&mut state, [2, 7, 8, 13]);
        quarter(&mut state, [3, 4, 9, 14]);
    }
    add(&mut state, start);
    state
}

/// Adds a block to the blocks of all lanes, each of which has a counter of its own.
#[inline(always)]
fn add(state: &mut [Lane; 16], start: [u32; 16]) {
    add_four(state, &start, [0, 1, 2, 3]);
    add_four(state, &start, [4, 5, 6, 7]);
    add_four(state, &start, [8, 9, 10, 11]);
    add_four(state, &start, [12, 13, 14, 15]);
    for (lane, counter) in state[12].iter_mut().enumerate() {
        *counter = counter.wrapping_add(lane as u32);
    }
}

/// Four words at a time, as in a quarter: in a loop over all words the compiler gathers words across lanes,
/// which takes twice as long.
#[inline(always)]
fn add_four(state: &mut [Lane; 16], start: &[u32; 16], [a, b, c, d]: [usize; 4]) {
    let (mut wa, mut wb, mut wc, mut wd) = (state[a], state[b], state[c], state[d]);
    for lane in 0..LANES {
        wa[lane] = wa[lane].wrapping_add(start[a]);
        wb[lane] = wb[lane].wrapping_add(start[b]);
        wc[lane] = wc[lane].wrapping_add(start[c]);
        wd[lane] = wd[lane].wrapping_add(start[d]);
    }
    (state[a], state[b], state[c], state[d]) = (wa, wb, wc, wd);
}

#[inline(always)]
fn quarter(state: &mut [Lane; 16], [a, b, c, d]: [usize; 4]) {
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
    fn a_block_is_that_of_the_standard() {
        // RFC 8439, 2.3.2: key 00 01 .. 1f, nonce 00 00 00 09 00 00 00 4a 00 00 00 00, counter 1.
        let bytes: Vec<u8> = (0..32).collect();
        let key = SecretKey::new(bytes.try_into().unwrap());
        let block = one_block(&key.0, [0x0900_0000, 0x4A00_0000, 0], 1);
        assert_eq!(block[..4], [0xE4E7_F110, 0x1559_3BD1, 0x1FDD_0F50, 0xC471_20A3]);
        assert_eq!(block[12..], [0xD19C_12B5, 0xB94E_16DE, 0xE883_D0CB, 0x4E3C_50A2]);
        // Every lane is the block of its counter.
        let many = blocks(&key.0, [0x0900_0000, 0x4A00_0000, 0], 0);
        assert_eq!(many.map(|words| words[1]), block);
    }

    #[test]
    fn keys_for_different_things_differ_and_show_nothing() {
        let key = SecretKey::simulated(Seed(1));
        let mut all = vec![key.clone(), key.of("a"), key.of("b"), key.of("a").of("b")];
        all.extend((0..100).map(|number| key.with(number)));
        for (place, one) in all.iter().enumerate() {
            assert!(!all[..place].contains(one));
        }
        assert_eq!(format!("{key:?}"), "SecretKey(..)");
        assert_ne!(SecretKey::simulated(Seed(2)), key);
    }

    #[test]
    fn uniform_draws_fill_the_unit_interval_evenly() {
        let draws: Vec<f64> = SecretKey::simulated(Seed(3)).uniforms().take(100_000).collect();
        let mut tenths = [0; 10];
        for draw in draws {
            tenths[(draw * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (9_600..10_400).contains(count)), "{tenths:?}");
    }
}
