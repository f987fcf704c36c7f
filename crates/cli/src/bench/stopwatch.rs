//! Wall time, processor time and memory of some work, and nothing of what happens between.

use std::time::Instant;

use fedra::process::{cpu_seconds, forget_peak, peak_resident_bytes};

/// What work has cost; it counts only while it is asked to.
#[derive(Clone, Copy, Default)]
pub struct Stopwatch {
    pub cpu_seconds: f64,
    pub wall_seconds: f64,
    pub peak_bytes: u64,
}

impl Stopwatch {
    /// At zero; the peak of memory is watched from here on, whether the watch runs or not.
    pub fn new() -> Self {
        forget_peak();
        Self::default()
    }

    /// Does a piece of the work. Wall time stands for the processor's where the system counts none.
    pub fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let (before, start) = (cpu_seconds(), Instant::now());
        let result = work();
        let wall = start.elapsed().as_secs_f64();
        let after = cpu_seconds();
        self.wall_seconds += wall;
        self.cpu_seconds += before.zip(after).map_or(wall, |(before, after)| after - before);
        result
    }

    /// The cost of all pieces, in shares of so many.
    pub fn read(&self, shares: u32) -> Self {
        // Microseconds are more than a stopwatch knows.
        let share = |seconds: f64| (seconds / f64::from(shares) * 1e6).round() / 1e6;
        Self {
            cpu_seconds: share(self.cpu_seconds),
            wall_seconds: share(self.wall_seconds),
            peak_bytes: peak_resident_bytes().unwrap_or(0),
        }
    }
}
