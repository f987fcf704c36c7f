//! Jobs run side by side, results handed over in order.
//!
//! Each worker has a thread pool of its own for the loops inside its job.
//! Here at most [`AHEAD`] jobs for each worker are begun before the oldest is handed over.
//!
//! ```text
//! job      0 1 2 3 4 5 ...          worker a: 0 2 3 ...   worker b: 1 4 ...
//! handed   0 1 2 ...                in order, on the caller's thread
//! ```

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fedra_compute::{ThreadPool, set_worker};

/// Jobs begun and not yet handed over, for each worker: one being done, one waiting its turn.
pub const AHEAD: usize = 2;

/// How many jobs are at work at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// As many as the current thread pool has threads.
    Threads,
    /// All of them, because they wait for each other.
    All,
}

/// Runs jobs `0 .. count` on as many threads as the current thread pool has.
///
/// `deliver` sees the results in order, on the calling thread; its first error stops the rest.
pub(crate) fn in_order<T: Send, E>(
    count: usize,
    job: impl Fn(usize) -> T + Sync,
    deliver: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    so_many_in_order((count, AtOnce::Threads), job, deliver)
}

/// The same with a choice of how many are at work at a time.
pub(crate) fn so_many_in_order<T: Send, E>(
    (count, at_once): (usize, AtOnce),
    job: impl Fn(usize) -> T + Sync,
    mut deliver: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = ThreadPool::current_threads();
    let workers = match at_once {
        AtOnce::Threads => threads.min(count),
        AtOnce::All => count,
    };
    if workers <= 1 {
        return (0..count).try_for_each(|number| deliver(job(number)));
    }
    let belt =
        Belt { count, room: AHEAD * workers, state: Mutex::default(), moved: Condvar::new() };
    let (belt, job) = (&belt, &job);
    std::thread::scope(|scope| {
        let mut begun = 0;
        for worker in 0..workers {
            let size = (threads / workers + usize::from(worker < threads % workers)).max(1);
            let work = move || {
                let _stop = StopOnPanic(belt);
                set_worker(worker);
                match ThreadPool::new(size) {
                    Ok(pool) => pool.install(|| belt.work(job)),
                    // No more threads to be had: the jobs then share what there is.
                    Err(_) => belt.work(job),
                }
            };
            // Where no more threads are to be had, those that have begun do all the jobs.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
            begun += 1;
        }
        if begun == 0 {
            return (0..count).try_for_each(|number| deliver(job(number)));
        }
        let _stop = StopOnPanic(belt);
        belt.hand_over(&mut deliver)
    })
}

/// What moves between the workers and the caller.
struct Belt<T> {
    count: usize,
    room: usize,
    state: Mutex<State<T>>,
    moved: Condvar,
}

struct State<T> {
    begun: usize,
    handed: usize,
    stopped: bool,
    done: BTreeMap<usize, T>,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self { begun: 0, handed: 0, stopped: false, done: BTreeMap::new() }
    }
}

impl<T> Belt<T> {
    fn work(&self, job: &impl Fn(usize) -> T) {
        while let Some(number) = self.begin() {
            let result = job(number);
            self.state().done.insert(number, result);
            self.moved.notify_all();
        }
    }

    /// The next job, once there is room for it.
    fn begin(&self) -> Option<usize> {
        let mut state = self.state();
        loop {
            if state.stopped || state.begun == self.count {
                return None;
            }
            if state.begun < state.handed + self.room {
                state.begun += 1;
                return Some(state.begun - 1);
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hand_over<E>(&self, deliver: &mut impl FnMut(T) -> Result<(), E>) -> Result<(), E> {
        for number in 0..self.count {
            let Some(result) = self.wait_for(number) else { break };
            if let Err(error) = deliver(result) {
                self.stop();
                return Err(error);
            }
            self.state().handed += 1;
            self.moved.notify_all();
        }
        Ok(())
    }

    /// The result of a job; `None` when a worker broke down, whose panic the scope then carries on.
    fn wait_for(&self, number: usize) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(result) = state.done.remove(&number) {
                return Some(result);
            }
            if state.stopped {
                return None;
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self) {
        self.state().stopped = true;
        self.moved.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing in here panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets nobody wait for a thread that is gone.
struct StopOnPanic<'a, T>(&'a Belt<T>);

impl<T> Drop for StopOnPanic<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn with_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
        ThreadPool::new(threads).expect("a few threads").install(run)
    }

    #[test]
    fn results_come_in_order_and_few_are_in_memory() {
        for threads in [1, 2, 3, 7] {
            let (alive, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut seen = Vec::new();
            let outcome: Result<(), ()> = with_threads(threads, || {
                in_order(
                    40,
                    |number| {
                        let now = alive.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        // The first job is slow: the others must wait for it, not pile up.
                        let pause = if number == 0 { 20 } else { 0 };
                        std::thread::sleep(std::time::Duration::from_millis(pause));
                        number
                    },
                    |number| {
                        alive.fetch_sub(1, Ordering::SeqCst);
                        seen.push(number);
                        Ok(())
                    },
                )
            });
            assert_eq!(outcome, Ok(()));
            assert!(seen.iter().copied().eq(0..40));
            assert!(most.into_inner() <= AHEAD * threads);
        }
    }

    #[test]
    fn an_error_of_the_receiver_stops_the_rest() {
        let begun = AtomicUsize::new(0);
        let outcome = with_threads(2, || {
            in_order(
                1000,
                |number| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    number
                },
                |number| if number == 3 { Err(number) } else { Ok(()) },
            )
        });
        assert_eq!(outcome, Err(3));
        assert!(begun.into_inner() <= 3 + 2 * AHEAD);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_of_a_job_is_not_waited_for() {
        let _outcome: Result<(), ()> =
            with_threads(2, || in_order(10, |number| assert_ne!(number, 4, "broken"), |()| Ok(())));
    }
}
