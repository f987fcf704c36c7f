//! SHA-256 of sixteen messages side by side, for processors with wide registers and no instruction for it.
//!
//! One message's rounds depend on each other, so a processor without such an instruction spends most of its
//! time waiting. Sixteen messages have nothing to do with each other: word by word, each in a lane of its own,
//! they take a sixth of the time that `ring` takes for one after the other, and a tenth of `sha2`'s
//! (FIPS 180-4 has the function).

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_epi8, _mm512_ror_epi32, _mm512_set1_epi32,
    _mm512_set4_epi32, _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_srli_epi32,
    _mm512_storeu_epi32, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

/// Messages side by side.
const LANES: usize = 16;
/// With fewer of them one after the other is as fast.
const WORTH: usize = 6;
/// Bytes of a block.
const BLOCK: usize = 64;

/// First 32 bits of the fractional parts of the square roots of the first 8 primes.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUND_CONSTANTS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5,
    0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3,
    0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc,
    0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7,
    0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13,
    0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3,
    0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5,
    0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208,
    0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// The state of sixteen messages, a lane each.
type State = [__m512i; 8];

/// The digests of as many of the first messages as are done faster side by side, on this processor; all others
/// are left to the caller. A message is what comes first and the rest, which is not copied.
pub fn digests_side_by_side(messages: &[(&[u8], &[u8])]) -> Vec<[u8; 32]> {
    use std::is_x86_feature_detected as has;
    if has!("sha") || !has!("avx512f") || !has!("avx512bw") {
        return Vec::new();
    }
    let groups = messages.chunks(LANES).take_while(|group| group.len() >= WORTH);
    // SAFETY: the processor has just said that it has AVX-512 in both parts, and nothing else is asked of the
    // caller.
    groups.flat_map(|group| unsafe { digests(group) }).collect()
}

/// A message as blocks: those of its beginning, which are copied, those of the rest, and its end with the padding.
struct Blocks<'a> {
    begin: Vec<u8>,
    rest: &'a [u8],
    end: Vec<u8>,
}

impl<'a> Blocks<'a> {
    fn new(first: &[u8], rest: &'a [u8]) -> Self {
        let bits = 8 * (first.len() + rest.len()) as u64;
        let missing = first.len().next_multiple_of(BLOCK) - first.len();
        let (filling, rest) = rest.split_at(missing.min(rest.len()));
        let mut begin = [first, filling].concat();
        let mut end = begin.split_off(begin.len() / BLOCK * BLOCK);
        let (rest, left) = rest.split_at(rest.len() / BLOCK * BLOCK);
        end.extend(left);
        end.push(0x80);
        end.resize((end.len() + 8).next_multiple_of(BLOCK) - 8, 0);
        end.extend(bits.to_be_bytes());
        Self { begin, rest, end }
    }

    fn len(&self) -> usize {
        (self.begin.len() + self.rest.len() + self.end.len()) / BLOCK
    }

    /// A block of it, and beyond its end any: somebody else's lane still runs.
    fn get(&self, place: usize) -> &[u8; BLOCK] {
        let parts = [&self.begin, self.rest, &self.end];
        let mut place = place;
        for part in parts {
            if let Some(block) = part.as_chunks().0.get(place) {
                return block;
            }
            place -= (part.len() / BLOCK).min(place);
        }
        const { &[0; BLOCK] }
    }
}

/// The digests of at most sixteen messages.
#[target_feature(enable = "avx512f,avx512bw")]
fn digests(messages: &[(&[u8], &[u8])]) -> Vec<[u8; 32]> {
    let messages: Vec<Blocks<'_>> =
        messages.iter().map(|(first, rest)| Blocks::new(first, rest)).collect();
    let longest = messages.iter().map(Blocks::len).max().unwrap_or_default();
    let mut state = INITIAL.map(|word| _mm512_set1_epi32(word.cast_signed()));
    let mut digests = vec![[0; 32]; messages.len()];
    for place in 0..longest {
        // Lanes without a message repeat the last one.
        let blocks: [&[u8; BLOCK]; LANES] =
            std::array::from_fn(|lane| messages[lane.min(messages.len() - 1)].get(place));
        compress(&mut state, blocks);
        for (lane, message) in messages.iter().enumerate() {
            if place + 1 == message.len() {
                digests[lane] = digest(&state, lane);
            }
        }
    }
    digests
}

/// The digest in a lane.
#[target_feature(enable = "avx512f")]
fn digest(state: &State, lane: usize) -> [u8; 32] {
    let mut digest = [0; 32];
    for (bytes, words) in digest.as_chunks_mut().0.iter_mut().zip(state) {
        let mut lanes = [0_u32; LANES];
        // SAFETY: there is room for sixteen words.
        unsafe { _mm512_storeu_epi32(lanes.as_mut_ptr().cast(), *words) };
        *bytes = lanes[lane].to_be_bytes();
    }
    digest
}

