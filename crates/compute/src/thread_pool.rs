//! A pool of threads that carries out the tasks of one loop together.
//!
//! A training step is a hundred short loops, one after another, over the same rows. So every thread
//! is first given the same share of each loop, which keeps the rows it wrote in its own cache, and
//! helps the others only when its share is done; and between loops the threads stay awake for a
//! moment, because waking one takes as long as a small loop.
//!
//! ```text
//! tasks     0 1 2 3 | 4 5 6 7        thread 0 takes 0, 1, 2, ... and thread 1 takes 4, 5, 6, ...;
//! shares    thread 0| thread 1       whoever is done first takes the other's last
//! ```
//!
//! A loop inside a task runs on the task's thread alone, and so does one whose pool is busy with
//! another caller's loop. No result depends on who ran a task.
//!
//! ```
//! use fedra_compute::ThreadPool;
//!
//! let threads = ThreadPool::new(2)?.install(ThreadPool::current_threads);
//! assert_eq!(threads, 2);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

/// Looks for work before a thread goes to sleep: some hundred microseconds.
const LOOKS: u32 = 4000;

/// Looks at unfinished tasks of others before the caller lets somebody else have the core.
const PATIENCE: u32 = 10_000;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    static INSIDE_A_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Threads that run loops together; they end when the pool is dropped.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// Most threads of a pool. Beyond some thousands a system may be able to begin a thread and then
    /// not to give it its stack, which ends the process; no machine has so many cores.
    pub const MOST: usize = 1024;

    /// A pool of this many threads, at least one: the caller of a loop is one of them.
    pub fn new(threads: usize) -> io::Result<Self> {
        let threads = threads.max(1);
        if threads > Self::MOST {
            let reason = format!("found {threads} threads, expected at most {}", Self::MOST);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let mut pool =
            Self { shared: Arc::new(Shared::new(threads)), helpers: Vec::with_capacity(threads) };
        for number in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let helper = thread::Builder::new().name(format!("worker-{number}"));
            pool.helpers.push(helper.spawn(move || shared.help(number))?);
        }
        Ok(pool)
    }

    /// Runs a function whose loops this pool carries out.
    pub fn install<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(Arc::clone(&self.shared)));
        let _restore = Restore(before);
        run()
    }

    /// How many threads a loop on this thread would have.
    pub fn current_threads() -> usize {
        if INSIDE_A_TASK.get() { 1 } else { current().threads() }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        drop(self.shared.bed());
        self.shared.alarm.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its tasks, so it ends by itself.
            let _ended = helper.join();
        }
    }
}

/// Puts back the pool that was there before.
struct Restore(Option<Arc<Shared>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Runs tasks `0 .. tasks`, each once, on the current pool.
pub(crate) fn each(tasks: usize, run: impl Fn(usize) + Sync) {
    if tasks <= 1 || INSIDE_A_TASK.get() {
        return (0..tasks).for_each(run);
    }
    current().each(tasks, &run);
}

/// Runs a task for each run of `len` items (the last may be shorter), with its number.
pub(crate) fn each_chunk<T: Send>(
    items: &mut [T],
    len: usize,
    run: impl Fn(usize, &mut [T]) + Sync,
) {
    let total = items.len();
    let start = Start(items.as_mut_ptr());
    each(total.div_ceil(len), |task| {
        let first = task * len;
        // SAFETY: tasks have disjoint runs inside the slice, which stays borrowed until all are done.
        let chunk =
            unsafe { std::slice::from_raw_parts_mut(start.at(first), len.min(total - first)) };
        run(task, chunk);
    });
}

/// A slice's first item, for tasks that take disjoint parts.
struct Start<T>(*mut T);

// SAFETY: `each_chunk` gives every item to one task only.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// # Safety
    /// The offset must lie inside the slice.
    unsafe fn at(&self, offset: usize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(offset) }
    }
}

/// The pool of this thread, or one with all cores for everybody who chose none.
fn current() -> Arc<Shared> {
    static EVERYBODY: OnceLock<ThreadPool> = OnceLock::new();
    if let Some(pool) = CURRENT.with_borrow(Option::clone) {
        return pool;
    }
    let everybody = EVERYBODY.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Where no thread is to be had, the caller works alone.
        ThreadPool::new(cores).unwrap_or_else(|_| ThreadPool {
            shared: Arc::new(Shared::new(1)),
            helpers: Vec::new(),
        })
    });
    Arc::clone(&everybody.shared)
}

