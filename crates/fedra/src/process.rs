//! What this process has used, as the operating system counts it; and locks that outlive a panic.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fedra_compute::Device;
use fedra_plan::ByteCount;

/// The lock of a value that no panic leaves half changed: a counter, a list, what is drawn.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most memory that was in use.
#[derive(Clone, Copy, Debug)]
pub struct PeakMemory {
    /// By tensors on the GPU; `None` where the processor computes.
    pub gpu: Option<u64>,
    /// By this process, as the system counts it; zero where it does not tell.
    pub resident: u64,
}

impl PeakMemory {
    /// That of this process, which computes on this device.
    pub fn of(device: &Device) -> Self {
        let gpu = match device {
            Device::Cuda(_) => Some(device.usage().peak_bytes as u64),
            Device::Cpu(_) | Device::Meta(_) => None,
        };
        Self { gpu, resident: peak_resident_bytes().unwrap_or(0) }
    }
}

impl fmt::Display for PeakMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gpu) = self.gpu {
            write!(formatter, "{} of the GPU's, ", ByteCount(gpu))?;
        }
        write!(formatter, "{} at most", ByteCount(self.resident))
    }
}

/// Peak resident set in bytes; `None` where the system does not tell.
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM:")
}

/// Resident set now, in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

/// Memory that this process may still take, by the system and by the limits of its control group and
/// of the process itself; `None` where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let free = kibibytes(&read("/proc/meminfo"), "MemAvailable:")?;
    let number = |path: &str| read(path).trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max").zip(number("/sys/fs/cgroup/memory.current"));
    let limits = read("/proc/self/limits");
    let address_space = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    let own = address_space.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let left = |(most, now): (u64, u64)| most.saturating_sub(now);
    let limits = [group.map(left), own.zip(status("VmSize:")).map(left)];
    limits.into_iter().flatten().chain([free]).min()
}

fn status(key: &str) -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, key)
}

/// The bytes behind a key of a list in kibibytes.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Resets the peak to the current memory, where the system can.
pub fn forget_peak() {
    // Linux resets the high-water mark on "5"; elsewhere the peak stays that of the whole process.
    let _unsupported = std::fs::write("/proc/self/clear_refs", "5");
}

/// Seconds that this process has spent on processors, its ended threads included; `None` where the system does not
/// tell.
pub fn cpu_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
    }
    #[cfg(not(unix))]
    None
}
