//! Activations, alone and as the gate of an MLP.
//!
//! Which one it is, is asked once a row: inside its loop a function is known and inlined.

#![expect(
    clippy::inline_always,
    reason = "a call inside a loop would keep it from being vectorised"
)]

use super::math;
use super::simd::vectorised;
use crate::activation::Activation;
use crate::thread_pool;

/// Rows per task.
const ROWS: usize = 16;

vectorised! {
    /// Applies an activation in place, and writes its derivative where wanted.
    pub fn apply(activation: Activation, x: &mut [f32], derivative: Option<&mut [f32]>) {
        match activation {
            Activation::Gelu => apply_to(math::gelu, x, derivative),
            Activation::GeluTanh => apply_to(math::gelu_tanh, x, derivative),
            Activation::Relu => apply_to(math::relu, x, derivative),
            Activation::Silu => apply_to(math::silu, x, derivative),
            Activation::Tanh => apply_to(tanh, x, derivative),
        }
    }
}

#[inline(always)]
fn apply_to(of: impl Fn(f32) -> (f32, f32), x: &mut [f32], derivative: Option<&mut [f32]>) {
    match derivative {
        Some(derivative) => {
            for (x, d) in x.iter_mut().zip(derivative) {
                (*x, *d) = of(*x);
            }
        }
        None => {
            for x in x {
                *x = of(*x).0;
            }
        }
    }
}

/// The standard library's, which a pooler's few numbers can afford.
#[inline(always)]
fn tanh(x: f32) -> (f32, f32) {
    let y = x.tanh();
    (y, 1.0 - y * y)
}

/// `y = activation(gate) * up`, where a row of `x` is gate then up.
pub fn gated(activation: Activation, x: &[f32], y: &mut [f32], width: usize) {
    thread_pool::each_chunk(y, ROWS * width, |task, y| {
        let x = &x[task * ROWS * 2 * width..];
        for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            gated_row(activation, &x[..width], &x[width..], y);
        }
    });
}

/// Gradients of gate and up into the two halves of `dx`.
pub fn gated_backward(activation: Activation, x: &[f32], dy: &[f32], dx: &mut [f32], width: usize) {
    thread_pool::each_chunk(dx, ROWS * 2 * width, |task, dx| {
        let first = task * ROWS * width;
        let rows = x[2 * first..].chunks_exact(2 * width).zip(dy[first..].chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(2 * width)) {
            gated_backward_row(activation, &x[..width], &x[width..], dy, dx);
        }
    });
}

vectorised! {
    fn gated_row(activation: Activation, gate: &[f32], up: &[f32], y: &mut [f32]) {
        match activation {
            Activation::Gelu => gate_with(math::gelu, gate, up, y),
            Activation::GeluTanh => gate_with(math::gelu_tanh, gate, up, y),
            Activation::Relu => gate_with(math::relu, gate, up, y),
            Activation::Silu => gate_with(math::silu, gate, up, y),
            Activation::Tanh => gate_with(tanh, gate, up, y),
        }
    }
}

#[inline(always)]
fn gate_with(of: impl Fn(f32) -> (f32, f32), gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
        *y = of(*gate).0 * up;
    }
}

vectorised! {
    fn gated_backward_row(
        activation: Activation,
        gate: &[f32],
        up: &[f32],
        dy: &[f32],
        dx: &mut [f32],
    ) {
        match activation {
            Activation::Gelu => gate_backward_with(math::gelu, gate, up, dy, dx),
            Activation::GeluTanh => gate_backward_with(math::gelu_tanh, gate, up, dy, dx),
            Activation::Relu => gate_backward_with(math::relu, gate, up, dy, dx),
            Activation::Silu => gate_backward_with(math::silu, gate, up, dy, dx),
            Activation::Tanh => gate_backward_with(tanh, gate, up, dy, dx),
        }
    }
}

#[inline(always)]
fn gate_backward_with(
    of: impl Fn(f32) -> (f32, f32),
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    let width = dy.len();
    let (dgate, dup) = dx.split_at_mut(width);
    let (gate, up, dup) = (&gate[..width], &up[..width], &mut dup[..width]);
    for i in 0..width {
        let (value, slope) = of(gate[i]);
        dup[i] = dy[i] * value;
        dgate[i] = dy[i] * up[i] * slope;
    }
}
