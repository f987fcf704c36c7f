//! One pass over one or two arrays, in parallel over fixed runs.

use super::math;
use super::simd::vectorised;
use crate::thread_pool;
use fedra_seed::Seed;

/// Elements per task: small enough to balance, large enough to be worth a task.
pub const RUN: usize = 1 << 14;

/// Elements whose squares are added in f32 before the sum continues in f64.
const SQUARES: usize = 4096;

/// `x *= y`.
pub fn multiply_into(x: &mut [f32], y: &[f32]) {
    thread_pool::each_chunk(x, RUN, |task, x| multiply_run(x, &y[task * RUN..]));
}

/// `x += factor * y`.
pub fn add_scaled(x: &mut [f32], factor: f32, y: &[f32]) {
    thread_pool::each_chunk(x, RUN, |task, x| add_run(x, factor, &y[task * RUN..]));
}

/// `x += factor * (to - from)`.
pub fn add_scaled_difference(x: &mut [f32], factor: f32, (to, from): (&[f32], &[f32])) {
    thread_pool::each_chunk(x, RUN, |task, x| {
        add_difference_run(x, factor, &to[task * RUN..], &from[task * RUN..]);
    });
}

/// `into = x - y`.
pub fn subtract(into: &mut [f32], (x, y): (&[f32], &[f32])) {
    thread_pool::each_chunk(into, RUN, |task, into| {
        subtract_run(into, &x[task * RUN..], &y[task * RUN..]);
    });
}

/// `x *= factor`.
pub fn scale(x: &mut [f32], factor: f32) {
    thread_pool::each_chunk(x, RUN, |_, x| scale_run(x, factor));
}

/// `x /= divisor`.
pub fn divide(x: &mut [f32], divisor: f32) {
    thread_pool::each_chunk(x, RUN, |_, x| divide_run(x, divisor));
}

/// `x = cap * tanh(x / cap)`.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    thread_pool::each_chunk(x, RUN, |_, x| math::soft_cap(x, 1.0, cap));
}

/// `dy *= 1 - (y / cap)^2`.
pub fn soft_cap_backward(y: &[f32], cap: f32, dy: &mut [f32]) {
    thread_pool::each_chunk(dy, RUN, |task, dy| soft_cap_slope_run(&y[task * RUN..], cap, dy));
}

/// Makes zero of each element with probability `rate` and divides the others by `1 - rate`. Each run has
/// a generator of its own.
pub fn drop_out(x: &mut [f32], rate: f32, seed: Seed) {
    let dropped = (f64::from(rate) * 2f64.powi(32)) as u32;
    let factor = 1.0 / (1.0 - rate);
    thread_pool::each_chunk(x, RUN, |task, x| {
        let mut generator = seed.with(task as u64).generator();
        for pair in x.chunks_mut(2) {
            let bits = generator.bits();
            for (x, bits) in pair.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
                *x = if bits < dropped { 0.0 } else { *x * factor };
            }
        }
    });
}

/// The sum of squares, over fixed runs.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    x.chunks(SQUARES).map(|run| f64::from(squares_run(run))).sum()
}

vectorised! {
    fn multiply_run(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x *= y;
        }
    }
}

vectorised! {
    pub fn add_run(x: &mut [f32], factor: f32, y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += factor * y;
        }
    }
}

vectorised! {
    fn soft_cap_slope_run(y: &[f32], cap: f32, dy: &mut [f32]) {
        for (dy, y) in dy.iter_mut().zip(y) {
            let t = y / cap;
            *dy *= t.mul_add(-t, 1.0);
        }
    }
}

vectorised! {
    fn add_difference_run(x: &mut [f32], factor: f32, to: &[f32], from: &[f32]) {
        for ((x, to), from) in x.iter_mut().zip(to).zip(from) {
            *x += factor * (to - from);
        }
    }
}

vectorised! {
    fn subtract_run(into: &mut [f32], x: &[f32], y: &[f32]) {
        for ((into, x), y) in into.iter_mut().zip(x).zip(y) {
            *into = x - y;
        }
    }
}

vectorised! {
    pub fn scale_run(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

vectorised! {
    fn divide_run(x: &mut [f32], divisor: f32) {
        for x in x {
            *x /= divisor;
        }
    }
}

vectorised! {
    fn squares_run(x: &[f32]) -> f32 {
        math::dot(x, x)
    }
}

/// Where the highest number is, the first of equal ones; `None` where one is not a number.
pub fn argmax(x: &[f32]) -> Option<u32> {
    let mut highest = None;
    for (at, value) in x.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if highest.is_none_or(|(_, most)| *value > most) {
            highest = Some((at as u32, *value));
        }
    }
    highest.map(|(at, _)| at)
}
