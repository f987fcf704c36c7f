//! Placeholder.

pub mod error;
pub mod hf;
