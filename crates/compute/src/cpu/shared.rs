//! A slice whose disjoint parts are written by different tasks.

use std::marker::PhantomData;

/// A mutable slice that hands out segments by offset; the caller keeps them apart.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    start: *mut f32,
    len: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: `segment` obliges its callers to keep concurrent segments disjoint.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Shares a slice for as long as it is borrowed.
    pub fn new(slice: &'a mut [f32]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// `len` floats from `offset`.
    ///
    /// # Safety
    /// No two segments alive at the same time may overlap.
    pub unsafe fn segment(self, offset: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: `pointer` checks the bounds; the caller keeps segments apart.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(offset, len), len) }
    }

    /// `len` floats from `offset`, which several tasks may read.
    ///
    /// # Safety
    /// Nobody may write them meanwhile.
    pub unsafe fn read(self, offset: usize, len: usize) -> &'a [f32] {
        // SAFETY: `pointer` checks the bounds; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.pointer(offset, len), len) }
    }

    /// The address of `offset`, from which `len` floats are inside the slice.
    pub fn pointer(self, offset: usize, len: usize) -> *mut f32 {
        assert!(offset <= self.len && len <= self.len - offset, "a segment lies inside its slice");
        // SAFETY: `offset` is inside the allocation, as just checked.
        unsafe { self.start.add(offset) }
    }
}
