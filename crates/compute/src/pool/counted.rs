//! Memory that is counted and never there.
//!
//! A step on a meta device asks for the same tensors as a real one and computes nothing, so the
//! high-water mark of a step is known before anybody has the memory for it. A counter stands for the
//! processor, or for a GPU of a precision: activations may be bf16 there, products read bf16 copies of
//! weights, and lengths are rounded as its memory rounds them.

use std::sync::{Arc, Mutex, PoisonError};

use super::high_water::HighWater;
use super::slabs::rounded;
use super::usage::Usage;
use crate::cpu::bf16_products::Products;
use crate::precision::Precision;

/// Floats that a GPU's buffers are multiples of.
const GPU_LINE: usize = 64;

/// Counts what a device without numbers would hold.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    level: Arc<HighWater>,
    /// How matrices would be multiplied, which decides what they take when packed.
    products: Products,
    /// The precision of the GPU that it stands for; `None` for the processor.
    gpu: Option<Precision>,
}

impl Counter {
    /// The same count, with another arithmetic for matrix products.
    pub(crate) fn with_products(&self, products: Products) -> Self {
        Self { level: Arc::clone(&self.level), products, gpu: self.gpu }
    }

    /// How matrices would be multiplied.
    pub(crate) fn products(&self) -> Products {
        self.products
    }

    /// Counts what a GPU would hold; so many bytes that its products work with are there from the start.
    pub(crate) fn of_gpu(precision: Precision, workspace: u64) -> Self {
        let counter = Self { gpu: Some(precision), ..Self::default() };
        counter.level.add(workspace as usize / size_of::<f32>());
        counter
    }

    /// Whether it stands for a GPU.
    pub(crate) const fn is_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// Whether activations are bf16.
    pub(crate) const fn is_bf16(&self) -> bool {
        matches!(self.gpu, Some(Precision::Bf16))
    }

    /// Room for so many floats, on paper.
    pub(crate) fn take(&self, len: usize) -> Counted {
        let length =
            if self.is_gpu() { len.max(1).next_multiple_of(GPU_LINE) } else { rounded(len) };
        self.level.add(length);
        Counted { len, length, counter: self.clone(), bf16: Mutex::default() }
    }

    /// What is and was counted.
    pub fn usage(&self) -> Usage {
        let (live, peak) = self.level.read();
        let bytes = |floats: usize| floats * size_of::<f32>();
        Usage { live_bytes: bytes(live), peak_bytes: bytes(peak), ..Usage::default() }
    }

    /// Forgets the high-water mark, so that the next reading is of what follows.
    pub fn reset_peak(&self) {
        self.level.reset_peak();
    }
}

/// A buffer on paper; its floats are no longer counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    len: usize,
    /// With what a pool would round it up to.
    length: usize,
    counter: Counter,
    /// The bf16 copy that a GPU's products read, until somebody writes to the buffer.
    bf16: Mutex<Option<Box<Counted>>>,
}

impl Counted {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn counter(&self) -> &Counter {
        &self.counter
    }

    /// A product of a GPU reads `count` numbers as bf16: the copy stays.
    pub fn round(&self, count: usize) {
        let mut copy = self.bf16.lock().unwrap_or_else(PoisonError::into_inner);
        copy.get_or_insert_with(|| Box::new(self.counter.take(count.div_ceil(2))));
    }

    /// From now on its numbers are others.
    pub fn forget(&self) {
        self.bf16.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counter.level.subtract(self.length);
    }
}
