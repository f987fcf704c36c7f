//! A GPU of NVIDIA's: memory, kernels and products on streams.
//!
//! The driver and its libraries are found when a GPU is opened; a machine without them builds and runs the same
//! program. Kernels are readable files in `kernels/`, compiled once on the machine that runs them. Calls only
//! add work to a stream: the processor runs ahead, and waits where it reads numbers back.
//!
//! A failed call is remembered, and nothing is computed after it; [`Cuda::check`] tells. A step asks when it is
//! done, so that what was computed after a failure is never used. Memory stays the process's until it ends.

mod arena;
mod arguments;
mod compiler;
mod driver;
mod error;
mod lane;
mod library;
pub(crate) mod moves;
mod opened;
pub(crate) mod ops;
mod products;
mod staging;
mod uploads;

pub(crate) use arguments::Numbers;
pub use driver::{Gpu, gpus};
pub use error::CudaError;
pub(crate) use opened::Buffer;
pub use opened::Cuda;
pub(crate) use products::WORKSPACE;
pub(crate) use uploads::Plain;
