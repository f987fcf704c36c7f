//! What a fleet needs of a network, and what a network needs of a fleet.
//!
//! Who is there, what counts and what is asked are the fleet's. How messages travel is the carrier's: our
//! own server with its gRPC streams, or a SuperLink with its queues. Both bring sites in through the same
//! [`Reception`], so the two networks cannot differ in whom they let in or in which answer they take.

use std::sync::Arc;

use crate::frame::Message;
use crate::host::Host;
use crate::link::from_meta;
use crate::protocol::{Asked, Request, RunEnd};

/// Carries messages between a fleet and its sites until it is dropped.
pub trait Carrier: Send {
    /// Where sites find it, for people.
    fn place(&self) -> String;

    /// The run has finished and those who were there have had the time to hear it.
    fn close(&mut self, how: RunEnd, reason: &str);
}

/// Where a carrier brings sites in.
pub type Reception = Arc<Host>;

/// When a message has to reach a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Whenever something else goes there: every request says again what it says.
    CanWait,
    /// Now.
    Now,
    /// Now, and nothing comes after it.
    Last,
}

/// When a message of the fleet has to reach its site, for a carrier to which each delivery is costly.
pub fn urgency(message: &Message) -> Urgency {
    // A welcome is no request.
    let Ok(Asked { request, .. }) = from_meta("a request", message) else { return Urgency::Now };
    match request {
        Request::Settle | Request::Forget(_) => Urgency::CanWait,
        Request::End { .. } => Urgency::Last,
        // What a site lacks goes before a request, with it.
        Request::Sync { .. } if message.id == 0 => Urgency::CanWait,
        Request::Sync { .. }
        | Request::Probe { .. }
        | Request::CompareAttention { .. }
        | Request::Train { .. }
        | Request::Evaluate { .. } => Urgency::Now,
    }
}
