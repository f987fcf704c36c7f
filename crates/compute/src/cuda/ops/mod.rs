//! The operations of [`kernels`](crate::kernels) on a GPU: each chooses kernels, shapes and order. Callers have
//! checked shapes.

mod attention;
mod decode;
mod draws;
mod elementwise;
mod examples;
mod losses;
mod norms;
mod optimiser;
mod products;
mod quantised;
mod rows;

pub(crate) use attention::{attention, attention_backward, probe};
pub(crate) use decode::{argmax, attention_decoding, decodes, gates, linear_gated};
pub(crate) use draws::{add_noise, drop_out};
pub(crate) use elementwise::{
    activate, add_scaled, add_scaled_difference, divide, gated, gated_backward, multiply, rotate,
    scale, scale_by, scale_own_rows, scale_rows, shifted, soft_cap, soft_cap_backward, subtract,
    sum_of_squares,
};
pub(crate) use examples::{PendingSquares, weighted_rows_together};
pub(crate) use losses::{
    HELD, binary_cross_entropy, cross_entropy, vocabulary_loss, vocabulary_loss_by_example,
};
pub(crate) use norms::{
    column_weight_sums, magnitude_factors, norm, norm_backward, norm_columns_backward,
    norm_example_sums, scale_columns, shift_columns,
};
pub(crate) use optimiser::optimise;
pub(crate) use products::{linear, linear_backward, matmul};
pub(crate) use rows::{
    PART, column_sums, example_sums, gather, patches, scatter_add, sum_by_row, weighted_rows,
};
