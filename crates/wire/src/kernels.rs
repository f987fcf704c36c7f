//! Single passes over long runs of numbers at the speed of memory: checksum, check, add, divide.
//!
//! A server that folds updates does little arithmetic with many bytes, so what counts is how often
//! a byte is fetched and how many fetches are under way at once. Hence each function here is one
//! pass that does all there is to do with a byte, over four far-apart quarters in turn, because one
//! stream of reads leaves a processor waiting. Numbers are f32, little endian, at any address.

#![expect(
    clippy::inline_always,
    reason = "a pass is compiled for a processor only as far as it is inlined into the entry for it"
)]

mod dispatch;
mod lanes;
mod passes;
mod prefetch;
mod shares;

pub use dispatch::{add, divide, lanes};
pub use lanes::Lanes;
pub use passes::{Excess, Inspected, LIMIT};
pub use shares::{inspect, merge, squares, store};

/// The checksum of some bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    lanes(bytes).finish()
}
