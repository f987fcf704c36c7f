//! Losses and their gradients in one pass over the logits.

use super::math;
use super::shared::Shared;
use super::simd::vectorised;
use crate::thread_pool;
use std::ops::Range;

/// What each row counts in a loss: `sum over rows of weight * loss / divisor`.
#[derive(Clone, Copy, Debug)]
pub struct Factors<'a> {
    /// One weight per row; all are one when absent.
    pub weights: Option<&'a [f32]>,
    /// What the sum is divided by.
    pub divisor: f64,
    /// How much of a target goes to all classes, if any of it does.
    pub smoothing: Option<Smoothing<'a>>,
}

/// Label smoothing: the target of a row with class `y` is `(1 - share) w_y` for `y`, and for every class `c`
/// of `C`, `y` among them, another `share w_c / C` (Szegedy et al. 2016; PyTorch's way to combine both).
#[derive(Clone, Copy, Debug)]
pub struct Smoothing<'a> {
    /// What is taken from the class itself.
    pub share: f32,
    /// The weights `w`; all are one when absent.
    pub class_weights: Option<&'a [f32]>,
}

/// A row's target as its kernel wants it.
#[derive(Clone, Copy)]
struct SmoothTarget<'a> {
    class: usize,
    /// What the class has beside its share of the rest.
    own: f32,
    /// What each class has, before its weight.
    each: f32,
    /// One for each class; empty where all are one.
    class_weights: &'a [f32],
    /// All of it.
    total: f32,
}

impl<'a> Smoothing<'a> {
    fn target(self, class: usize, classes: usize) -> SmoothTarget<'a> {
        let class_weights = self.class_weights.unwrap_or_default();
        let weight = class_weights.get(class).copied().unwrap_or(1.0);
        let all: f64 = match self.class_weights {
            None => classes as f64,
            Some(weights) => weights.iter().map(|&weight| f64::from(weight)).sum(),
        };
        let (own, each) = ((1.0 - self.share) * weight, self.share / classes as f32);
        let total = (f64::from(own) + f64::from(each) * all) as f32;
        SmoothTarget { class, own, each, class_weights, total }
    }
}

impl Factors<'_> {
    /// Those of some rows.
    pub fn of(self, rows: Range<usize>) -> Self {
        Self { weights: self.weights.map(|weights| &weights[rows]), ..self }
    }

    /// A weighted sum, divided.
    pub fn divided(self, sum: f64) -> f32 {
        (sum / self.divisor) as f32
    }

    fn weight(self, row: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// What a row's gradient is multiplied by.
    fn slope(self, row: usize) -> f32 {
        self.weight(row) / self.divisor as f32
    }
}

/// Turns each row of logits into `weight / divisor * (softmax - one hot)` and returns the weighted
/// sum of losses.
///
/// `targets` names the column that each row should have predicted. With a cap, logits `l` are
/// `cap * tanh(l / cap)` in the loss, and the gradient is that of `l`.
pub fn cross_entropy_rows(
    (logits, cols): (&mut [f32], usize),
    soft_cap: Option<f32>,
    targets: &[u32],
    factors: Factors<'_>,
) -> f64 {
    let mut losses = vec![0.0; targets.len()];
    let into = Shared::new(&mut losses);
    thread_pool::each_chunk(logits, cols, |row, logits| {
        let (target, slope) = (targets[row] as usize, factors.slope(row));
        let loss = match (factors.smoothing, soft_cap) {
            (None, None) => cross_entropy_row(logits, target, slope),
            (None, Some(cap)) => capped_cross_entropy_row(logits, cap, target, slope),
            (Some(smoothing), cap) => {
                smoothed_cross_entropy_row(logits, cap, smoothing.target(target, cols), slope)
            }
        };
        // SAFETY: each task writes the loss of its own row.
        unsafe { into.segment(row, 1)[0] = loss };
    });
    let weighted = |(row, loss): (usize, f32)| f64::from(factors.weight(row)) * f64::from(loss);
    losses.into_iter().enumerate().map(weighted).sum()
}

