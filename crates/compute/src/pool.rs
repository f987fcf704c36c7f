//! Buffers that are used again: after the first steps, training asks the system for nothing.
//!
//! The pool cuts buffers out of large slabs, the smallest free piece that fits first, and joins
//! neighbours again when they come back ([`Slabs`]). So batches of all lengths share the same
//! memory, and what a run takes stays near what is in use at once; buffers of their own for every
//! length would take twice that and leave the rest in pieces. The high-water mark counts what was
//! in use at once; it is the memory figure that planning predicts and benchmarks report.
//!
//! Threads that train clients side by side take from shards of their own: under one lock two threads
//! spent a third of their time on waiting and on memory that was in the other core's cache. Whoever
//! starts workers numbers them ([`set_worker`]), and a number is a shard. So the threads of one round use
//! the memory of those of the round before, and what a run takes does not depend on who waits for whom.
//!
//! A process that trains one client now and then is better off with a frugal pool: between two trainings it
//! needs that memory for the messages ([`Pool::rest`]).

mod counted;
mod high_water;
mod slabs;
mod usage;

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use counted::Counted;
pub use counted::Counter;
use high_water::HighWater;
use slabs::{Piece, Slabs};
pub use usage::Usage;

use crate::cpu::bf16_products::Products;

/// Most threads that have a shard to themselves.
const SHARDS: usize = 32;
/// How far apart the shards of a worker and of the helpers in its loops are.
const HELPERS: usize = 8;

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// The number of this thread.
pub(crate) fn worker() -> usize {
    WORKER.get()
}

/// Makes this thread a helper, from one, in the loops of a worker: it has a shard of its own too.
pub(crate) fn help_worker(worker: usize, helper: usize) {
    set_worker(worker + HELPERS * helper);
}

/// Says which of the workers side by side this thread is, from zero. Workers take memory from
/// different shards of every pool; whoever says nothing shares that of worker 0.
pub fn set_worker(number: usize) {
    WORKER.set(number % SHARDS);
}

/// A shared store of memory for buffers.
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
pub struct Pool {
    shared: Arc<Shared>,
    /// How matrices over its buffers are multiplied.
    products: Products,
}

#[derive(Debug, Default)]
struct Shared {
    shards: [Mutex<Slabs>; SHARDS],
    /// Over all shards.
    level: HighWater,
    /// Whether it gives memory back when it rests.
    is_frugal: bool,
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty pool that gives memory back when it rests.
    pub fn frugal() -> Self {
        let shared = Arc::new(Shared { is_frugal: true, ..Shared::default() });
        Self { shared, products: Products::F32 }
    }

    /// The same memory, with another arithmetic for matrix products.
    pub(crate) fn with_products(&self, products: Products) -> Self {
        Self { shared: Arc::clone(&self.shared), products }
    }

    /// How matrices over its buffers are multiplied.
    pub(crate) fn products(&self) -> Products {
        self.products
    }

    /// Nobody trains for a while: a frugal pool gives the system what is not in use.
    pub fn rest(&self) {
        if self.shared.is_frugal {
            for shard in 0..SHARDS {
                self.shard(shard).rest();
            }
        }
    }

    /// A buffer of `len` floats with arbitrary contents.
    pub fn take(&self, len: usize) -> Buffer {
        let shard = WORKER.get();
        let piece = self.shard(shard).take(len);
        self.shared.level.add(piece.length());
        Buffer { piece: Some(piece), shard, len, pool: self.clone() }
    }

    /// A buffer of `len` zeros.
    pub fn zeros(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// What is and was in use.
    pub fn usage(&self) -> Usage {
        let bytes = |floats: usize| floats * size_of::<f32>();
        let (mut held, mut allocations) = (0, 0);
        for shard in 0..SHARDS {
            let slabs = self.shard(shard);
            held += slabs.held();
            allocations += slabs.allocations();
        }
        let (live, peak) = self.shared.level.read();
        Usage {
            live_bytes: bytes(live),
            peak_bytes: bytes(peak),
            idle_bytes: bytes(held.saturating_sub(live)),
            allocations,
        }
    }

    /// Forgets the high-water mark, so that the next reading is of what follows.
    pub fn reset_peak(&self) {
        self.shared.level.reset_peak();
        for shard in 0..SHARDS {
            self.shard(shard).reset_peak();
        }
    }

    fn shard(&self, place: usize) -> MutexGuard<'_, Slabs> {
        // A panic elsewhere cannot leave the lists half-changed: nothing in there panics half-way.
        self.shared.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Floats from a [`Pool`], aligned to a cache line; they go back when dropped.
#[derive(Debug)]
pub struct Buffer {
    piece: Option<Piece>,
    /// Where the piece came from and goes back to.
    shard: usize,
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
        unsafe { std::slice::from_raw_parts(self.start().cast(), 2 * self.len) }
    }

    /// The same, to be written.
    pub(crate) fn halves_mut(&mut self) -> &mut [u16] {
        // SAFETY: as in `halves`; any bits are a float, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start().cast(), 2 * self.len) }
    }

    /// The same memory as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: as in `halves`, with four for each float.
        unsafe { std::slice::from_raw_parts(self.start().cast(), 4 * self.len) }
    }

