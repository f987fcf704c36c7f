//! Where numbers live and who computes with them.
//!
//! Models see only [`Tape`](crate::Tape) operations, and operations see only tensors. A second device
//! joins by a new variant here; the compiler then lists what `kernels`, which computes, and
//! `storage.rs`, which keeps numbers, must learn.

use crate::cpu::amx::NoBf16;
use crate::cpu::bf16_products::{Products, TileKernel};
use crate::cuda::{Cuda, CudaError, WORKSPACE};
use crate::error::ComputeError;
use crate::pool::{Counter, Pool, Usage};
use crate::precision::Precision;

/// A device and its memory.
///
/// Work on the processor runs on the current [`ThreadPool`](crate::ThreadPool): run a step inside its `install`
/// to choose the number of threads.
#[derive(Clone, Debug)]
pub enum Device {
    /// The processor.
    Cpu(Pool),
    /// No numbers: tensors have a shape and are counted, and nothing is computed. A step here holds
    /// what it would hold on the processor, which is how its memory is foreseen.
    Meta(Counter),
    /// A GPU of NVIDIA's.
    Cuda(Cuda),
}

impl Device {
    /// The processor, with a memory pool of its own.
    pub fn cpu() -> Self {
        Self::Cpu(Pool::new())
    }

    /// The processor, for a process that trains now and then: when it [rests](Device::rest), memory that is not
    /// in use goes back to the system.
    pub fn frugal_cpu() -> Self {
        Self::Cpu(Pool::frugal())
    }

    /// A GPU by its number; see [`gpus`](crate::gpus).
    pub fn cuda(number: usize, precision: Precision) -> Result<Self, CudaError> {
        Cuda::open(number, precision).map(Self::Cuda)
    }

    /// What failed on the device, if anything did. Nothing is computed after a failure, so whoever uses results
    /// asks first; steps of a tape and an optimiser do.
    pub fn check(&self) -> Result<(), ComputeError> {
        match self {
            Self::Cpu(_) | Self::Meta(_) => Ok(()),
            Self::Cuda(cuda) => Ok(cuda.check()?),
        }
    }

    /// Waits until all work that was asked for is done.
    pub fn synchronise(&self) {
        match self {
            Self::Cpu(_) | Self::Meta(_) => {}
            Self::Cuda(cuda) => cuda.synchronise(),
        }
    }

    /// Runs work of this thread beside that of other threads, where the device computes for several at a time. What
    /// the work reads must not change meanwhile.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Cpu(_) | Self::Meta(_) => work(),
            Self::Cuda(cuda) => cuda.aside(work),
        }
    }

    /// A device without numbers, which counts from nothing. Tensors read as zeros.
    pub fn meta() -> Self {
        Self::Meta(Counter::default())
    }

    /// The same with matrix products in bf16: operands are rounded, sums and everything else are f32.
    /// Products of at most 16 rows and sums of clipped gradients stay f32. Refused where the processor
    /// has no instructions for it, because it would only be slower. A GPU keeps the precision that it was
    /// opened with.
    pub fn with_bf16_products(&self) -> Result<Self, NoBf16> {
        match self {
            Self::Cpu(_) => {
                Ok(self.with_products(Products::Bf16(TileKernel::of_this_processor()?)))
            }
            Self::Meta(_) | Self::Cuda(_) => Ok(self.with_emulated_bf16()),
        }
    }

    /// The same arithmetic on any processor, slowly: to test it.
    pub fn with_emulated_bf16(&self) -> Self {
        self.with_products(Products::Bf16(TileKernel::Plain))
    }

    /// In which precision it multiplies.
    pub fn precision(&self) -> Precision {
        let products = match self {
            Self::Cpu(pool) => pool.products(),
            Self::Meta(counter) => counter.products(),
            Self::Cuda(cuda) => return cuda.precision(),
        };
        match products {
            Products::F32 => Precision::F32,
            Products::Bf16(_) => Precision::Bf16,
        }
    }

    /// The same with matrix products in f32, where they are the processor's.
    pub(crate) fn with_f32_products(&self) -> Self {
        self.with_products(Products::F32)
    }

    fn with_products(&self, products: Products) -> Self {
        match self {
            Self::Cpu(pool) => Self::Cpu(pool.with_products(products)),
            Self::Meta(counter) => Self::Meta(counter.with_products(products)),
            Self::Cuda(cuda) => Self::Cuda(cuda.clone()),
        }
    }

    /// The same for a GPU of this precision: a step here holds what it would hold in that GPU's memory, without
    /// the tables of a few kilobytes that tell kernels where rows are.
    pub fn meta_gpu(precision: Precision) -> Self {
        Self::Meta(Counter::of_gpu(precision, WORKSPACE))
    }

    /// Takes at most so many bytes of a GPU from now on; main memory has no such limit.
    pub fn limit_memory(&self, bytes: Option<u64>) {
        match self {
            Self::Cpu(_) | Self::Meta(_) => {}
            Self::Cuda(cuda) => cuda.limit_memory(bytes),
        }
    }

    /// Whether there are numbers in its tensors.
    pub const fn has_numbers(&self) -> bool {
        match self {
            Self::Cpu(_) | Self::Cuda(_) => true,
            Self::Meta(_) => false,
        }
    }

    /// Whether tensors of another device can be used here as they are.
    pub(crate) fn holds_tensors_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu(_), Self::Cpu(_)) | (Self::Meta(_), Self::Meta(_)) => true,
            (Self::Cuda(one), Self::Cuda(other)) => one.is_same(other),
            (Self::Cpu(_) | Self::Meta(_) | Self::Cuda(_), _) => false,
        }
    }

    /// Whether the backward pass of attention reads its result.
    pub(crate) const fn reads_attention_results(&self) -> bool {
        match self {
            Self::Cpu(_) => false,
            Self::Meta(counter) => counter.is_gpu(),
            Self::Cuda(_) => true,
        }
    }

    /// What the device's pool has handed out.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Cpu(pool) => pool.usage(),
            Self::Meta(counter) => counter.usage(),
            Self::Cuda(cuda) => cuda.usage(),
        }
    }

    /// Nobody trains for a while. Does nothing unless the device is frugal.
    pub fn rest(&self) {
        match self {
            Self::Cpu(pool) => pool.rest(),
            Self::Meta(_) | Self::Cuda(_) => {}
        }
    }

    /// Whether activations are bf16 on it.
    pub(crate) fn has_bf16_activations(&self) -> bool {
        match self {
            Self::Cpu(_) => false,
            Self::Meta(counter) => counter.is_bf16(),
            Self::Cuda(cuda) => cuda.is_bf16(),
        }
    }

    /// Forgets the high-water mark of memory.
    pub fn reset_peak(&self) {
        match self {
            Self::Cpu(pool) => pool.reset_peak(),
            Self::Meta(counter) => counter.reset_peak(),
            Self::Cuda(cuda) => cuda.reset_peak(),
        }
    }
}
