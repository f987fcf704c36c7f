//! Of several streams for the same thing the newest counts; the older one is told and ends.
//!
//! A client that lost its connection is back before the server has noticed the loss. And since a name
//! has one stream, a client that opens many and answers none takes no more than one thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::Status;

use crate::error::NetError;
use crate::frame::{Limits, Message};
use crate::link::{HangUp, Link, first_words};
use crate::peer::Peer;
use crate::service::{Inbound, Outbound};

/// Most bytes of the words with which a stream begins.
const HELLO_BYTES: usize = 64 << 10;

/// The streams that are open, each under what it is for.
#[derive(Debug)]
pub(crate) struct NewestStreams<K> {
    open: Mutex<BTreeMap<K, HangUp>>,
}

impl<K> Default for NewestStreams<K> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<K: Ord + Clone + Send + 'static> NewestStreams<K> {
    /// Serves one stream, on a thread of its own: whoever waits for its turn waits there. `greet` says from its
    /// first words what it is for, or why it is refused.
    pub async fn serve<T: Send + 'static>(
        self: Arc<Self>,
        (peer, mut inbound, outbound): (Peer, Inbound, Outbound),
        limits: Limits,
        greet: impl FnOnce(&Peer, &Message) -> Result<(K, T), Status>,
        serve: impl FnOnce(Link, T) + Send + 'static,
    ) {
        let hello = first_words(&mut inbound, HELLO_BYTES).await;
        let (key, greeted) = match hello.and_then(|hello| greet(&peer, &hello)) {
            Ok(greeted) => greeted,
            Err(status) => {
                let _gone = outbound.send(Err(status)).await;
                return;
            }
        };
        let handle = tokio::runtime::Handle::current();
        let both = (inbound, outbound);
        let link = Link::over(handle.clone(), both, limits, peer.traffic, NetError::of_status);
        let entered = self.enter(key, &link);
        let serving = handle.spawn_blocking(move || {
            serve(link, greeted);
            drop(entered);
        });
        let _ended = serving.await;
    }

    /// A stream takes the place of the one before it, until the value is dropped.
    fn enter(self: &Arc<Self>, key: K, link: &Link) -> Entered<K> {
        let own = link.hang_up_handle();
        let older = self.lock().insert(key.clone(), own.clone());
        if let Some(older) = older {
            older.hang_up(Status::aborted("another stream of this client took its place"));
        }
        Entered { streams: Arc::clone(self), key, own }
    }
}

impl<K> NewestStreams<K> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, HangUp>> {
        // Whoever panicked left a whole map behind.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one stream.
#[derive(Debug)]
struct Entered<K: Ord> {
    streams: Arc<NewestStreams<K>>,
    key: K,
    own: HangUp,
}

impl<K: Ord> Drop for Entered<K> {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if open.get(&self.key).is_some_and(|newest| newest.ended.same_channel(&self.own.ended)) {
            open.remove(&self.key);
        }
    }
}
