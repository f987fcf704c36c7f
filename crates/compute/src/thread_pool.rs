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

mod dispatcher;

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use dispatcher::Dispatcher;

use crate::pool;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Dispatcher>>> = const { RefCell::new(None) };
    /// Always true on a helper; true on a caller while its loop runs.
    static INSIDE_A_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Threads that run loops together; they end when the pool is dropped.
#[derive(Debug)]
pub struct ThreadPool {
    dispatcher: Arc<Dispatcher>,
    helpers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// Most threads of a pool. With several thousand, a system may start a thread and then fail to give
    /// it a stack, which ends the process; no machine has that many cores.
    pub const MOST: usize = 1024;

    /// A pool of this many threads, at least one: the caller of a loop is one of them.
    pub fn new(threads: usize) -> io::Result<Self> {
        let threads = threads.max(1);
        if threads > Self::MOST {
            let reason = format!("found {threads} threads, expected at most {}", Self::MOST);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let dispatcher = Arc::new(Dispatcher::new(threads));
        let mut pool = Self { dispatcher, helpers: Vec::with_capacity(threads) };
        for number in 1..threads {
            let dispatcher = Arc::clone(&pool.dispatcher);
            let owner = pool::worker();
            let helper = thread::Builder::new().name(format!("worker-{number}"));
            pool.helpers.push(helper.spawn(move || {
                INSIDE_A_TASK.set(true);
                pool::help_worker(owner, number);
                dispatcher.help(number);
            })?);
        }
        Ok(pool)
    }

    /// Runs a function whose loops this pool carries out.
    pub fn install<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(Arc::clone(&self.dispatcher)));
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
        self.dispatcher.close();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its tasks, so it ends by itself.
            let _ended = helper.join();
        }
    }
}

/// Puts back the pool that was there before.
struct Restore(Option<Arc<Dispatcher>>);

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
    let pool = current();
    INSIDE_A_TASK.set(true);
    let _leave = Leave;
    pool.each(tasks, &run);
}

/// The caller of a loop is no longer inside a task.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        INSIDE_A_TASK.set(false);
    }
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

/// The pool of this thread, or a common one with all cores where none was installed.
fn current() -> Arc<Dispatcher> {
    static EVERYBODY: OnceLock<ThreadPool> = OnceLock::new();
    if let Some(pool) = CURRENT.with_borrow(Option::clone) {
        return pool;
    }
    let everybody = EVERYBODY.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // If no thread can be started, the caller works alone.
        ThreadPool::new(cores).unwrap_or_else(|_| ThreadPool {
            dispatcher: Arc::new(Dispatcher::new(1)),
            helpers: Vec::new(),
        })
    });
    Arc::clone(&everybody.dispatcher)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

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
        const MANY: usize = if cfg!(miri) { 200 } else { 1001 };
        for threads in [1, 2, 3, 8] {
            for tasks in [0, 1, 2, 7, 100, MANY] {
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
        const LOOPS: usize = if cfg!(miri) { 50 } else { 20_000 };
        let pool = ThreadPool::new(3).expect("threads");
        let mut numbers = vec![0usize; 64];
        pool.install(|| {
            for _ in 0..LOOPS {
                each_chunk(&mut numbers, 7, |_, chunk| chunk.iter_mut().for_each(|x| *x += 1));
            }
        });
        assert_eq!(numbers, vec![LOOPS; 64]);
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
        const LOOPS: usize = if cfg!(miri) { 5 } else { 500 };
        let pool = ThreadPool::new(2).expect("threads");
        let sum = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pool.install(|| {
                        for _ in 0..LOOPS {
                            each(10, |task| {
                                sum.fetch_add(task, Ordering::Relaxed);
                            });
                        }
                    });
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * LOOPS * 45);
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
