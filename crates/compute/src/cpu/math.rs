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

/// `1 / sqrt(mean square + epsilon)`.
#[inline(always)]
pub fn inverse_root(x: &[f32], epsilon: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + epsilon).sqrt()
}

/// The logistic function.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent, relative error below 3e-7 (the polynomial is that of Cephes).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = -5.704_988_7e-3_f32;
    let p = p.mul_add(z, 2.063_909e-2);
    let p = p.mul_add(z, -5.373_971_6e-2);
    let p = p.mul_add(z, 0.133_314_42);
    let p = p.mul_add(z, -0.333_332_8);
    let near = (p * z).mul_add(x, x);
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

vectorised! {
    /// Replaces `x` by `cap * tanh(scale * x / cap)`.
    pub fn soft_cap(x: &mut [f32], scale: f32, cap: f32) {
        for x in x {
            *x = cap * tanh(*x * (scale / cap));
        }
    }
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

/// GELU with a hyperbolic tangent, and its derivative: `x sigmoid(2 u)`, `u = sqrt(2 / pi) (x + 0.044715 x^3)`.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> (f32, f32) {
    const TWICE: f32 = 1.595_769; // 2 sqrt(2 / pi)
    const CUBE: f32 = 0.044_715;
    let square = x * x;
    let s = sigmoid(TWICE * x * square.mul_add(CUBE, 1.0));
    let y = x * s;
    (y, (y * (1.0 - s)).mul_add(TWICE * square.mul_add(3.0 * CUBE, 1.0), s))
}

/// `x * sigmoid(x)` and its derivative `s + x s (1 - s)`.
#[inline(always)]
pub fn silu(x: f32) -> (f32, f32) {
    let s = sigmoid(x);
    let y = x * s;
    (y, y.mul_add(1.0 - s, s))
}

/// `max(x, 0)` and its derivative, which is zero at zero.
#[inline(always)]
pub fn relu(x: f32) -> (f32, f32) {
    (if x < 0.0 { 0.0 } else { x }, if x > 0.0 { 1.0 } else { 0.0 })
}

/// Lanes of every reduction: the order of additions does not depend on the vector width.
const LANES: usize = 16;

/// Sum in sixteen lanes, then pairwise.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    sum_of(x, |x| x)
}

/// The same with a function of each element.
#[inline(always)]
pub fn sum_of(x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    reduce(x, 0.0, of, |a, b| a + b)
}

/// Largest element, `-inf` when empty.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    reduce(x, f32::NEG_INFINITY, |x| x, |a, b| if b > a { b } else { a })
}

/// Inner product in sixteen lanes, then pairwise.
#[inline(always)]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    dot_of(x, y, |x| x)
}

/// The same with a function of each `x`.
#[inline(always)]
pub fn dot_of(x: &[f32], y: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for chunk in 0..xs.len().min(ys.len()) {
        for i in 0..LANES {
            lanes[i] = of(xs[chunk][i]).mul_add(ys[chunk][i], lanes[i]);
        }
    }
    for i in 0..x_rest.len().min(y_rest.len()) {
        lanes[i] = of(x_rest[i]).mul_add(y_rest[i], lanes[i]);
    }
    pairwise(lanes, |a, b| a + b)
}

#[inline(always)]
fn reduce(x: &[f32], neutral: f32, of: impl Fn(f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [neutral; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = join(lanes[i], of(chunk[i]));
        }
    }
    for i in 0..rest.len() {
        lanes[i] = join(lanes[i], of(rest[i]));
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
    fn tanh_is_accurate_to_three_parts_in_ten_million() {
        for i in (-9000..=9000).filter(|i| *i != 0) {
            let x = (i as f32 / 2000.0).powi(3);
            let truth = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) / truth - 1.0).abs();
            assert!(error < 3e-7, "tanh({x}) is off by {error:e}");
        }
        assert_eq!(tanh(0.0), 0.0);
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
