//! bf16: the upper half of an f32, so reading is a shift and writing rounds to nearest, ties to even.

use super::simd::vectorised;

vectorised! {
    /// Each bf16 as the f32 it stands for; exact.
    pub fn widen(into: &mut [f32], from: &[u16]) {
        for (into, half) in into.iter_mut().zip(from) {
            *into = f32::from_bits(u32::from(*half) << 16);
        }
    }
}

vectorised! {
    /// The nearest bf16 of each f32; not-a-number stays not-a-number.
    pub fn narrow(into: &mut [u16], from: &[f32]) {
        for (into, x) in into.iter_mut().zip(from) {
            let bits = x.to_bits();
            let to_even = 0x7fff + (bits >> 16 & 1);
            let rounded = (bits.wrapping_add(to_even) >> 16) as u16;
            // The payload could be rounded away, which would leave an infinity.
            let quiet = (bits >> 16) as u16 | 0x0040;
            *into = if x.is_nan() { quiet } else { rounded };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_with_ties_to_even_and_keeps_what_is_no_number() {
        let cases: [(u32, u16); 8] = [
            (0x3f80_0000, 0x3f80), // 1
            (0x3f80_8000, 0x3f80), // a tie goes down to even
            (0x3f81_8000, 0x3f82), // a tie goes up to even
            (0x3f80_8001, 0x3f81), // just above a tie
            (0x7f7f_ffff, 0x7f80), // the largest f32 becomes infinity
            (0xff80_0000, 0xff80), // minus infinity
            (0x7f80_0001, 0x7fc0), // a quiet not-a-number
            (0x8000_0000, 0x8000), // minus zero
        ];
        for (bits, expected) in cases {
            let mut found = [0];
            narrow(&mut found, &[f32::from_bits(bits)]);
            assert_eq!(found[0], expected, "{bits:#010x}");
        }
    }

    #[test]
    fn every_bf16_survives_the_way_through_f32() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let (mut wide, mut back) = (vec![0.0; all.len()], vec![0; all.len()]);
        widen(&mut wide, &all);
        narrow(&mut back, &wide);
        for (before, after) in all.into_iter().zip(back) {
            let nan = f32::from_bits(u32::from(before) << 16).is_nan();
            assert_eq!(after, if nan { before | 0x0040 } else { before });
        }
    }
}
