//! The built binary on tiny experiments: what it prints, writes and refuses.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

mod data;
mod folders;
mod keeping;
#[cfg(target_os = "linux")]
mod memory;
mod plan;
mod refusals;
mod run;

mod place;
