//! Wall and processor time of one piece of work.

use std::time::Instant;

use super::memory::cpu_seconds;

/// Started when made.
pub struct Stopwatch {
    wall: Instant,
    cpu: Option<f64>,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu_seconds() }
    }

    /// Wall seconds and processor seconds since; wall twice where the system counts no other.
    pub fn read(&self) -> (f64, f64) {
        let wall = self.wall.elapsed().as_secs_f64();
        let cpu = self.cpu.zip(cpu_seconds()).map_or(wall, |(before, now)| now - before);
        (wall, cpu)
    }
}

/// Four digits are more than a stopwatch knows.
pub fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