/// The loop that is open, as the threads see it.
struct Loop<'a> {
    run: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// What the threads of a pool share.
#[derive(Debug)]
struct Shared {
    /// The number of the loop, whether it is [`OPEN`], and how many helpers are inside.
    state: AtomicU64,
    /// The open loop; valid while it is open or a helper is inside.
    current: AtomicPtr<()>,
    shares: Box<[Share]>,
    /// Held by the caller whose loop runs.
    leader: Mutex<()>,
    bed: Mutex<()>,
    alarm: Condvar,
    asleep: AtomicUsize,
    closing: AtomicBool,
}

const HELPER: u64 = 1;
const HELPERS: u64 = (1 << 31) - 1;
const OPEN: u64 = 1 << 31;
const NUMBER: u64 = 1 << 32;

impl Shared {
    fn new(threads: usize) -> Self {
        Self {
            state: AtomicU64::new(0),
            current: AtomicPtr::new(ptr::null_mut()),
            shares: (0..threads).map(|_| Share::default()).collect(),
            leader: Mutex::new(()),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
            asleep: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        }
    }

    fn threads(&self) -> usize {
        self.shares.len()
    }

    fn each(&self, tasks: usize, run: &(dyn Fn(usize) + Sync)) {
        let leader = match self.leader.try_lock() {
            Ok(leader) if self.threads() > 1 => leader,
            Err(TryLockError::Poisoned(leader)) if self.threads() > 1 => leader.into_inner(),
            Ok(_) | Err(_) => return (0..tasks).for_each(run),
        };
        debug_assert!(!INSIDE_A_TASK.get(), "a loop inside a task runs on its thread");
        let open = Loop { run, panic: Mutex::new(None) };
        let threads = self.threads();
        for (thread, share) in self.shares.iter().enumerate() {
            share.set(tasks * thread / threads, tasks * (thread + 1) / threads);
        }
        self.current.store((&raw const open).cast_mut().cast(), Ordering::Relaxed);
        let number = self.state.load(Ordering::Relaxed) & !(OPEN | HELPERS);
        self.state.store(number.wrapping_add(NUMBER) | OPEN, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            drop(self.bed());
            self.alarm.notify_all();
        }
        self.work(0, &open);
        // Nobody enters any more; who is inside still reads `open`.
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0;
        while self.state.load(Ordering::Acquire) & HELPERS != 0 {
            looks += 1;
            if looks < PATIENCE { spin_loop() } else { thread::yield_now() }
        }
        drop(leader);
        let panic = open.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Takes tasks until there are none: first from the thread's own share, then from the others'.
    fn work(&self, thread: usize, open: &Loop<'_>) {
        INSIDE_A_TASK.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while let Some(task) = self.shares[thread].take_first() {
                (open.run)(task);
            }
            for other in 1..self.threads() {
                let share = &self.shares[(thread + other) % self.threads()];
                while let Some(task) = share.take_last() {
                    (open.run)(task);
                }
            }
        }));
        INSIDE_A_TASK.set(false);
        if let Err(panic) = outcome {
            let mut first = open.panic.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_none() {
                *first = Some(panic);
            } else {
                // Its destructor might panic, and others still work on this loop.
                std::mem::forget(panic);
            }
        }
    }

    /// A helper's life.
    fn help(&self, thread: usize) {
        let mut seen = 0;
        while let Some(number) = self.wait_for_another(seen) {
            seen = number;
            if !self.enter(number) {
                continue;
            }
            let open = self.current.load(Ordering::Relaxed).cast_const().cast::<Loop<'_>>();
            // SAFETY: the loop was open when this thread entered, and its caller stays until every
            // helper has left. `enter` synchronises with the opening, which wrote the pointer.
            self.work(thread, unsafe { &*open });
            self.state.fetch_sub(HELPER, Ordering::AcqRel);
        }
    }

    /// Joins loop `number` unless it is over.
    fn enter(&self, number: u64) -> bool {
        let join = |state: u64| {
            (state & OPEN != 0 && state & !(OPEN | HELPERS) == number).then_some(state + HELPER)
        };
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, join).is_ok()
    }

    /// The number of an open loop other than `seen`; `None` when the pool closes.
    fn wait_for_another(&self, seen: u64) -> Option<u64> {
        for _ in 0..LOOKS {
            if let Some(number) = self.another(seen) {
                return Some(number);
            }
            if self.closing.load(Ordering::Relaxed) {
                return None;
            }
            spin_loop();
        }
        let mut bed = self.bed();
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if self.closing.load(Ordering::SeqCst) {
                break None;
            }
            if let Some(number) = self.another(seen) {
                break Some(number);
            }
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        };
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        found
    }

    fn another(&self, seen: u64) -> Option<u64> {
        let state = self.state.load(Ordering::SeqCst);
        let number = state & !(OPEN | HELPERS);
        (state & OPEN != 0 && number != seen).then_some(number)
    }

    fn bed(&self) -> MutexGuard<'_, ()> {
        self.bed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of one thread that nobody has taken yet: the first in the high half, the end in the low.
