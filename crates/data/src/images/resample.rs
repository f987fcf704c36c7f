//! Resizing with PIL's arithmetic, so that a model sees what it was trained on.
//!
//! A filter's support grows with the ratio of sizes, so that small images average over all pixels (antialiasing).
//! Columns come first, then rows; between the two, values are rounded to 8 bits. Coefficients are
//! fixed-point numbers of 22 bits. A formula in floats would differ by one step here and there; this does not.
//! (PIL 13 takes rows first for some shapes; images much higher than wide then differ by a few steps.)

use std::f64::consts::PI;

use super::raster::Raster;

/// Bits behind the point of a coefficient: 32, less 8 of a pixel and 2 for sums beyond 1.
const PRECISION: u32 = 32 - 8 - 2;

/// How values between pixels are found, by PIL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Nearest,
    Lanczos,
    Bilinear,
    Bicubic,
    Box,
    Hamming,
}

impl Filter {
    /// The filter that has this number in PIL.
    pub fn numbered(number: u64) -> Option<Self> {
        let all =
            [Self::Nearest, Self::Lanczos, Self::Bilinear, Self::Bicubic, Self::Box, Self::Hamming];
        all.get(usize::try_from(number).ok()?).copied()
    }

    fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    #[expect(clippy::suboptimal_flops, reason = "PIL rounds each operation by itself")]
    fn weight(self, x: f64) -> f64 {
        let distance = x.abs();
        match self {
            Self::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Bilinear => (1.0 - distance).max(0.0),
            Self::Hamming if distance == 0.0 => 1.0,
            Self::Hamming if distance >= 1.0 => 0.0,
            Self::Hamming => {
                let x = distance * PI;
                x.sin() / x * (0.54 + 0.46 * x.cos())
            }
            Self::Bicubic if distance < 1.0 => {
                const A: f64 = -0.5;
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            }
            Self::Bicubic if distance < 2.0 => {
                const A: f64 = -0.5;
                (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A
            }
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Nearest | Self::Bicubic | Self::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    x.sin() / x
}

impl Raster {
    /// The same image in another size.
    pub fn resized(self, (width, height): (usize, usize), filter: Filter) -> Self {
        if (self.width, self.height) == (width, height) {
            return self;
        }
        if filter == Filter::Nearest {
            return self.nearest((width, height));
        }
        let across = if width == self.width { self } else { self.columns(width, filter) };
        if height == across.height { across } else { across.rows(height, filter) }
    }

    fn nearest(&self, (width, height): (usize, usize)) -> Self {
        let (columns, rows) = (nearest(self.width, width), nearest(self.height, height));
        let mut pixels = Vec::with_capacity(width * height * self.channels);
        for row in rows {
            for &column in &columns {
                let at = (row * self.width + column) * self.channels;
                pixels.extend_from_slice(&self.pixels[at..at + self.channels]);
            }
        }
        Self::new((width, height), self.channels, pixels)
    }

    fn columns(&self, width: usize, filter: Filter) -> Self {
        let (channels, windows) = (self.channels, windows(self.width, width, filter));
        let mut pixels = Vec::with_capacity(width * self.height * channels);
        for row in self.pixels.chunks_exact(self.width * channels) {
            for Window { first, weights } in &windows {
                let under = &row[first * channels..];
                for channel in 0..channels {
                    let values = under[channel..].iter().step_by(channels);
                    pixels.push(weighted(values, weights));
                }
            }
        }
        Self::new((width, self.height), channels, pixels)
    }

    fn rows(&self, height: usize, filter: Filter) -> Self {
        let (across, windows) = (self.width * self.channels, windows(self.height, height, filter));
        let mut pixels = Vec::with_capacity(across * height);
        let mut sums = vec![0_i32; across];
        for Window { first, weights } in &windows {
            sums.fill(1 << (PRECISION - 1));
            let rows = self.pixels[first * across..].chunks_exact(across);
            for (row, weight) in rows.zip(weights) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += i32::from(*value) * weight;
                }
            }
            pixels.extend(sums.iter().map(|sum| clipped(*sum)));
        }
        Self::new((self.width, height), self.channels, pixels)
    }
}

/// The pixels that a new one is made of.
struct Window {
    first: usize,
    weights: Vec<i32>,
}

fn weighted<'v>(values: impl Iterator<Item = &'v u8>, weights: &[i32]) -> u8 {
    let terms = values.zip(weights).map(|(value, weight)| i32::from(*value) * weight);
    clipped(terms.sum::<i32>() + (1 << (PRECISION - 1)))
}

/// Sums fit: the weights of a window are below 2 together, and a pixel below 256.
fn clipped(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

fn windows(from: usize, to: usize, filter: Filter) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let window = |place: usize| {
        let centre = (place as f64 + 0.5) * scale;
        let first = ((centre - support + 0.5) as i64).max(0) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let weight = |at: usize| filter.weight((at as f64 - centre + 0.5) * (1.0 / stretch));
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: f64| {
            let share = if sum == 0.0 { weight } else { weight / sum };
            let scaled = share * f64::from(1 << PRECISION);
            (scaled + if share < 0.0 { -0.5 } else { 0.5 }) as i32
        };
        Window { first, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

/// The old place of each new one, by steps that are added up as PIL adds them.
fn nearest(from: usize, to: usize) -> Vec<usize> {
    let scale = from as f64 / to as f64;
    let mut at = scale * 0.5;
    let next = |_| {
        let place = at as usize;
        at += scale;
        place.min(from - 1)
    };
    (0..to).map(next).collect()
}
