//! For how long each client has been waiting for the server's half.
//!
//! A client whose frame is here cannot go on before it is answered, and the answer may wait for others. So
//! whoever gives deadlines takes that time off: the only one who is late is the one who is waited for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fedra_wire::ClientId;

/// How long a client has been held up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldUp {
    /// In all, up to now.
    pub time: Duration,
    /// Whether it is being held up now.
    pub is_waiting: bool,
}

/// The clocks of all clients.
#[derive(Debug, Default)]
pub(super) struct Clocks(Mutex<BTreeMap<ClientId, Clock>>);

#[derive(Debug, Default)]
struct Clock {
    before: Duration,
    /// Since when, and by how many frames: a connection that was lost may still wait beside a newer one.
    now: Option<(Instant, u32)>,
}

impl Clocks {
    /// A client waits until the answer is dropped.
    pub fn hold(&self, client: ClientId) -> Held<'_> {
        let mut clocks = self.lock();
        let clock = clocks.entry(client).or_default();
        let (since, frames) = clock.now.unwrap_or_else(|| (Instant::now(), 0));
        clock.now = Some((since, frames + 1));
        Held { clocks: self, client }
    }

    /// How long a client has been held up.
    pub fn of(&self, client: ClientId) -> HeldUp {
        let clocks = self.lock();
        let Some(Clock { before, now }) = clocks.get(&client) else { return HeldUp::default() };
        let lately = now.map_or(Duration::ZERO, |(since, _)| since.elapsed());
        HeldUp { time: *before + lately, is_waiting: now.is_some() }
    }

    fn release(&self, client: ClientId) {
        let mut clocks = self.lock();
        let Some(clock) = clocks.get_mut(&client) else { return };
        clock.now = match clock.now {
            Some((since, frames)) if frames > 1 => Some((since, frames - 1)),
            Some((since, _)) => {
                clock.before += since.elapsed();
                None
            }
            None => None,
        };
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClientId, Clock>> {
        // No panic leaves half a clock behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that waits.
pub(super) struct Held<'a> {
    clocks: &'a Clocks,
    client: ClientId,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.clocks.release(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_waits_as_long_as_any_of_its_frames_does() {
        let (clocks, client) = (Clocks::default(), ClientId(1));
        assert_eq!(clocks.of(client), HeldUp::default());
        let first = clocks.hold(client);
        let second = clocks.hold(client);
        assert!(clocks.of(client).is_waiting);
        assert!(!clocks.of(ClientId(0)).is_waiting);
        drop(first);
        assert!(clocks.of(client).is_waiting);
        drop(second);
        let HeldUp { time, is_waiting } = clocks.of(client);
        assert!(!is_waiting && time > Duration::ZERO);
        assert_eq!(clocks.of(client).time, time, "it stands still");
    }
}
