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
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use fedra_compute::{ThreadPool, set_worker};

use crate::error::Result;

/// Jobs begun and not yet handed over, for each worker: one being done, one waiting its turn.
pub const AHEAD: usize = 2;

/// Runs jobs `0 .. count` on as many threads as the current thread pool has.
///
/// `deliver` sees the results in order, on the calling thread; its first error stops the rest.
pub(crate) fn in_order<T: Send, E>(
    count: usize,
    job: impl Fn(usize) -> T + Sync,
    deliver: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    so_many_in_order((count, ThreadPool::current_threads()), job, deliver)
}

/// The same with a choice of how many are at work at a time.
pub(crate) fn so_many_in_order<T: Send, E>(
    (count, at_once): (usize, usize),
    job: impl Fn(usize) -> T + Sync,
    mut deliver: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = ThreadPool::current_threads();
    let workers = at_once.min(count);
    if workers <= 1 {
        return (0..count).try_for_each(|number| deliver(job(number)));
    }
    let has_ended = AtomicBool::new(false);
    let (to_workers, jobs) = channel::<usize>();
    let (jobs, (to_caller, results)) = (Mutex::new(jobs), channel());
    let (job, jobs, has_ended) = (&job, &jobs, &has_ended);
    std::thread::scope(|scope| {
        let to_workers = to_workers;
        let mut begun = 0;
        for worker in 0..workers {
            let size = (threads / workers + usize::from(worker < threads % workers)).max(1);
            let to_caller = to_caller.clone();
            let work = move || {
                set_worker(worker);
                let all = || work_through(jobs, &to_caller, job, has_ended);
                match ThreadPool::new(size) {
                    Ok(pool) => pool.install(all),
                    // No more threads to be had: the jobs then share what there is.
                    Err(_) => all(),
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
        let (mut sent, mut early) = (0, BTreeMap::new());
        let outcome = (0..count).try_for_each(|number| {
            while sent < count.min(number + AHEAD * begun) {
                to_workers.send(sent).expect("the receiver outlives the scope");
                sent += 1;
            }
            let result = loop {
                if let Some(result) = early.remove(&number) {
                    break result;
                }
                let (other, outcome) = results.recv().expect("a worker answers every job");
                let outcome = outcome.unwrap_or_else(|panic| {
                    has_ended.store(true, Ordering::Relaxed);
                    resume_unwind(panic)
                });
                early.insert(other, outcome);
            };
            deliver(result)
        });
        has_ended.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Does jobs until there are no more, or what is left of them is not wanted any more.
fn work_through<T>(
    jobs: &Mutex<Receiver<usize>>,
    to_caller: &Sender<(usize, std::thread::Result<T>)>,
    job: &impl Fn(usize) -> T,
    has_ended: &AtomicBool,
) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(number) = next else { return };
        if has_ended.load(Ordering::Relaxed) {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(|| job(number)));
        if to_caller.send((number, result)).is_err() {
            return;
        }
    }
}

/// What is answered to items that come in batches, by item; batches run side by side.
pub(crate) fn by_batch<T: Send>(
    batches: &[Vec<usize>],
    answer: impl Fn(&[usize]) -> Result<Vec<T>> + Sync,
) -> Result<Vec<T>> {
    let answers = collected(batches.len(), |number| answer(&batches[number]))?;
    Ok(placed(batches, answers.into_iter().flatten().collect()))
}

/// The results of jobs `0 .. count`, or the first error among them.
pub(crate) fn collected<T: Send, E: Send>(
    count: usize,
    job: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let mut all = Vec::with_capacity(count);
    in_order(count, job, |result| {
        all.push(result?);
        Ok(())
    })?;
    Ok(all)
}

/// The answers to items in the order of batches, in that of items.
pub(crate) fn placed<T>(batches: &[Vec<usize>], answers: Vec<T>) -> Vec<T> {
    let mut placed: Vec<(&usize, T)> = batches.iter().flatten().zip(answers).collect();
    placed.sort_by_key(|(item, _)| **item);
    placed.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

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
    #[should_panic(expected = "broken")]
    fn a_panic_of_a_job_is_not_waited_for() {
        let _outcome: Result<(), ()> =
            with_threads(2, || in_order(10, |number| assert_ne!(number, 4, "broken"), |()| Ok(())));
    }
}
