//! Memory that is counted and never there.
//!
//! A step on a meta device asks for the same tensors as a real one and computes nothing, so the
//! high-water mark of a step is known before anybody has the memory for it.

use std::sync::Arc;

use super::high_water::HighWater;
use super::slabs::rounded;
use super::usage::Usage;
use crate::cpu::bf16_products::Products;

/// Counts what a device without numbers would hold.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    level: Arc<HighWater>,
    /// How matrices would be multiplied, which decides what they take when packed.
    products: Products,
}

impl Counter {
    /// The same count, with another arithmetic for matrix products.
    pub(crate) fn with_products(&self, products: Products) -> Self {
        Self { level: Arc::clone(&self.level), products }
    }

    /// How matrices would be multiplied.
    pub(crate) fn products(&self) -> Products {
        self.products
    }

    /// Room for so many floats, on paper.
    pub(crate) fn take(&self, len: usize) -> Counted {
        let length = rounded(len);
        self.level.add(length);
        Counted { len, length, counter: self.clone() }
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
}

impl Counted {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn counter(&self) -> &Counter {
        &self.counter
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counter.level.subtract(self.length);
    }
}
