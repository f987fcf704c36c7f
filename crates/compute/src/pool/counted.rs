//! Memory that is counted and never there.
//!
//! A step on a meta device asks for the same tensors as a real one and computes nothing, so the
//! high-water mark of a step is known before anybody has the memory for it.

use std::sync::Arc;

use super::high_water::HighWater;
use super::slabs::rounded;
use super::usage::Usage;

/// Counts what a device without numbers would hold.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<HighWater>);

impl Counter {
    /// Room for so many floats, on paper.
    pub(crate) fn take(&self, len: usize) -> Counted {
        let length = rounded(len);
        self.0.add(length);
        Counted { len, length, counter: self.clone() }
    }

    /// What is and was counted.
    pub fn usage(&self) -> Usage {
        let (live, peak) = self.0.read();
        let bytes = |floats: usize| floats * size_of::<f32>();
        Usage { live_bytes: bytes(live), peak_bytes: bytes(peak), ..Usage::default() }
    }

    /// Forgets the high-water mark, so that the next reading is of what follows.
    pub fn reset_peak(&self) {
        self.0.reset_peak();
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
        self.counter.0.subtract(self.length);
    }
}
