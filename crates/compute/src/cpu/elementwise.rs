//! One pass over one or two arrays, in parallel over fixed runs.

use super::simd::vectorised;
use crate::crew;

/// Elements per task: small enough to balance, large enough to be worth a task.
pub const RUN: usize = 1 << 14;

/// `x *= y`.
pub fn multiply_into(x: &mut [f32], y: &[f32]) {
    crew::each_chunk(x, RUN, |task, x| multiply_run(x, &y[task * RUN..]));
}

/// `x += y`.
pub fn add_into(x: &mut [f32], y: &[f32]) {
    crew::each_chunk(x, RUN, |task, x| add_run(x, &y[task * RUN..]));
}

/// `x *= factor`.
pub fn scale(x: &mut [f32], factor: f32) {
    crew::each_chunk(x, RUN, |_, x| scale_run(x, factor));
}

vectorised! {
    fn multiply_run(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x *= y;
        }
    }
}

vectorised! {
    fn add_run(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

vectorised! {
    fn scale_run(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}
