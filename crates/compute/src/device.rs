//! Where numbers live and who computes with them.
//!
//! Models see only [`Tape`](crate::Tape) operations, and operations see only tensors. A second device
//! joins by a new variant here; the compiler then lists what `kernels.rs`, which computes, and
//! `storage.rs`, which keeps numbers, must learn.

use crate::pool::{Counter, Pool, Usage};

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
}

impl Device {
    /// The processor, with a memory pool of its own.
    pub fn cpu() -> Self {
        Self::Cpu(Pool::new())
    }

    /// The same for a process that trains now and then: when it [rests](Device::rest), memory that is not
    /// in use goes back to the system.
    pub fn frugal_cpu() -> Self {
        Self::Cpu(Pool::frugal())
    }

    /// A device without numbers, which counts from nothing. Tensors read as zeros.
    pub fn meta() -> Self {
        Self::Meta(Counter::default())
    }

    /// Whether there are numbers in its tensors.
    pub const fn has_numbers(&self) -> bool {
        match self {
            Self::Cpu(_) => true,
            Self::Meta(_) => false,
        }
    }

    /// What the device's pool has handed out.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Cpu(pool) => pool.usage(),
            Self::Meta(counter) => counter.usage(),
        }
    }

    /// Nobody trains for a while. Does nothing unless the device is frugal.
    pub fn rest(&self) {
        match self {
            Self::Cpu(pool) => pool.rest(),
            Self::Meta(_) => {}
        }
    }

    /// Forgets the high-water mark of memory.
    pub fn reset_peak(&self) {
        match self {
            Self::Cpu(pool) => pool.reset_peak(),
            Self::Meta(counter) => counter.reset_peak(),
        }
    }
}