/// One more block of each message.
#[target_feature(enable = "avx512f,avx512bw")]
fn compress(state: &mut State, blocks: [&[u8; BLOCK]; LANES]) {
    let mut w = words(blocks);
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for turn in 0..4 {
        for i in 0..16 {
            if turn > 0 {
                let (x, y) = (w[(i + 1) % 16], w[(i + 14) % 16]);
                let low = xor(
                    _mm512_ror_epi32::<7>(x),
                    _mm512_ror_epi32::<18>(x),
                    _mm512_srli_epi32::<3>(x),
                );
                let high = xor(
                    _mm512_ror_epi32::<17>(y),
                    _mm512_ror_epi32::<19>(y),
                    _mm512_srli_epi32::<10>(y),
                );
                w[i] = add(add(w[i], low), add(w[(i + 9) % 16], high));
            }
            let constant = _mm512_set1_epi32(ROUND_CONSTANTS[16 * turn + i].cast_signed());
            let sum =
                xor(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e));
            let choice = _mm512_ternarylogic_epi32::<0xca>(e, f, g);
            let first = add(add(h, add(w[i], constant)), add(sum, choice));
            let sum =
                xor(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a));
            let majority = _mm512_ternarylogic_epi32::<0xe8>(a, b, c);
            (h, g, f, e) = (g, f, e, add(d, first));
            (d, c, b, a) = (c, b, a, add(first, add(sum, majority)));
        }
    }
    for (state, change) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *state = add(*state, change);
    }
}

#[target_feature(enable = "avx512f")]
fn add(x: __m512i, y: __m512i) -> __m512i {
    _mm512_add_epi32(x, y)
}

#[target_feature(enable = "avx512f")]
fn xor(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(x, y, z)
}

/// The words of sixteen blocks: in the first register the first word of each, and so on.
#[target_feature(enable = "avx512f,avx512bw")]
fn words(blocks: [&[u8; BLOCK]; LANES]) -> [__m512i; 16] {
    let big_endian = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let rows = blocks.map(|block| {
        // SAFETY: there are sixty-four bytes.
        let row = unsafe { _mm512_loadu_epi8(block.as_ptr().cast()) };
        _mm512_shuffle_epi8(row, big_endian)
    });
    let mut pairs = rows;
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // In each quarter of a register four rows of one word.
    let mut fours = pairs;
    for i in (0..16).step_by(4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    let mut words = fours;
    for i in 0..4 {
        let front = [
            _mm512_shuffle_i32x4::<0x44>(fours[i], fours[4 + i]),
            _mm512_shuffle_i32x4::<0x44>(fours[8 + i], fours[12 + i]),
        ];
        let back = [
            _mm512_shuffle_i32x4::<0xee>(fours[i], fours[4 + i]),
            _mm512_shuffle_i32x4::<0xee>(fours[8 + i], fours[12 + i]),
        ];
        words[i] = _mm512_shuffle_i32x4::<0x88>(front[0], front[1]);
        words[4 + i] = _mm512_shuffle_i32x4::<0xdd>(front[0], front[1]);
        words[8 + i] = _mm512_shuffle_i32x4::<0x88>(back[0], back[1]);
        words[12 + i] = _mm512_shuffle_i32x4::<0xdd>(back[0], back[1]);
    }
    words
}

#[cfg(test)]
mod tests {
    use fedra_plan::Digest;

    use super::*;

    /// Around the ends of blocks, with and without room for the length behind them.
    const LENGTHS: [usize; 13] = [0, 1, 20, 44, 55, 56, 63, 64, 65, 119, 120, 128, 1000];

    #[test]
    fn messages_of_all_lengths_side_by_side_have_their_own_digests() {
        use std::is_x86_feature_detected as has;
        if !has!("avx512f") || !has!("avx512bw") {
            eprintln!("skipped: this processor has no AVX-512");
            return;
        }
        let bytes: Vec<u8> = (0..3000_u32).map(|place| (place * place / 7) as u8).collect();
        let pairs = LENGTHS.iter().flat_map(|first| LENGTHS.map(|rest| (*first, rest)));
        let messages: Vec<(&[u8], &[u8])> =
            pairs.map(|(first, rest)| (&bytes[..first], &bytes[first..][..rest])).collect();
        for count in [1, 5, LANES] {
            for group in messages.chunks(count) {
                // SAFETY: the processor has AVX-512.
                let found = unsafe { digests(group) };
                assert_eq!(found.len(), group.len());
                for (found, (first, rest)) in found.iter().zip(group) {
                    let expected = Digest::of(&[*first, *rest].concat());
                    assert_eq!(found, expected.as_bytes(), "{} and {}", first.len(), rest.len());
                }
            }
        }
        let done = |count: usize| digests_side_by_side(&messages[..count]).len();
        let worth = |count| if has!("sha") { 0 } else { count };
        assert_eq!(done(LANES + WORTH), worth(LANES + WORTH));
        assert_eq!(done(LANES + WORTH - 1), worth(LANES), "the last ones are not worth it");
        assert_eq!((done(0), done(WORTH - 1)), (0, 0));
    }
}
