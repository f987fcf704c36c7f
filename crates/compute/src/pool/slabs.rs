//! Large stretches of memory, cut into pieces and joined again.
//!
//! A slab is large enough for the system to map it separately and to give it pages only where it is
//! touched. Pieces are cut from the smallest free stretch that holds them, so the untouched end of
//! a slab is used only when nothing else fits. A piece that comes back is joined with free neighbours
//! of the same slab. An unused slab goes back to the system once the others hold
//! what was ever in use at once.
//!
//! ```text
//! slab  | piece | free | piece | piece |  free: never touched ...      |
//!                                      ^ reached: what the process holds
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::NonNull;

/// Floats in a cache line: where a piece starts and how its length is rounded up.
const LINE: usize = 16;
/// Floats of a slab: 64 MiB. Beyond 32 MiB the C library always maps memory on its own.
/// (Small under Miri, which keeps a record of every byte. Under a sanitizer a new buffer has a slab
/// of its own, because a sanitizer sees an access out of bounds only at the end of an allocation.)
pub(super) const SLAB: usize = if cfg!(miri) {
    1 << 14
} else if cfg!(sanitized) {
    LINE
} else {
    16 << 20
};

/// The largest page of any system that this runs on, in bytes.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
const PAGES: usize = 64 << 10;

/// All slabs of a shard.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    all: BTreeMap<usize, Slab>,
    next: usize,
    /// Lengths of free stretches by slab and offset.
    free: BTreeMap<(usize, usize), usize>,
    /// The same by length, then slab and offset.
    by_length: BTreeSet<(usize, usize, usize)>,
    live: usize,
    peak: usize,
    /// Floats ever touched in the present slabs.
    held: usize,
    allocations: usize,
}

/// A stretch that is in use.
#[derive(Debug)]
pub(super) struct Piece {
    start: NonNull<f32>,
    slab: usize,
    offset: usize,
    length: usize,
}

// SAFETY: a piece is the only one that refers to its stretch; moving it moves the ownership.
unsafe impl Send for Piece {}
// SAFETY: shared access to a piece only reads the pointer.
unsafe impl Sync for Piece {}

impl Piece {
    pub(super) fn start(&self) -> *mut f32 {
        self.start.as_ptr()
    }

    /// Floats that it takes.
    pub(super) const fn length(&self) -> usize {
        self.length
    }
}

/// Floats that a piece of at least `len` takes.
pub(super) fn rounded(len: usize) -> usize {
    len.max(1).next_multiple_of(LINE)
}

impl Slabs {
    /// A piece of at least `len` floats, initialised but arbitrary.
    pub(super) fn take(&mut self, len: usize) -> Piece {
        // Checked before anything is rounded up: a size that wraps around would be a short piece behind
        // a long slice.
        assert!(len <= isize::MAX as usize / 8, "a buffer is smaller than the address space");
        let length = rounded(len);
        if self.by_length.range((length, 0, 0)..).next().is_none() {
            self.add_slab(length);
        }
        let found = self.by_length.range((length, 0, 0)..).next().copied();
        let (stretch, slab, offset) = found.expect("a slab of at least this length was just added");
        self.remove_free(stretch, (slab, offset));
        if stretch > length {
            self.insert_free(stretch - length, (slab, offset + length));
        }
        self.live += length;
        self.peak = self.peak.max(self.live);
        let memory = self.all.get_mut(&slab).expect("free stretches are of slabs that exist");
        memory.in_use += length;
        if offset + length > memory.reached {
            self.held += offset + length - memory.reached;
            memory.reached = offset + length;
            self.allocations += 1;
        }
        // SAFETY: the stretch lies inside the slab's allocation.
        let start = unsafe { memory.start.add(offset) };
        Piece { start, slab, offset, length }
    }

    /// Joins a piece with the free stretches beside it.
    #[expect(clippy::needless_pass_by_value, reason = "what is back is nobody's to use any more")]
    pub(super) fn give_back(&mut self, piece: Piece) {
        let Piece { slab, mut offset, mut length, .. } = piece;
        self.live -= length;
        let memory = self.all.get_mut(&slab).expect("a slab outlives its pieces");
        memory.in_use -= length;
        // Whatever the others hold covers what was ever in use: this one is not needed.
        if memory.in_use == 0 && self.held - memory.reached >= self.peak {
            self.remove_slab(slab);
            return;
        }
        let before = self.free.range((slab, 0)..(slab, offset)).next_back();
        if let Some((&(_, start), &stretch)) = before
            && start + stretch == offset
        {
            self.remove_free(stretch, (slab, start));
            (offset, length) = (start, stretch + length);
        }
        if let Some(&stretch) = self.free.get(&(slab, offset + length)) {
            self.remove_free(stretch, (slab, offset + length));
            length += stretch;
        }
        self.insert_free(length, (slab, offset));
    }