    /// The same, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `halves_mut`.
        unsafe { std::slice::from_raw_parts_mut(self.start().cast(), 4 * self.len) }
    }

    fn start(&self) -> *mut f32 {
        self.piece.as_ref().expect("the piece is only taken away in drop").start()
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the piece holds at least `len` initialised floats and is owned by this buffer;
        // its slab lives as long as the pool, which the buffer holds on to.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.pool.shared.level.subtract(piece.length());
            self.pool.shard(self.shard).give_back(piece);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_length_whose_bytes_do_not_fit_a_number_is_refused() {
        for len in [usize::MAX, usize::MAX / 4 + 1, 1 << (usize::BITS - 2)] {
            let taken = std::panic::catch_unwind(|| Pool::new().take(len));
            assert!(taken.is_err(), "{len} floats");
        }
    }

    #[test]
    fn workers_that_come_and_go_use_the_memory_of_those_before_them() {
        let pool = Pool::new();
        for _round in 0..50 {
            std::thread::scope(|scope| {
                for worker in 0..2 {
                    let pool = &pool;
                    scope.spawn(move || {
                        set_worker(worker);
                        drop(pool.take(1000));
                    });
                }
            });
        }
        let used = (0..SHARDS).filter(|&shard| pool.shard(shard).held() > 0).count();
        assert_eq!((used, pool.usage().allocations), (2, 2));
    }

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = Pool::new();
        let first = pool.take(100);
        assert_eq!(first.as_ptr() as usize % 64, 0);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(100).as_ptr(), address);
        assert_eq!(pool.usage().allocations, 1);
        assert_eq!(pool.usage().live_bytes, 0);
    }

    #[test]
    fn buffers_in_use_never_overlap_and_keep_their_numbers() {
        const STEPS: usize = if cfg!(miri) { 150 } else { 4000 };
        const LONGEST: usize = if cfg!(miri) { 200 } else { 5000 };
        let pool = Pool::new();
        let mut held: Vec<(f32, Buffer)> = Vec::new();
        // A fixed scramble of lengths, takes and returns.
        let mut state = 12345_u64;
        for step in 0..STEPS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = (state >> 33) as usize;
            if held.len() > 40 || (draw.is_multiple_of(3) && !held.is_empty()) {
                let (value, buffer) = held.swap_remove(draw % held.len());
                assert!(buffer.iter().all(|x| *x == value), "step {step}");
            } else {
                let mut buffer = pool.take(1 + draw % LONGEST);
                buffer.fill(step as f32);
                held.push((step as f32, buffer));
            }
        }
        held.clear();
        let usage = pool.usage();
        assert_eq!(usage.live_bytes, 0);
        assert!(usage.idle_bytes <= usage.peak_bytes * 3 / 2, "{usage:?}");
    }

    #[test]
    fn batches_of_all_lengths_share_the_memory_of_the_longest() {
        const LONGEST: usize = if cfg!(miri) { 4 } else { 200 };
        let pool = Pool::new();
        for round in 0..3 {
            for len in 1..LONGEST {
                let tokens = if round % 2 == 0 { len } else { LONGEST - len };
                let step: Vec<Buffer> =
                    [1000, 3000, 4000, 16].iter().map(|width| pool.take(width * tokens)).collect();
                drop(step);
            }
        }
        let usage = pool.usage();
        assert_eq!(usage.live_bytes, 0);
        assert!(usage.idle_bytes <= usage.peak_bytes * 5 / 4, "{usage:?}");
    }

    #[test]
    fn an_empty_buffer_and_one_larger_than_a_slab_are_served() {
        let pool = Pool::new();
        assert!(pool.take(0).is_empty());
        let large = pool.take(slabs::SLAB + 5);
        assert_eq!(large.len(), slabs::SLAB + 5);
        assert_eq!(large[slabs::SLAB + 4], 0.0);
    }
}
