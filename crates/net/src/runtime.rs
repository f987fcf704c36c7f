//! The one thread on which everything asynchronous runs.
//!
//! Encryption and framing of twenty busy connections take a part of one core, and what is worth threads
//! of its own (training, scoring, folding) runs outside. One thread also means that a handler that
//! would block shows at once.

use std::sync::mpsc;
use std::time::Duration;

use fedra_client::JoinOnDrop;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::NetError;

/// Most threads for streams whose other half computes: one for each client that waits for its turn, and
/// one for each session. They are made as they are needed.
const BLOCKING_THREADS: usize = 4096;

/// How long such threads may take to notice that it ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// A running event loop; it ends when this is dropped.
#[derive(Debug)]
pub struct Runtime {
    /// To start tasks with.
    pub handle: Handle,
    _stop: oneshot::Sender<()>,
    _thread: JoinOnDrop,
}

impl Runtime {
    /// Starts the thread.
    pub fn start() -> Result<Self, NetError> {
        let failed = |source| NetError::System { doing: "starting the network".to_owned(), source };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()
            .map_err(failed)?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let run = move || {
            let _told_or_dropped = runtime.block_on(stopped);
            // A stream whose other side has stalled must not keep a process that wants to end.
            runtime.shutdown_timeout(FAREWELL);
        };
        let thread = std::thread::Builder::new().name("fedra-net".to_owned()).spawn(run);
        Ok(Self { handle, _stop: stop, _thread: JoinOnDrop(Some(thread.map_err(failed)?)) })
    }

    /// Runs something on the thread and waits for it.
    pub fn wait<F>(&self, future: F) -> Result<F::Output, NetError>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let (send, receive) = mpsc::channel();
        self.handle.spawn(async move {
            let _gone = send.send(future.await);
        });
        receive.recv().map_err(|_| NetError::Lost("the network thread ended".to_owned()))
    }
}
