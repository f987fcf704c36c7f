//! Independent jobs over threads; results come back in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs a function over all jobs on at most `threads` threads, and says after each how many are done.
///
/// Threads take the next job as they become free, so long jobs should come first. A job's result depends
/// on the job alone; which thread ran it leaves no trace.
pub fn map<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    done: impl Fn(usize) + Sync,
    run: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(place) else { break };
                    let result = run(job);
                    let mut results = results.lock().expect("no job panics while it reports");
                    results.push((place, result));
                    done(results.len());
                }
            });
        }
    });
    let mut results = results.into_inner().expect("every thread has ended");
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs_for_any_number_of_threads() {
        let jobs: Vec<u64> = (0..40).collect();
        let expected: Vec<u64> = jobs.iter().map(|n| n * n).collect();
        for threads in [0, 1, 2, 7, 100] {
            assert_eq!(map(&jobs, threads, |_| {}, |n| n * n), expected);
        }
        assert!(map(&[] as &[u64], 3, |_| {}, |n| *n).is_empty());
    }
}
