//! Who is at the other end of a connection, and what went over it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use crate::protocol::check_protocol;

/// The other end of a connection as the server sees it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is, for people: an address, or a node of a SuperLink.
    pub address: String,
    /// The client names in its certificate; `None` where no TLS says who it is, so that it is who it
    /// claims to be.
    pub names: Option<Arc<[String]>>,
    /// What went over the connection.
    pub traffic: Arc<Traffic>,
}

impl Peer {
    /// Refuses one that speaks another version, or that may not act as this client.
    pub(crate) fn check(&self, (protocol, client): (u32, &str)) -> Result<(), Status> {
        check_protocol(protocol)?;
        self.check_name(client).map_err(Status::permission_denied)
    }

    /// Whether it may act as this client, or why not.
    pub fn check_name(&self, claimed: &str) -> Result<(), String> {
        let Some(names) = &self.names else { return Ok(()) };
        if names.iter().any(|name| name == claimed) {
            return Ok(());
        }
        let held = match &names[..] {
            [] => "of no client".to_owned(),
            names => format!("of {}", names.join(", ")),
        };
        Err(format!("the certificate or key is {held}, expected that of the client {claimed}"))
    }
}

/// Bytes on a socket, TLS and framing included.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    /// Bytes of both directions.
    pub fn bytes(&self) -> WireBytes {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WireBytes { sent: read(&self.sent), received: read(&self.received) }
    }

    /// Counts bytes that came in.
    pub fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that went out.
    pub fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Bytes on sockets, with TLS, framing and requests: more than the payloads that a report counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// From the server to the site.
    pub sent: u64,
    /// From the site to the server.
    pub received: u64,
}

impl std::ops::AddAssign for WireBytes {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// What went over all connections of each client, whatever stream was on them.
#[derive(Debug, Default)]
pub(crate) struct ClientTraffic(Mutex<BTreeMap<String, Connections>>);

/// The connections of one client: a sum of those that have ended, and the others.
#[derive(Debug, Default)]
struct Connections {
    over: WireBytes,
    open: Vec<Arc<Traffic>>,
}

impl ClientTraffic {
    /// Follows one more connection of a client.
    pub fn follow(&self, client: &str, traffic: &Arc<Traffic>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let connections = all.entry(client.to_owned()).or_default();
        let known = std::mem::take(&mut connections.open).into_iter();
        // Where nobody else counts on it any more, the connection is gone.
        let (open, over): (Vec<_>, Vec<_>) = known.partition(|one| Arc::strong_count(one) > 1);
        for one in over {
            connections.over += one.bytes();
        }
        connections.open = open;
        // Two streams may share a connection.
        if !connections.open.iter().any(|one| Arc::ptr_eq(one, traffic)) {
            connections.open.push(Arc::clone(traffic));
        }
    }

    /// What went over a client's connections so far.
    pub fn of(&self, client: &str) -> WireBytes {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Connections { over, open }) = all.get(client) else { return WireBytes::default() };
        let mut sum = *over;
        for one in open {
            sum += one.bytes();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_of_a_client_counts_once_whether_it_is_over_or_not() {
        let all = ClientTraffic::default();
        let (first, second) = (Arc::new(Traffic::default()), Arc::new(Traffic::default()));
        all.follow("north", &first);
        all.follow("north", &first);
        first.add_sent(10);
        first.add_received(1);
        drop(first);
        all.follow("north", &second);
        second.add_received(5);
        assert_eq!(all.of("north"), WireBytes { sent: 10, received: 6 });
        assert_eq!(all.of("west"), WireBytes::default());
    }
}
