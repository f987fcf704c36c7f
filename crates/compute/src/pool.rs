//! Buffers that are used again: after the first step, training allocates nothing.
//!
//! A buffer goes back to its pool when it is dropped. Sizes are rounded up to a class, so that
//! batches of slightly different lengths share buffers. The high-water mark counts what was in use
//! at once; it is the memory figure that planning predicts and benchmarks report.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ALIGN: usize = 64;

/// A shared store of idle buffers.
///
/// ```
/// # use fedra_compute::Pool;
/// let pool = Pool::new();
/// drop(pool.take(1000));
/// let again = pool.take(990); // the same memory
/// assert_eq!(pool.usage().allocations, 1);
/// assert_eq!(again.len(), 990);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Shelves>>);

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer of `len` floats with arbitrary contents.
    pub fn take(&self, len: usize) -> Buffer {
        let class = size_class(len);
        let mut shelves = self.shelves();
        let memory = if let Some(memory) = shelves.idle.get_mut(&class).and_then(Vec::pop) {
            shelves.usage.idle_bytes -= bytes(class);
            memory
        } else {
            shelves.usage.allocations += 1;
            Memory::zeroed(class)
        };
        shelves.usage.live_bytes += bytes(class);
        shelves.usage.peak_bytes = shelves.usage.peak_bytes.max(shelves.usage.live_bytes);
        Buffer { memory: Some(memory), len, pool: self.clone() }
    }

    /// A buffer of `len` zeros.
    pub fn zeros(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// What is and was in use.
    pub fn usage(&self) -> Usage {
        self.shelves().usage
    }

    /// Forgets the high-water mark, so that the next reading is of what follows.
    pub fn reset_peak(&self) {
        let mut shelves = self.shelves();
        shelves.usage.peak_bytes = shelves.usage.live_bytes;
    }

    fn give_back(&self, memory: Memory) {
        let mut shelves = self.shelves();
        let size = bytes(memory.class);
        shelves.usage.live_bytes -= size;
        // Idle buffers of sizes that no longer occur must not pile up: together with what is in
        // use they never exceed twice what was ever in use at once. (Less would free buffers that
        // the next step takes again: a step's sizes are not all in use at the same time.)
        let held = shelves.usage.idle_bytes + shelves.usage.live_bytes + size;
        if held <= 2 * shelves.usage.peak_bytes {
            shelves.usage.idle_bytes += size;
            shelves.idle.entry(memory.class).or_default().push(memory);
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        // A panic elsewhere cannot leave the counts half-changed: nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a pool has handed out, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In use now.
    pub live_bytes: usize,
    /// Most ever in use at once.
    pub peak_bytes: usize,
    /// Kept for the next request.
    pub idle_bytes: usize,
    /// How often the system was asked for memory.
    pub allocations: usize,
}

/// Floats from a [`Pool`], aligned to a cache line; they go back when dropped.
#[derive(Debug)]
pub struct Buffer {
    memory: Option<Memory>,
    len: usize,
    pool: Pool,
}

impl Buffer {
    /// The pool this buffer came from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The same memory as numbers of half the width, two for each float.
    pub(crate) fn halves(&self) -> &[u16] {
        // SAFETY: `len` floats are initialised memory of twice as many u16, which need less
        // alignment and take any bits.
        unsafe { std::slice::from_raw_parts(self.memory().start.as_ptr().cast(), 2 * self.len) }
    }

    /// The same, to be written.
    pub(crate) fn halves_mut(&mut self) -> &mut [u16] {
        // SAFETY: as in `halves`; any bits are a float, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.memory().start.as_ptr().cast(), 2 * self.len) }
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("memory is only taken away in drop")
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the memory holds at least `len` initialised floats and is owned by this buffer.
        unsafe { std::slice::from_raw_parts(self.memory().start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.memory().start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

#[derive(Debug, Default)]
struct Shelves {
    idle: BTreeMap<usize, Vec<Memory>>,
    usage: Usage,
}

/// An allocation of `class` floats, all initialised.
#[derive(Debug)]
struct Memory {
    start: NonNull<f32>,
    class: usize,
}

// SAFETY: `Memory` owns its allocation exclusively; moving it to another thread moves ownership.
unsafe impl Send for Memory {}
// SAFETY: shared access to `Memory` only reads the pointer and the class.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(class: usize) -> Layout {
        Layout::from_size_align(bytes(class), ALIGN).expect("size classes are far below isize::MAX")
    }

    fn zeroed(class: usize) -> Self {
        let layout = Self::layout(class);
        #[expect(clippy::cast_ptr_alignment, reason = "the layout is aligned to a cache line")]
        // SAFETY: the layout's size is at least one cache line, never zero.
        let start = unsafe { alloc_zeroed(layout) }.cast::<f32>();
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, class }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, and freed once.
        unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.class)) }
    }
}

fn bytes(class: usize) -> usize {
    class.checked_mul(size_of::<f32>()).expect("a buffer is smaller than the address space")
}

/// Rounds up to a sixteenth of the next power of two: at most 12.5 % is wasted.
fn size_class(len: usize) -> usize {
    // Checked before anything is rounded up: a size that wraps around would be a small allocation
    // behind a long slice.
    assert!(len <= isize::MAX as usize / 8, "a buffer is smaller than the address space");
    let step = (len.next_power_of_two() / 16).max(16);
    len.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_holds_its_length_and_wastes_an_eighth_at_most() {
        for len in [0, 1, 15, 16, 17, 255, 257, 1000, 4097, 1_000_003] {
            let class = size_class(len);
            assert!(class >= len && class.is_multiple_of(16), "{len} -> {class}");
            assert!(len < 256 || class - len <= len / 8, "{len} -> {class}");
        }
    }

    #[test]
    fn a_length_whose_bytes_do_not_fit_a_number_is_refused() {
        for len in [usize::MAX, usize::MAX / 4 + 1, 1 << (usize::BITS - 2)] {
            let taken = std::panic::catch_unwind(|| Pool::new().take(len));
            assert!(taken.is_err(), "{len} floats");
        }
    }

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = Pool::new();
        let first = pool.take(100);
        assert_eq!(first.as_ptr() as usize % ALIGN, 0);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(100).as_ptr(), address);
        assert_eq!(pool.usage().allocations, 1);
        assert_eq!(pool.usage().live_bytes, 0);
    }

    #[test]
    fn idle_memory_of_sizes_no_longer_used_is_bounded() {
        let pool = Pool::new();
        for len in 1..200 {
            drop(pool.take(len * 1000));
        }
        let usage = pool.usage();
        assert!(usage.idle_bytes <= usage.peak_bytes * 2, "{usage:?}");
    }
}
