//! The discrete Fourier transform of a power of two of complex numbers.
//!
//! Its only use is to compose distributions, where lengths are ours to choose; one size of radix and
//! no plan, in a page, instead of a library with five dependencies. Stockham's order needs no bit
//! reversal, and every root of unity is computed by itself, so errors do not add up.
//!
//! An element of a transform is a sum of all its inputs, each times a product of as many rounded numbers as there
//! are passes. So it is wrong by at most [`Fourier::error`] times the sum of the inputs' magnitudes.

use std::f64::consts::PI;
use std::ops::{Add, Mul, Sub};

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    /// The real part.
    pub re: f64,
    /// The imaginary part.
    pub im: f64,
}

impl Complex {
    /// One.
    pub const ONE: Self = Self { re: 1.0, im: 0.0 };

    /// The same, mirrored at the real axis.
    pub fn conjugate(self) -> Self {
        Self { re: self.re, im: -self.im }
    }

    /// Its product with i.
    fn turned(self) -> Self {
        Self { re: -self.im, im: self.re }
    }

    /// The distance from zero.
    pub fn magnitude(self) -> f64 {
        self.re.hypot(self.im)
    }

    /// A power, by repeated squaring.
    pub fn power(self, mut exponent: u64) -> Self {
        let (mut square, mut result) = (self, Self::ONE);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result * square;
            }
            square = square * square;
            exponent >>= 1;
        }
        result
    }
}

impl Add for Complex {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

/// Transforms of real sequences of one length.
pub struct Fourier {
    /// exp(-2 pi i k / n) for the first half of a turn.
    roots: Vec<Complex>,
}

impl Fourier {
    /// For sequences of `length`, a power of two and at least 4.
    pub fn new(length: usize) -> Self {
        debug_assert!(length.is_power_of_two() && length >= 4);
        let turn = |k: usize| {
            let (im, re) = (-2.0 * PI * k as f64 / length as f64).sin_cos();
            Complex { re, im }
        };
        // An eighth of the turn by sine and cosine; the rest of the half by symmetry.
        let eighth: Vec<Complex> = (0..=length / 8).map(turn).collect();
        let root = |k: usize| {
            let (quarter, within) = (k / (length / 4), k % (length / 4));
            let first = if within <= length / 8 {
                eighth[within]
            } else {
                let mirrored = eighth[length / 4 - within];
                Complex { re: -mirrored.im, im: -mirrored.re }
            };
            if quarter == 0 { first } else { Complex { re: first.im, im: -first.re } }
        };
        Self { roots: (0..length / 2).map(root).collect() }
    }

    /// What an element of [`Self::forward`] may be wrong by, over the sum of the magnitudes of its inputs; the
    /// same holds of [`Self::backward`] and their mean. A pass adds a rounded sum, a rounded product and a rounded root, six
    /// units together; what packs two real numbers into a complex one doubles that; a third is to spare.
    pub fn error(&self) -> f64 {
        const UNITS: f64 = 16.0;
        let passes = f64::from(self.roots.len().ilog2()) + 3.0;
        UNITS * passes * 0.5 * f64::EPSILON
    }

    /// The first half of the spectrum of a real sequence, and the middle; the rest mirrors it.
    pub fn forward(&self, real: &[f64]) -> Vec<Complex> {
        let half = self.roots.len();
        let (pairs, _) = real.as_chunks::<2>();
        let mut packed: Vec<Complex> =
            pairs.iter().map(|[re, im]| Complex { re: *re, im: *im }).collect();
        self.transform(&mut packed);
        (0..=half)
            .map(|k| {
                let (a, b) = (packed[k % half], packed[(half - k) % half].conjugate());
                let root = if k == half { Complex { re: -1.0, im: 0.0 } } else { self.roots[k] };
                // The even places plus the turned odd ones.
                let odd = (a - b).turned() * root;
                Complex { re: 0.5 * (a.re + b.re - odd.re), im: 0.5 * (a.im + b.im - odd.im) }
            })
            .collect()
    }

    /// The real sequence that has this spectrum.
    pub fn backward(&self, spectrum: &[Complex]) -> Vec<f64> {
        let half = self.roots.len();
        // Conjugates before and after turn the forward transform into the inverse.
        let mut packed: Vec<Complex> = (0..half)
            .map(|k| {
                let (a, b) = (spectrum[k], spectrum[half - k].conjugate());
                let odd = ((a - b) * self.roots[k].conjugate()).turned();
                (a + b + odd).conjugate()
            })
            .collect();
        self.transform(&mut packed);
        let scale = 0.5 / half as f64;
        packed.iter().flat_map(|value| [scale * value.re, -scale * value.im]).collect()
    }

    /// The transform of half the length, in place.
    fn transform(&self, data: &mut Vec<Complex>) {
        let length = data.len();
        let mut other = vec![Complex::default(); length];
        // `span` values belong together; `count` such groups stand beside each other.
        let (mut span, mut count) = (length, 1);
        while span > 1 {
            let middle = span / 2;
            let stride = 2 * count;
            for p in 0..middle {
                let root = self.roots[p * stride];
                let (near, far) =
                    (&data[count * p..][..count], &data[count * (p + middle)..][..count]);
                let (sums, differences) = other[stride * p..][..stride].split_at_mut(count);
                for (((sum, difference), a), b) in
                    sums.iter_mut().zip(differences).zip(near).zip(far)
                {
                    *sum = *a + *b;
                    *difference = (*a - *b) * root;
                }
            }
            std::mem::swap(data, &mut other);
            span = middle;
            count = stride;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(length: usize) -> Vec<f64> {
        (0..length).map(|index| ((index * index + 3 * index) % 17) as f64 / 17.0).collect()
    }

    #[test]
    fn the_spectrum_is_that_of_the_definition() {
        for length in [4, 8, 16, 64] {
            let real = sequence(length);
            let found = Fourier::new(length).forward(&real);
            assert_eq!(found.len(), length / 2 + 1);
            for (k, value) in found.iter().enumerate() {
                let (mut re, mut im) = (0.0, 0.0);
                for (n, x) in real.iter().enumerate() {
                    let angle = -2.0 * PI * (k * n) as f64 / length as f64;
                    re += x * angle.cos();
                    im += x * angle.sin();
                }
                assert!((value.re - re).abs() < 1e-12, "{length} {k}: {value:?} {re}");
                assert!((value.im - im).abs() < 1e-12, "{length} {k}: {value:?} {im}");
            }
        }
    }

    #[test]
    fn backward_undoes_forward() {
        let real = sequence(1 << 12);
        let fourier = Fourier::new(real.len());
        let back = fourier.backward(&fourier.forward(&real));
        assert!(real.iter().zip(back).all(|(a, b)| (a - b).abs() < 1e-13));
    }

    #[test]
    fn powers_are_products() {
        let value = Complex { re: 0.8, im: 0.5 };
        let product = (0..13).fold(Complex::ONE, |product, _| product * value);
        let difference = value.power(13) - product;
        assert!(difference.re.abs() < 1e-12 && difference.im.abs() < 1e-12);
        assert_eq!(value.power(0), Complex::ONE);
    }
}