/// On a cache line of its own, since its thread writes it all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Share(AtomicU64);

impl Share {
    fn set(&self, first: usize, end: usize) {
        let pack = |task: usize| u64::from(u32::try_from(task).expect("a loop has few tasks"));
        self.0.store(pack(first) << 32 | pack(end), Ordering::Relaxed);
    }

    fn take_first(&self) -> Option<usize> {
        self.take(|first, end| ((first + 1) << 32 | end, first))
    }

    fn take_last(&self) -> Option<usize> {
        self.take(|first, end| (first << 32 | (end - 1), end - 1))
    }

    fn take(&self, choose: impl Fn(u64, u64) -> (u64, u64)) -> Option<usize> {
        let mut tasks = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = (tasks >> 32, tasks & u64::from(u32::MAX));
            if first >= end {
                return None;
            }
            let (left, task) = choose(first, end);
            let exchange =
                self.0.compare_exchange_weak(tasks, left, Ordering::Relaxed, Ordering::Relaxed);
            match exchange {
                Ok(_) => return Some(task as usize),
                Err(now) => tasks = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(threads: usize, tasks: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        ThreadPool::new(threads).expect("threads").install(|| {
            each(tasks, |task| {
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_task_runs_once_for_any_number_of_threads_and_tasks() {
        for threads in [1, 2, 3, 8] {
            for tasks in [0, 1, 2, 7, 100, 1001] {
                assert_eq!(counts(threads, tasks), vec![1; tasks], "{threads} threads");
            }
        }
    }

    #[test]
    fn more_threads_than_a_system_can_have_are_refused() {
        let refused = ThreadPool::new(20_000).map(drop).unwrap_err().to_string();
        assert_eq!(refused, "found 20000 threads, expected at most 1024");
    }

    #[test]
    fn many_short_loops_in_a_row_lose_nothing() {
        let pool = ThreadPool::new(3).expect("threads");
        let mut numbers = vec![0usize; 64];
        pool.install(|| {
            for _ in 0..20_000 {
                each_chunk(&mut numbers, 7, |_, chunk| chunk.iter_mut().for_each(|x| *x += 1));
            }
        });
        assert_eq!(numbers, vec![20_000; 64]);
    }

    #[test]
    fn threads_that_fell_asleep_wake_up_again() {
        let pool = ThreadPool::new(2).expect("threads");
        for _ in 0..5 {
            thread::sleep(std::time::Duration::from_millis(20));
            let met = std::sync::Barrier::new(2);
            // Both tasks must be running at the same time to get past the barrier.
            pool.install(|| {
                each(2, |_| {
                    met.wait();
                });
            });
        }
    }

    #[test]
    fn a_loop_inside_a_task_runs_on_its_thread() {
        let pool = ThreadPool::new(2).expect("threads");
        pool.install(|| {
            each(4, |_| {
                let outer = thread::current().id();
                each(50, |_| assert_eq!(thread::current().id(), outer));
            });
        });
    }

    #[test]
    fn two_callers_of_one_pool_both_finish() {
        let pool = ThreadPool::new(2).expect("threads");
        let sum = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pool.install(|| {
                        for _ in 0..500 {
                            each(10, |task| {
                                sum.fetch_add(task, Ordering::Relaxed);
                            });
                        }
                    });
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 500 * 45);
    }

    #[test]
    fn a_panic_in_any_task_reaches_the_caller_and_the_pool_goes_on() {
        let pool = ThreadPool::new(2).expect("threads");
        for broken in [0, 9] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| each(10, |task| assert_ne!(task, broken, "broken")));
            }));
            assert!(outcome.is_err(), "task {broken} broke and nobody heard");
        }
        let ran = AtomicUsize::new(0);
        pool.install(|| {
            each(10, |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(ran.into_inner(), 10);
    }
}