    /// What is not in use goes back to the system: slabs whole, and the pages between pieces of others.
    pub(super) fn rest(&mut self) {
        let unused = |(slab, memory): (&usize, &Slab)| (memory.in_use == 0).then_some(*slab);
        let unused: Vec<usize> = self.all.iter().filter_map(unused).collect();
        for slab in unused {
            self.remove_slab(slab);
        }
        for (&(slab, offset), &length) in &self.free {
            let memory = self.all.get_mut(&slab).expect("free stretches are of slabs that exist");
            let end = memory.reached.min(offset + length);
            if offset >= end {
                continue;
            }
            memory.let_go(offset..end);
            if end == memory.reached {
                self.held -= end - offset;
                memory.reached = offset;
            }
        }
    }

    /// Floats ever touched in the present slabs.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// How often memory was taken that had never been used before.
    pub(super) const fn allocations(&self) -> usize {
        self.allocations
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.live;
    }

    fn add_slab(&mut self, least: usize) {
        let slab = Slab::new(least.max(SLAB));
        self.insert_free(slab.length, (self.next, 0));
        self.all.insert(self.next, slab);
        self.next += 1;
    }

    fn remove_slab(&mut self, slab: usize) {
        let stretches: Vec<(usize, usize)> =
            self.free.range((slab, 0)..(slab + 1, 0)).map(|(place, len)| (*len, place.1)).collect();
        for (length, offset) in stretches {
            self.remove_free(length, (slab, offset));
        }
        if let Some(gone) = self.all.remove(&slab) {
            self.held -= gone.reached;
        }
    }

    fn insert_free(&mut self, length: usize, (slab, offset): (usize, usize)) {
        self.free.insert((slab, offset), length);
        self.by_length.insert((length, slab, offset));
    }

    fn remove_free(&mut self, length: usize, (slab, offset): (usize, usize)) {
        self.free.remove(&(slab, offset));
        self.by_length.remove(&(length, slab, offset));
    }
}

/// One allocation of zeroed floats.
#[derive(Debug)]
struct Slab {
    /// Where the allocation begins.
    allocation: NonNull<u8>,
    /// The first float, on a cache line.
    start: NonNull<f32>,
    length: usize,
    in_use: usize,
    /// Up to where it was ever used.
    reached: usize,
}

// SAFETY: a slab owns its allocation exclusively; moving it to another thread moves ownership.
unsafe impl Send for Slab {}

impl Slab {
    fn new(length: usize) -> Self {
        let layout = Self::layout(length);
        // SAFETY: the layout's size is at least one cache line, never zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(allocation) = NonNull::new(start) else { handle_alloc_error(layout) };
        let skipped = start.align_offset(LINE * size_of::<f32>());
        // SAFETY: the layout has a cache line more than the floats take.
        let start = unsafe { allocation.add(skipped) }.cast::<f32>();
        Self { allocation, start, length, in_use: 0, reached: 0 }
    }

    /// Gives the system the pages of a stretch that nobody uses; they are zeros when they are touched again.
    #[cfg(all(target_os = "linux", not(any(miri, loom))))]
    fn let_go(&mut self, stretch: Range<usize>) {
        // SAFETY: the stretch lies inside this allocation.
        let (begin, end) = unsafe { (self.start.add(stretch.start), self.start.add(stretch.end)) };
        let begin = begin.cast::<u8>();
        let skipped = begin.align_offset(PAGES);
        let length = end.addr().get() & !(PAGES - 1);
        let length = length.saturating_sub(begin.addr().get() + skipped);
        if length > 0 {
            // SAFETY: whole pages inside the stretch, which no piece refers to; whoever takes it next expects
            // any numbers. Where the system refuses, the pages stay.
            let _kept_where_refused = unsafe {
                libc::madvise(begin.add(skipped).as_ptr().cast(), length, libc::MADV_DONTNEED)
            };
        }
    }

    #[cfg(not(all(target_os = "linux", not(any(miri, loom)))))]
    fn let_go(&mut self, _stretch: Range<usize>) {}

    /// Asking for a cache line's alignment here would have every page written at once: the
    /// standard library zeroes such memory by hand.
    fn layout(length: usize) -> Layout {
        let bytes = (length + LINE) * size_of::<f32>();
        Layout::from_size_align(bytes, align_of::<f32>()).expect("a tensor is below isize::MAX")
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed once.
        unsafe { dealloc(self.allocation.as_ptr(), Self::layout(self.length)) }
    }
}
