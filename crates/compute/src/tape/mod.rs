//! A tape of fused operations that knows the plan.
//!
//! An operation is recorded only when something it depends on trains, and keeps only what its
//! backward needs for that. So nothing is saved or computed below the lowest trained block, frozen
//! weights get no gradient, and evaluation is the same code with an empty scope. Backward can start
//! from any value with a gradient received from elsewhere, and returns the gradient of any input.

mod attention;
mod book;
mod by_example;
mod cached_attention;
mod classify;
mod columns;
mod corrected_vocabulary;
mod decomposed;
mod dropout;
mod elementwise;
mod embedding;
mod example_factors;
mod example_gradients;
mod gated;
mod inserted_rows;
mod linear;
mod norm;
mod projection;
mod record;
mod rotary;
mod rows;
mod sequence_means;
mod vocabulary;
mod weights;

pub use attention::{AttentionProbe, Projected};
pub use example_gradients::ExampleGradients;
pub use projection::{Lora, Magnitude, Projection, magnitude_factors};
pub use record::Tape;
pub use vocabulary::Logits;
pub use weights::{LossWeights, RowWeights};
