//! Matrix products: a right operand in panels, a left operand in rows or strips, a register-tile kernel.
//!
//! Everything a Transformer adds around a product happens while the numbers are at hand: sums start
//! from a bias, a residual or what the destination already holds; an activation is applied to a block
//! before it leaves the cache; bias gradients are row sums of the left operand.
//! The order of additions for one element depends only on the depth, never on the thread count.
//!
//! Where the pool of the right operand says so, operands are rounded to bf16 and multiplied in blocks
//! (`tile.rs`, `tile_pack.rs`, `tile_product.rs`); sums stay f32.

mod few_rows;
mod kernel;
mod moves;
mod pack;
mod product;
mod right;
mod stored;
mod task;
#[cfg(test)]
mod tests;
mod tile;
mod tile_pack;
mod tile_product;
#[cfg(test)]
mod tile_tests;
mod view;

pub use few_rows::{applies as has_few_rows, multiply_keys, multiply_stored};
pub use kernel::WIDTH;
pub use pack::transpose_into;
pub use product::{
    Extras, Product, left_len, multiply, multiply_serial, multiply_together, serial_len,
};
pub use right::Right;
pub use stored::Stored;
pub use task::{Finish, Start};
pub use view::{Mat, MatMut};
