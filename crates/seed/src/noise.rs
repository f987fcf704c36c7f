//! Normal noise from a secret key, onto numbers where they are.
//!
//! Box and Muller's pairs, sixteen at a time: the radius from 64 random bits, so that tails reach
//! 9.4 deviations, the angle from 32. A draw depends on the key and on the place of its number alone,
//! so threads may share the work as they like, and every processor gives the same bits.
//!
//! What this is not: numbers are f32, so the noise is a rounded normal variable, and the fine
//! structure of rounded sums is outside the usual proofs of differential privacy.

#![expect(
    clippy::inline_always,
    reason = "a function is compiled for a processor only as far as it is inlined into the entry for it"
)]

use crate::secret::{LANES, Lane, SecretKey, blocks};

/// Numbers whose noise is drawn together; a run must begin at a multiple of it.
pub const NOISE_GROUP: usize = 2 * 16 * LANES;
/// Blocks of the key's stream that a group takes.
const BLOCKS: u64 = 3 * LANES as u64;

impl SecretKey {
    /// Adds `deviation` times a standard normal draw to each number of a run that begins at a place of
    /// something larger, which is a multiple of [`NOISE_GROUP`].
    pub fn add_normal(&self, run: &mut [f32], place: usize, deviation: f32) {
        debug_assert!(place.is_multiple_of(NOISE_GROUP), "a run begins with a group");
        let first = (place / NOISE_GROUP) as u64;
        #[cfg(target_arch = "x86_64")]
        {
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq");
            if wide {
                // SAFETY: the processor has these instructions.
                return unsafe { add_wide(&self.0, run, first, deviation) };
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the processor has these instructions.
                return unsafe { add_narrow(&self.0, run, first, deviation) };
            }
        }
        add(&self.0, run, first, deviation);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn add_wide(key: &[u32; 8], run: &mut [f32], first: u64, deviation: f32) {
    add(key, run, first, deviation);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_narrow(key: &[u32; 8], run: &mut [f32], first: u64, deviation: f32) {
    add(key, run, first, deviation);
}

#[inline(always)]
fn add(key: &[u32; 8], run: &mut [f32], first: u64, deviation: f32) {
    let (groups, rest) = run.as_chunks_mut::<NOISE_GROUP>();
    let last = first + groups.len() as u64;
    for (group, numbers) in (first..).zip(groups) {
        add_group(key, numbers, group, deviation);
    }
    if !rest.is_empty() {
        let mut padded = [0.0; NOISE_GROUP];
        padded[..rest.len()].copy_from_slice(rest);
        add_group(key, &mut padded, last, deviation);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// Adds the draws of a group.
#[inline(always)]
fn add_group(key: &[u32; 8], numbers: &mut [f32; NOISE_GROUP], group: u64, deviation: f32) {
    // The counter of a block has 32 bits; what is above them goes where a nonce goes.
    let counter = group * BLOCKS;
    let stream = |number: u64| {
        let at = counter + number * LANES as u64;
        blocks(key, [4, (at >> 32) as u32, 0], at as u32)
    };
    let [high, low, angle] = [stream(0), stream(1), stream(2)];
    let (numbers, _) = numbers.as_chunks_mut::<LANES>();
    for (word, two) in numbers.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let draws = pairs(&high[word], &low[word], &angle[word]);
        for (numbers, draws) in two.iter_mut().zip(&draws) {
            for lane in 0..LANES {
                numbers[lane] = deviation.mul_add(draws[lane], numbers[lane]);
            }
        }
    }
}

#[inline(always)]
fn pairs(high: &Lane, low: &Lane, angle: &Lane) -> [[f32; LANES]; 2] {
    let (mut cosines, mut sines) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        const UNIT: f32 = 1.0 / 4_294_967_296.0;
        // In (0, 1]: the lower bits count where the upper ones are few.
        let uniform = (high[lane] as f32).mul_add(UNIT, (low[lane] as f32 + 0.5) * UNIT * UNIT);
        let radius = (-2.0 * ln(uniform)).max(0.0).sqrt();
        let (cosine, sine) = turn(angle[lane]);
        cosines[lane] = radius * cosine;
        sines[lane] = radius * sine;
    }
    [cosines, sines]
}

/// The natural logarithm of a normal number above zero, error below 1e-7 relative to one.
#[inline(always)]
fn ln(x: f32) -> f32 {
    // x = 2^n m with m between sqrt(1/2) and sqrt(2).
    let shifted = x.to_bits().wrapping_sub(0x3F35_04F3);
    let n = (shifted.cast_signed() >> 23) as f32;
    let m = f32::from_bits((shifted & 0x007F_FFFF).wrapping_add(0x3F35_04F3));
    let f = m - 1.0;
    let p = 7.037_683_6e-2_f32;
    let p = p.mul_add(f, -0.115_146_1);
    let p = p.mul_add(f, 0.116_769_984);
    let p = p.mul_add(f, -0.124_201_41);
    let p = p.mul_add(f, 0.142_493_23);
    let p = p.mul_add(f, -0.166_680_57);
    let p = p.mul_add(f, 0.200_007_14);
    let p = p.mul_add(f, -0.249_999_94);
    let p = p.mul_add(f, 0.333_333_3);
    let square = f * f;
    let tail = n.mul_add(-2.121_944_4e-4, (p * f) * square);
    n.mul_add(0.693_359_4, f + square.mul_add(-0.5, tail))
}

/// Cosine and sine of so many parts of 2^32 of a turn.
#[inline(always)]
fn turn(parts: u32) -> (f32, f32) {
    let quarter = parts.wrapping_add(1 << 29) >> 30;
    let rest = parts.wrapping_sub(quarter << 30).cast_signed();
    let x = rest as f32 * (std::f32::consts::TAU / 4_294_967_296.0);
    let square = x * x;
    let sine = (-1.951_529_6e-4_f32).mul_add(square, 8.332_161e-3);
    let sine = sine.mul_add(square, -0.166_666_55);
    let sine = (sine * square).mul_add(x, x);
    let cosine = 2.443_315_7e-5_f32.mul_add(square, -1.388_731_6e-3);
    let cosine = cosine.mul_add(square, 4.166_664_6e-2);
    let cosine = (cosine * square).mul_add(square, square.mul_add(-0.5, 1.0));
    let (cosine, sine) = if quarter & 1 == 1 { (-sine, cosine) } else { (cosine, sine) };
    if quarter & 2 == 2 { (-cosine, -sine) } else { (cosine, sine) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    fn drawn(count: usize) -> Vec<f32> {
        let mut numbers = vec![0.0; count];
        SecretKey::simulated(Seed(5)).add_normal(&mut numbers, 0, 1.0);
        numbers
    }

    #[test]
    fn logarithm_and_turn_are_those_of_the_library() {
        for number in 1..20_000_u32 {
            let x = number as f32 / 20_000.0;
            let scale = x.ln().abs().max(1.0);
            assert!((ln(x) - x.ln()).abs() <= 2e-7 * scale, "{x}");
            let parts = number.wrapping_mul(214_013_001);
            let angle = f64::from(parts) / 4_294_967_296.0 * std::f64::consts::TAU;
            let (cosine, sine) = turn(parts);
            assert!((f64::from(cosine) - angle.cos()).abs() < 2e-7, "{parts}");
            assert!((f64::from(sine) - angle.sin()).abs() < 2e-7, "{parts}");
        }
        assert!((ln(1e-20) - 1e-20_f32.ln()).abs() < 1e-5);
        assert_eq!(ln(1.0), 0.0);
    }

    /// Moments, and the largest distance from the normal distribution (Kolmogorov): for a million
    /// draws it is above 0.00163 in one of a hundred cases.
    #[test]
    fn draws_are_normal() {
        let mut draws: Vec<f64> = drawn(1_000_000).into_iter().map(f64::from).collect();
        let mean = |power: i32| draws.iter().map(|x| x.powi(power)).sum::<f64>() / 1e6;
        assert!(mean(1).abs() < 0.004, "{}", mean(1));
        assert!((mean(2) - 1.0).abs() < 0.005, "{}", mean(2));
        assert!(mean(3).abs() < 0.015, "{}", mean(3));
        assert!((mean(4) - 3.0).abs() < 0.05, "{}", mean(4));
        draws.sort_by(f64::total_cmp);
        let below = |x: f64| {
            // Simpson's rule over the density from zero.
            let steps = 200;
            let width = x / f64::from(steps);
            let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
            let weight =
                |k: i32| if k == 0 || k == steps { 1.0 } else { f64::from(2 + 2 * (k % 2)) };
            0.5 + (0..=steps).map(|k| weight(k) * density(f64::from(k) * width)).sum::<f64>()
                * width
                / 3.0
        };
        let apart = (0..1000).map(|k| {
            let place = k * 1000;
            (below(draws[place]) - place as f64 / 1e6).abs()
        });
        let most = apart.fold(0.0, f64::max);
        assert!(most < 0.00163, "{most}");
    }

    #[test]
    fn neighbours_have_nothing_to_do_with_each_other() {
        let draws = drawn(1 << 18);
        for apart in [1, 2, 15, 16, 17, 32, 256, 512, 1024] {
            let products = draws.iter().zip(&draws[apart..]).map(|(x, y)| f64::from(x * y));
            let mean = products.sum::<f64>() / (draws.len() - apart) as f64;
            assert!(mean.abs() < 0.01, "{apart}: {mean}");
        }
    }

    #[test]
    fn a_draw_belongs_to_its_place_however_the_work_is_cut() {
        let whole = drawn(3 * NOISE_GROUP + 7);
        let mut parts = vec![0.0; whole.len()];
        let key = SecretKey::simulated(Seed(5));
        let (first, rest) = parts.split_at_mut(2 * NOISE_GROUP);
        key.add_normal(rest, 2 * NOISE_GROUP, 1.0);
        key.add_normal(first, 0, 1.0);
        assert_eq!(parts, whole);
        let mut plain = vec![0.0; whole.len()];
        add(&key.0, &mut plain, 0, 1.0);
        assert_eq!(plain, whole, "every processor gives the same bits");
    }
}
