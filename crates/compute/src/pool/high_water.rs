//! How much is in use over all shards of a pool, and the most that ever was.

use crate::sync::{AtomicUsize, Ordering};

/// Floats in use now, and the most at once since the last reset.
#[derive(Debug, Default)]
pub(super) struct HighWater {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl HighWater {
    pub(super) fn add(&self, floats: usize) {
        let live = self.live.fetch_add(floats, Ordering::Relaxed) + floats;
        self.peak.fetch_max(live, Ordering::Release);
    }

    pub(super) fn subtract(&self, floats: usize) {
        self.live.fetch_sub(floats, Ordering::Relaxed);
    }

    /// What is in use now and the most there was, which is never less.
    pub(super) fn read(&self) -> (usize, usize) {
        let live = self.live.load(Ordering::Relaxed);
        (live, self.peak.load(Ordering::Relaxed).max(live))
    }

    /// Lets the peak begin again from what is in use now.
    pub(super) fn reset_peak(&self) {
        // An `add` whose peak is wiped out here is seen by the load; a later one raises the new peak.
        self.peak.swap(0, Ordering::Acquire);
        self.peak.fetch_max(self.live.load(Ordering::Relaxed), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    #[test]
    fn a_reset_never_loses_what_is_in_use() {
        loom::model(|| {
            let level = Arc::new(HighWater::default());
            let other = thread::spawn({
                let level = Arc::clone(&level);
                move || level.add(5)
            });
            level.add(1);
            level.reset_peak();
            other.join().expect("it only adds");
            level.subtract(1);
            level.subtract(5);
            let (live, peak) = level.read();
            assert_eq!((live, peak), (0, 6));
        });
    }
}
