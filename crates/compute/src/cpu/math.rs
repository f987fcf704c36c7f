//! Elementary functions as short polynomials that the compiler turns into vector code.
//!
//! Each uses only fused multiply-adds, comparisons and bit moves, so a lane gives the same bits
//! whatever the vector width.

#![expect(
    clippy::inline_always,
    reason = "a call inside a loop would keep it from being vectorised"
)]

use super::simd::vectorised;

/// `e^x`, relative error below 1e-7 for finite results; zero below -87.3, huge above 88.3.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    let x = x.clamp(-87.3, 88.3);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    // ln 2 in two pieces (0.693359375 - 2.12194440e-4), so that the remainder keeps its bits.
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(r, 1.398_199_9e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 0.166_666_65);
    let p = p.mul_add(r, 0.5);
    let y = p.mul_add(r * r, r) + 1.0;
    let scale = f32::from_bits(shifted.to_bits().wrapping_sub(0x4B40_0000 - 127) << 23);
    y * scale
}

/// `ln x` of a normal positive number, error below 2e-7 of the larger of one and the result.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // x = m 2^e with m in [1/sqrt 2, sqrt 2)
    let bits = x.to_bits().wrapping_sub(0x3F35_04F3);
    let exponent = (bits.cast_signed() >> 23) as f32;
    let m = f32::from_bits((bits & 0x007F_FFFF).wrapping_add(0x3F35_04F3));
    let f = m - 1.0;
    let p = 7.037_683_6e-2_f32;
    let p = p.mul_add(f, -0.115_146_1);
    let p = p.mul_add(f, 0.116_769_98);
    let p = p.mul_add(f, -0.124_201_41);
    let p = p.mul_add(f, 0.142_493_23);
    let p = p.mul_add(f, -0.166_680_58);
    let p = p.mul_add(f, 0.200_007_14);
    let p = p.mul_add(f, -0.249_999_94);
    let p = p.mul_add(f, 0.333_333_3);
    let z = f * f;
    let y = p * f * z;
    let y = exponent.mul_add(-2.121_944_4e-4, y);
    let y = z.mul_add(-0.5, y);
    exponent.mul_add(0.693_359_4, f + y)
}

/// Sine and cosine of `turn / 2^32` of a full turn, error below 2e-7.
#[inline(always)]
pub fn sin_cos_turn(turn: u32) -> (f32, f32) {
    // The nearest quarter turn, and what is left: at most an eighth either way.
    let quarter = turn.wrapping_add(1 << 29) >> 30;
    let rest = turn.wrapping_sub(quarter << 30).cast_signed() as f32;
    let x = rest * (std::f32::consts::TAU / 4_294_967_296.0);
    let z = x * x;
    let s = (-1.951_529_6e-4_f32).mul_add(z, 8.332_161e-3);
    let s = s.mul_add(z, -0.166_666_55);
    let s = (s * z).mul_add(x, x);
    let c = 2.443_315_7e-5_f32.mul_add(z, -1.388_731_6e-3);
    let c = c.mul_add(z, 4.166_664_6e-2);
    let c = (c * z).mul_add(z, z.mul_add(-0.5, 1.0));
    let odd = quarter & 1 == 1;
    let (sin, cos) = if odd { (c, s) } else { (s, c) };
    let sin = if quarter & 2 == 0 { sin } else { -sin };
    let cos = if quarter.wrapping_add(1) & 2 == 0 { cos } else { -cos };
    (sin, cos)
}

/// The logistic function.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The exact (error function) GELU and its derivative from one exponential, error below 6e-7.
///
/// With `phi` the normal density and `Phi` its integral: `gelu = x Phi(x)`, `gelu' = Phi(x) + x phi(x)`.
/// `Phi` comes from Abramowitz and Stegun 7.1.26, whose exponential is that of `phi`.
#[inline(always)]
pub fn gelu(x: f32) -> (f32, f32) {
    const INVERSE_SQRT_TAU: f32 = 0.398_942_3;
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let e = exp(-(z * z));
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let p = 1.061_405_4_f32;
    let p = p.mul_add(t, -1.453_152);
    let p = p.mul_add(t, 1.421_413_7);
    let p = p.mul_add(t, -0.284_496_74);
    let p = p.mul_add(t, 0.254_829_6);
    let tail = 0.5 * (p * t) * e; // Phi(-|x|)
    let integral = if x < 0.0 { tail } else { 1.0 - tail };
    (x * integral, (x * INVERSE_SQRT_TAU).mul_add(e, integral))
}

