//! How the threads of a pool share the tasks of a loop, and how they wait for the next loop.
//!
//! One word says everything that a helper has to know before it may touch a loop: which loop it is,
//! whether it is open, and how many helpers are inside. A helper enters by counting itself in while
//! the loop is open; the caller closes the loop, then waits until nobody is inside. So the loop can
//! live on the caller's stack.
//!
//! ```text
//! caller   deal shares -> open -> work ------------------> close -> wait until empty
//! helper              wait -> enter (or too late) -> work -> leave
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::{PoisonError, TryLockError};

use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence,
    spin_loop, yield_now,
};

/// How often a helper looks for work before it sleeps: a few hundred microseconds.
const LOOKS: u32 = if cfg!(any(miri, loom)) { 1 } else { 4000 };

/// How often the caller looks whether the helpers are done before it yields its core.
const PATIENCE: u32 = if cfg!(any(miri, loom)) { 0 } else { 10_000 };

/// What the threads of a pool share.
#[derive(Debug)]
pub(super) struct Dispatcher {
    /// The number of the loop, whether it is [`OPEN`], and how many helpers are inside.
    state: AtomicU64,
    /// The open loop; valid while it is open or a helper is inside.
    current: AtomicPtr<()>,
    shares: Box<[Share]>,
    /// Held by the caller whose loop runs.
    leader: Mutex<()>,
    /// Held by a helper from its last look until it sleeps, so that no call to wake up is missed.
    bed: Mutex<()>,
    alarm: Condvar,
    asleep: AtomicUsize,
    closing: AtomicBool,
}

const HELPER: u64 = 1;
const HELPERS: u64 = (1 << 31) - 1;
const OPEN: u64 = 1 << 31;
const NUMBER: u64 = 1 << 32;

/// The loop that is open, as the threads see it.
struct Loop<'a> {
    run: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Dispatcher {
    pub(super) fn new(threads: usize) -> Self {
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

    pub(super) fn threads(&self) -> usize {
        self.shares.len()
    }

    /// Runs tasks `0 .. tasks`, each once, together with the helpers; alone if they are busy.
    pub(super) fn each(&self, tasks: usize, run: &(dyn Fn(usize) + Sync)) {
        let leader = match self.leader.try_lock() {
            Ok(leader) if self.threads() > 1 => leader,
            Err(TryLockError::Poisoned(leader)) if self.threads() > 1 => leader.into_inner(),
            Ok(_) | Err(_) => return (0..tasks).for_each(run),
        };
        let open = Loop { run, panic: Mutex::new(None) };
        let threads = self.threads();
        for (thread, share) in self.shares.iter().enumerate() {
            share.set(tasks * thread / threads, tasks * (thread + 1) / threads);
        }
        self.current.store((&raw const open).cast_mut().cast(), Ordering::Relaxed);
        let number = self.state.load(Ordering::Relaxed) & !(OPEN | HELPERS);
        self.state.store(number.wrapping_add(NUMBER) | OPEN, Ordering::Release);
        // With the fence of a helper that falls asleep: either it sees this loop, or it is seen here.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) > 0 {
            drop(self.bed());
            self.alarm.notify_all();
        }
        self.work(0, &open);
        // No helper can enter any more; those inside still read `open`.
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0;
        while self.state.load(Ordering::Acquire) & HELPERS != 0 {
            looks += 1;
            if looks < PATIENCE { spin_loop() } else { yield_now() }
        }
        drop(leader);
        let panic = open.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Takes tasks until there are none: first from the thread's own share, then from the others'.
    fn work(&self, thread: usize, open: &Loop<'_>) {
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

    /// What a helper thread runs; it returns after [`close`](Self::close).
    pub(super) fn help(&self, thread: usize) {
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

    /// Makes the helpers return.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // A helper holds `bed` while it looks at `closing` for the last time before it sleeps.
        drop(self.bed());
        self.alarm.notify_all();
    }

    /// Joins loop `number` unless it has ended.
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
        self.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let found = loop {
            if self.closing.load(Ordering::Relaxed) {
                break None;
            }
            if let Some(number) = self.another(seen) {
                break Some(number);
            }
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        };
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        found
    }

    fn another(&self, seen: u64) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// Numbers that tasks write without synchronising; loom reports an access that is not ordered
    /// with the others.
    struct Numbers([UnsafeCell<usize>; 2]);

    // SAFETY: loom takes one step of one thread at a time and checks the accesses.
    unsafe impl Sync for Numbers {}

    impl Numbers {
        fn zeros() -> Self {
            Self([UnsafeCell::new(0), UnsafeCell::new(0)])
        }

        fn add(&self, task: usize, number: usize) {
            // SAFETY: loom's scheduler runs nothing else meanwhile.
            self.0[task].with_mut(|place| unsafe { *place += number });
        }

        fn read(&self) -> [usize; 2] {
            // SAFETY: as in `add`.
            [0, 1].map(|task| self.0[task].with(|place| unsafe { *place }))
        }
    }

    fn explore(run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(model.preemption_bound.unwrap_or(3));
        model.check(run);
    }

    fn with_a_helper(run: impl FnOnce(&Arc<Dispatcher>)) {
        let dispatcher = Arc::new(Dispatcher::new(2));
        let helper = thread::spawn({
            let dispatcher = Arc::clone(&dispatcher);
            move || dispatcher.help(1)
        });
        run(&dispatcher);
        dispatcher.close();
        helper.join().expect("a helper ends by itself");
    }

    #[test]
    fn loops_one_after_another_see_what_the_ones_before_wrote() {
        explore(|| {
            with_a_helper(|dispatcher| {
                let numbers = Numbers::zeros();
                for number in [1, 10] {
                    dispatcher.each(2, &|task| numbers.add(task, number));
                }
                assert_eq!(numbers.read(), [11, 11]);
            });
        });
    }

    #[test]
    fn what_a_loop_borrows_is_the_callers_again_when_it_is_over() {
        explore(|| {
            with_a_helper(|dispatcher| {
                let numbers = Numbers::zeros();
                dispatcher.each(2, &|task| numbers.add(task, 1));
                numbers.add(0, 5);
                assert_eq!(numbers.read(), [6, 1]);
            });
        });
    }

    #[test]
    fn a_helper_that_falls_asleep_is_woken_by_the_next_loop() {
        explore(|| {
            with_a_helper(|dispatcher| {
                // Nobody gets past before both tasks run: a helper that slept on would be a deadlock.
                let (count, both) = (Mutex::new(0), Condvar::new());
                dispatcher.each(2, &|_| {
                    let mut here = count.lock().expect("nobody panics");
                    *here += 1;
                    both.notify_all();
                    while *here < 2 {
                        here = both.wait(here).expect("nobody panics");
                    }
                });
            });
        });
    }

    #[test]
    fn two_callers_of_one_pool_both_finish() {
        explore(|| {
            with_a_helper(|dispatcher| {
                let other = thread::spawn({
                    let dispatcher = Arc::clone(dispatcher);
                    move || {
                        let numbers = Numbers::zeros();
                        dispatcher.each(2, &|task| numbers.add(task, 3));
                        numbers.read()
                    }
                });
                let numbers = Numbers::zeros();
                dispatcher.each(2, &|task| numbers.add(task, 1));
                assert_eq!(numbers.read(), [1, 1]);
                assert_eq!(other.join().expect("it only adds"), [3, 3]);
            });
        });
    }
}
