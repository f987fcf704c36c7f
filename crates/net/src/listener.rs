//! Who follows a site, a fleet or a session from outside, how a site leaves, and how either waits.

use std::time::{Duration, Instant};

/// How often somebody who wants to stop is asked while others wait.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

/// Those who follow from outside.
pub trait Listener {
    /// Something that a person should know.
    fn told(&self, line: &str);

    /// Whether to leave; asked while nothing is worked on. Work itself is stopped by the client's observer.
    fn stops(&self) -> bool;
}

/// How a site's part in a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The server said that the run has finished.
    Ended(String),
    /// The server said that it cannot go on, and why.
    GaveUp(String),
    /// Nobody answered for as long as this site wanted to wait.
    Alone(String),
    /// The listener wanted to stop.
    Stopped,
}

/// Waits for so long; `false` when somebody wants to stop instead.
pub fn rest(wait: Duration, stops: impl Fn() -> bool) -> bool {
    let until = Instant::now() + wait;
    loop {
        if stops() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(GLANCE.min(left));
    }
}