vectorised! {
    /// Replaces `x` by `gelu(x)` and stores the derivative.
    pub fn gelu_with_derivative(x: &mut [f32], derivative: &mut [f32]) {
        for (x, d) in x.iter_mut().zip(derivative) {
            (*x, *d) = gelu(*x);
        }
    }
}

vectorised! {
    /// Replaces `x` by `gelu(x)`.
    pub fn gelu_in_place(x: &mut [f32]) {
        for x in x {
            *x = gelu(*x).0;
        }
    }
}

/// Lanes of every reduction: the order of additions does not depend on the vector width.
const LANES: usize = 16;

/// Sum in sixteen lanes, then pairwise.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    reduce(x, 0.0, |a, b| a + b)
}

/// Largest element, `-inf` when empty.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    reduce(x, f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

/// Inner product in sixteen lanes, then pairwise.
#[inline(always)]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let (x_rest, y_rest) = (xs.remainder(), ys.remainder());
    for (x, y) in xs.zip(ys) {
        for i in 0..LANES {
            lanes[i] = x[i].mul_add(y[i], lanes[i]);
        }
    }
    for (i, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        lanes[i] = x.mul_add(*y, lanes[i]);
    }
    pairwise(lanes, |a, b| a + b)
}

#[inline(always)]
fn reduce(x: &[f32], neutral: f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [neutral; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = join(lanes[i], chunk[i]);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = join(*lane, *x);
    }
    pairwise(lanes, join)
}

#[inline(always)]
fn pairwise(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = join(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_turns_are_exact_to_a_few_units() {
        for i in 0..200_000u32 {
            let word = i.wrapping_mul(2_654_435_761);
            let x = (word as f32 + 0.5) / 4_294_967_296.0;
            let expected = f64::from(x).ln();
            let apart = (f64::from(ln(x)) - expected).abs();
            assert!(apart <= 2e-7 * expected.abs().max(1.0), "ln {x}: {apart}");
            let angle = f64::from(word) / 4_294_967_296.0 * std::f64::consts::TAU;
            let (sin, cos) = sin_cos_turn(word);
            assert!((f64::from(sin) - angle.sin()).abs() < 2e-7, "sin {word}");
            assert!((f64::from(cos) - angle.cos()).abs() < 2e-7, "cos {word}");
        }
    }

    #[test]
    fn exp_is_accurate_to_two_parts_in_ten_million() {
        for i in -8700..=8800 {
            let x = i as f32 / 100.0;
            let truth = f64::from(x).exp();
            let error = (f64::from(exp(x)) - truth).abs() / truth;
            assert!(error < 2e-7, "exp({x}) is off by {error:e}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1000.0) < 1.3e-38);
    }

    #[test]
    fn gelu_and_its_derivative_match_the_error_function() {
        // Phi by Simpson integration of the density from 0, in f64.
        let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        for i in -600..=600 {
            let x = f64::from(i) / 100.0;
            let n = 400;
            let h = x / f64::from(n);
            let mut integral = density(0.0) + density(x);
            for k in 1..n {
                integral += density(h * f64::from(k)) * if k % 2 == 1 { 4.0 } else { 2.0 };
            }
            let phi = 0.5 + integral * h / 3.0;
            let (y, d) = gelu(x as f32);
            assert!((f64::from(y) - x * phi).abs() < 6e-7, "gelu({x})");
            assert!((f64::from(d) - (phi + x * density(x))).abs() < 6e-7, "gelu'({x})");
        }
    }

    #[test]
    fn reductions_cover_every_element_at_odd_lengths() {
        for n in 0..70 {
            let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 23) as f32 - 11.0).collect();
            let y: Vec<f32> = (0..n).map(|i| ((i * 29) % 19) as f32 - 9.0).collect();
            assert_eq!(sum(&x), x.iter().sum::<f32>());
            assert_eq!(dot(&x, &y), x.iter().zip(&y).map(|(x, y)| x * y).sum::<f32>());
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
