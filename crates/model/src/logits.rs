//! What rows of logits say. A row may be as long as a vocabulary.

use fedra_compute::Tensor;

/// The rows of each of several items, end to end, where items have so many of them.
pub fn rows_of_each(logits: &Tensor, counts: impl Iterator<Item = usize>) -> Vec<Vec<f32>> {
    let (classes, numbers) = (logits.cols(), logits.to_host());
    let mut rest = &numbers[..];
    let own = |rows: usize| {
        let (own, others) = rest.split_at(rows * classes);
        rest = others;
        own.to_vec()
    };
    counts.map(own).collect()
}

/// The place of the first logit that is not a number, if there is one.
pub fn first_nan(row: &[f32]) -> Option<usize> {
    row.iter().position(|logit| logit.is_nan())
}

/// The class with the highest logit, the first of equals.
pub fn highest(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, logit) in row.iter().enumerate() {
        if *logit > row[best] {
            best = class;
        }
    }
    best as u32
}

/// The logarithm of the sum of exponentials.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from(logit - top).exp()).sum();
    f64::from(top) + sum.ln()
}

/// Probabilities of classes of which one is right.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let all = log_sum_exp(logits);
    logits.iter().map(|logit| (f64::from(*logit) - all).exp()).collect()
}

/// Probabilities of labels of which any number is right.
pub fn sigmoid(logits: &[f32]) -> Vec<f64> {
    logits.iter().map(|logit| 1.0 / (1.0 + (-f64::from(*logit)).exp())).collect()
}
