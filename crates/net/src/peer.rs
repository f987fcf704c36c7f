//! Who is at the other end of a connection, and what went over it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The other end of a connection as the server sees it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is.
    pub address: SocketAddr,
    /// The client names in its certificate; `None` where no TLS says who it is, so that it is who it
    /// claims to be.
    pub names: Option<Arc<[String]>>,
    /// What went over the connection.
    pub traffic: Arc<Traffic>,
}

impl Peer {
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
        Err(format!("found the certificate {held}, expected that of the client {claimed}"))
    }
}

/// Bytes on a socket, TLS and framing included.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    /// Bytes that came in.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes that went out.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
