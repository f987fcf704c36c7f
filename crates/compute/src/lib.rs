//! Tensors and the few fused operations of a Transformer, each with an exact backward pass.
//!
//! The crate knows the plan: a [`Scope`](fedra_plan::Scope) decides which weights want gradients,
//! and work that no wanted gradient needs is never done. Sequences are packed without padding, so
//! there are no masks to apply and no padded rows to multiply.
//!
//! Sums that matter are the caller's: a loss takes a weight per row or per sequence
//! ([`LossWeights`]), and every value knows where its [`Sequences`] begin.
//!
//! Reading order: a [`Tensor`] lives on a [`Device`], [`Params`] hold a model's tensors, a [`Tape`]
//! computes with them and turns back into [`Gradients`], an [`Optimiser`] applies those.

mod activation;
mod allocator;
mod arithmetic;
mod clipping;
mod cpu;
mod cuda;
mod device;
mod dropout;
mod error;
mod fill;
mod geometry;
mod gradients;
mod kernels;
mod meta;
mod noise;
mod operands;
mod optimiser;
mod params;
mod patches;
mod patching;
mod pool;
mod precision;
mod quantisation;
mod quantised_matrix;
mod rows_at_cut;
mod sequences;
mod solver;
mod storage;
mod sync;
mod tape;
mod tensor;
mod thread_pool;
mod value;
mod weight_format;

pub use activation::Activation;
pub use allocator::{Allocator, OUT_OF_MEMORY};
pub use clipping::{ClipFactors, Clipping};
pub use cpu::amx::NoBf16;
pub use cpu::rotary::Angles;
pub use cuda::{Cuda, CudaError, Gpu, gpus};
pub use device::Device;
pub use dropout::{Dropout, DropoutPlace};
pub use error::ComputeError;
pub use fedra_plan::Solver;
pub use fedra_seed::{Generator, SecretKey, Seed};
pub use geometry::{Attention, Mask, Span};
pub use gradients::{Gradient, Gradients};
pub use optimiser::Optimiser;
pub use params::{Params, Weight, Weights};
pub use patches::{Patches, Pixels};
pub use pool::{Buffer, Counter, Pool, Usage, set_worker};
pub use precision::Precision;
pub use quantisation::Quantisation;
pub use quantised_matrix::QuantisedMatrix;
pub use rows_at_cut::{add_noise_to_row, square_of_row, unclip};
pub use sequences::Sequences;
pub use tape::{
    AttentionProbe, ExampleGradients, Logits, Lora, LossWeights, Magnitude, Projected, Projection,
    RowWeights, Tape, magnitude_factors,
};
pub use tensor::Tensor;
pub use thread_pool::ThreadPool;
pub use value::Value;
pub use weight_format::WeightFormat;
