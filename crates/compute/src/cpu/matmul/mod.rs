//! Matrix products: a right operand in panels, a left operand in rows or strips, a register-tile kernel.
//!
//! Everything a Transformer adds around a product happens while the numbers are at hand: sums start
//! from a bias, a residual or what the destination already holds; an activation is applied to a block
//! before it leaves the cache; bias gradients are row sums of the left operand.
//! The order of additions for one element depends only on the depth, never on the thread count.

mod few_rows;
mod kernel;
mod moves;
mod pack;
mod product;
mod right;
#[cfg(test)]
mod tests;
mod view;

pub use few_rows::{Stored, applies as has_few_rows, multiply_keys, multiply_stored};
pub use pack::transpose_into;
pub use product::{
    Extras, Finish, Product, Start, left_len, multiply, multiply_serial, multiply_together,
    serial_len,
};
pub use right::Right;
pub use view::{Mat, MatMut};