vectorised! {
    fn cross_entropy_row(row: &mut [f32], target: usize, factor: f32) -> f32 {
        let max = math::max(row);
        let chosen = row[target] - max;
        for x in row.iter_mut() {
            *x = math::exp(*x - max);
        }
        let sum = math::sum(row);
        let scale = factor / sum;
        for x in row.iter_mut() {
            *x *= scale;
        }
        row[target] -= factor;
        sum.ln() - chosen
    }
}

vectorised! {
    /// The same with a cap; the hyperbolic tangents stay in place until the gradient is known.
    fn capped_cross_entropy_row(row: &mut [f32], cap: f32, target: usize, factor: f32) -> f32 {
        for x in row.iter_mut() {
            *x = math::tanh(*x / cap);
        }
        let (max, t) = (math::max(row) * cap, row[target]);
        let sum = math::sum_of(row, |t| math::exp(t.mul_add(cap, -max)));
        let scale = factor / sum;
        for x in row.iter_mut() {
            let t = *x;
            *x = math::exp(t.mul_add(cap, -max)) * scale * t.mul_add(-t, 1.0);
        }
        row[target] -= factor * t.mul_add(-t, 1.0);
        sum.ln() - t.mul_add(cap, -max)
    }
}

vectorised! {
    /// The same with or without a cap, for a target that is spread over all classes.
    fn smoothed_cross_entropy_row(
        row: &mut [f32],
        cap: Option<f32>,
        target: SmoothTarget<'_>,
        factor: f32,
    ) -> f32 {
        if let Some(cap) = cap {
            for x in row.iter_mut() {
                *x = cap * math::tanh(*x / cap);
            }
        }
        let (max, chosen) = (math::max(row), row[target.class]);
        let sum = math::sum_of(row, |x| math::exp(x - max));
        let weights = target.class_weights;
        let spread = if weights.is_empty() {
            math::sum_of(row, |x| x - max)
        } else {
            math::dot_of(row, weights, |x| x - max)
        };
        let loss = target.total * sum.ln() - target.own.mul_add(chosen - max, target.each * spread);
        let (scale, each) = (factor * target.total / sum, factor * target.each);
        let inverse = cap.map_or(0.0, |cap| 1.0 / cap);
        let slope = |x: f32| (x * inverse).mul_add(-(x * inverse), 1.0);
        if weights.is_empty() {
            for x in row.iter_mut() {
                *x = (scale * math::exp(*x - max) - each) * slope(*x);
            }
        } else {
            for (x, weight) in row.iter_mut().zip(weights) {
                *x = (scale * math::exp(*x - max) - each * weight) * slope(*x);
            }
        }
        row[target.class] -= factor * target.own * slope(chosen);
        loss
    }
}

/// Binary cross-entropy of logits `x` with targets in [0, 1], rows of `cols`; `x` becomes
/// `weight / divisor * (sigmoid - target)`.
pub fn binary_cross_entropy(
    x: &mut [f32],
    cols: usize,
    targets: &[f32],
    factors: Factors<'_>,
) -> f64 {
    let mut sum = 0.0;
    for (row, (x, targets)) in x.chunks_exact_mut(cols).zip(targets.chunks_exact(cols)).enumerate()
    {
        let (weight, slope) = (f64::from(factors.weight(row)), factors.slope(row));
        for (x, &target) in x.iter_mut().zip(targets) {
            let (logit, wanted) = (f64::from(*x), f64::from(target));
            // log(1 + e^-|x|) + max(x, 0) - x t, which overflows nowhere
            sum += weight * ((-logit.abs()).exp().ln_1p() + logit.max(0.0) - logit * wanted);
            *x = slope * (1.0 / (1.0 + (-*x).exp()) - target);
        }
    }
    sum
}
