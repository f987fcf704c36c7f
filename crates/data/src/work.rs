//! Long work on rows: on how many threads it is done, and who follows it.
//!
//! Items are made on the thread that asks, worked on by others, and taken up again in their order on the
//! thread that asks. So results, and the first of several errors, are the same for any number of threads,
//! and whoever follows the work is told on one thread.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::thread::{Builder, available_parallelism, scope};

use crate::{DataError, Result};

/// Rows that a thread takes at a time: few enough to end soon, enough to be worth handing over.
pub(crate) const CHUNK: usize = 256;
/// Pieces of work that are made ahead for each thread.
const AHEAD: usize = 4;

/// How long work on rows is done.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    threads: usize,
    follow: &'a dyn Fn(Preparing) -> bool,
}

/// How far the preparation of rows is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparing {
    /// What is done.
    pub stage: Stage,
    /// How much of it is done: bytes of files that are read, rows of anything else.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

/// A part of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Files are read.
    Reading,
    /// A vocabulary is grown from texts.
    GrowingVocabulary,
    /// Texts become tokens.
    Tokenising,
}

impl Default for Work<'_> {
    /// All cores, and nobody who follows.
    fn default() -> Self {
        Self::on(None, &|_| true)
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Work").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl<'a> Work<'a> {
    /// Work on so many threads, all cores unless given. Whoever follows it says whether it is to go on.
    pub fn on(threads: Option<usize>, follow: &'a dyn Fn(Preparing) -> bool) -> Self {
        let cores = || available_parallelism().map_or(1, usize::from);
        Self { threads: threads.unwrap_or_else(cores).max(1), follow }
    }

    /// The threads.
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Says how far the work is; an error where it is to end.
    pub fn tell(&self, stage: Stage, done: u64, total: u64) -> Result<()> {
        let goes_on = (self.follow)(Preparing { stage, done, total });
        if goes_on { Ok(()) } else { Err(DataError::Stopped) }
    }

    /// What becomes of each row, in order.
    pub fn map<T: Sync, R: Send>(
        &self,
        stage: Stage,
        rows: &[T],
        make: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let total = rows.len() as u64;
        let (mut chunks, mut all) = (rows.chunks(CHUNK), Vec::with_capacity(rows.len()));
        self.in_order(
            || Ok(chunks.next()),
            |chunk| chunk.iter().map(&make).collect::<Result<Vec<R>>>(),
            |made| {
                all.extend(made);
                self.tell(stage, all.len() as u64, total)
            },
        )?;
        Ok(all)
    }

    /// Makes items one after another, works on them, and takes up what came of them in their order. The
    /// first error in that order ends it.
    pub(crate) fn in_order<T: Send, R: Send>(
        &self,
        mut next: impl FnMut() -> Result<Option<T>>,
        work: impl Fn(T) -> Result<R> + Sync,
        mut take: impl FnMut(R) -> Result<()>,
    ) -> Result<()> {
        scope(|scope| {
            // Items go round the workers, so that what comes of them is back in their order.
            let start = |_| {
                let ((to_worker, items), (to_caller, results)) = (channel(), channel());
                let work = &work;
                let body = move || {
                    // An error ends the caller, who then hears nobody: what still waits is left.
                    let answer =
                        |item| to_caller.send(catch_unwind(AssertUnwindSafe(|| work(item))));
                    items.into_iter().try_for_each(answer)
                };
                Builder::new().spawn_scoped(scope, body).ok().map(|_| (to_worker, results))
            };
            let wanted = if self.threads == 1 { 0 } else { self.threads };
            let workers: Vec<_> = (0..wanted).filter_map(start).collect();
            if workers.is_empty() {
                // One is enough, or the system has no more threads: this one is there.
                return std::iter::from_fn(|| next().transpose())
                    .try_for_each(|item| take(work(item?)?));
            }
            let (mut made, mut taken) = (0, 0);
            // What went wrong while items were made comes behind all that were made before.
            let mut end = None;
            loop {
                while end.is_none() && made - taken < workers.len() * AHEAD {
                    match next() {
                        Ok(Some(item)) => {
                            let (to_worker, _) = &workers[made % workers.len()];
                            to_worker.send(item).expect("a worker waits as long as it is heard");
                            made += 1;
                        }
                        Ok(None) => end = Some(Ok(())),
                        Err(error) => end = Some(Err(error)),
                    }
                }
                if made == taken {
                    return end.unwrap_or(Ok(()));
                }
                let (_, results) = &workers[taken % workers.len()];
                taken += 1;
                let outcome = results.recv().expect("a worker answers every item");
                take(outcome.unwrap_or_else(|panic| resume_unwind(panic))?)?;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn numbers(threads: usize, wrong: &[usize]) -> Result<Vec<usize>> {
        let rows: Vec<usize> = (0..5000).collect();
        Work::on(Some(threads), &|_| true).map(Stage::Tokenising, &rows, |row| {
            if wrong.contains(row) {
                return Err(DataError::setting("row", row, "another"));
            }
            Ok(row * 3)
        })
    }

    #[test]
    fn results_come_in_the_order_of_the_rows_on_any_number_of_threads() {
        let expected: Vec<usize> = (0..5000).map(|row| row * 3).collect();
        for threads in [1, 2, 4, 7] {
            assert_eq!(numbers(threads, &[]).unwrap(), expected, "{threads}");
        }
    }

    #[test]
    fn the_first_error_in_the_order_of_the_rows_is_the_error() {
        for threads in [1, 4] {
            let error = numbers(threads, &[4999, 1700, 1701]).unwrap_err().to_string();
            assert!(error.contains("row = 1700"), "{threads}: {error}");
        }
    }

    #[test]
    fn what_fails_while_it_is_made_comes_behind_what_was_made_before() {
        for (threads, wrong, expected) in [(1, 9, 3), (4, 9, 3), (4, 2, 2), (1, 2, 2)] {
            let work = Work::on(Some(threads), &|_| true);
            let mut made = 0;
            let next = || {
                made += 1;
                if made > 3 {
                    Err(DataError::setting("item", &3, "no more"))
                } else {
                    Ok(Some(made))
                }
            };
            let taken = RefCell::new(Vec::new());
            let outcome = work.in_order(
                next,
                |item| if item > wrong { Err(DataError::Stopped) } else { Ok(item) },
                |item| {
                    taken.borrow_mut().push(item);
                    Ok(())
                },
            );
            assert_eq!(taken.into_inner(), (1..=expected).collect::<Vec<i32>>());
            assert_eq!(matches!(outcome, Err(DataError::Stopped)), wrong < 3, "{outcome:?}");
        }
    }

    #[test]
    fn the_follower_is_told_in_order_and_ends_the_work() {
        for threads in [1, 4] {
            let (told, done) = (RefCell::new(Vec::new()), AtomicUsize::new(0));
            let follow = |step: Preparing| {
                told.borrow_mut().push(step.done);
                step.done < 1024
            };
            let rows = vec![0_u8; 1 << 16];
            let outcome = Work::on(Some(threads), &follow).map(Stage::Tokenising, &rows, |_| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            assert!(matches!(outcome, Err(DataError::Stopped)));
            assert_eq!(told.into_inner(), [256, 512, 768, 1024]);
            // Beyond what was taken there is what was made ahead, and no more.
            assert!(done.into_inner() <= 1024 + CHUNK * AHEAD * (threads + 1));
        }
    }

    #[test]
    fn a_panic_on_a_thread_is_a_panic_of_the_caller() {
        let rows: Vec<usize> = (0..5000).collect();
        let caught = catch_unwind(|| {
            Work::on(Some(3), &|_| true).map(Stage::Tokenising, &rows, |row| {
                assert!(*row != 3000, "row 3000");
                Ok(*row)
            })
        });
        assert!(caught.is_err());
    }
}
