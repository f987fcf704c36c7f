//! A thread that says again and again that its party is there.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fedra_net::JoinOnDrop;

/// Beats until it is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    _stop: Sender<()>,
    _thread: JoinOnDrop,
}

impl Heartbeat {
    /// Beats at once and then so often. Without a thread nobody beats, which the other side will notice.
    pub(crate) fn start(every: Duration, mut beat: impl FnMut() + Send + 'static) -> Self {
        let (stop, stopped) = channel();
        let run = move || {
            beat();
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                beat();
            }
        };
        let thread = std::thread::Builder::new().name("fedra-heartbeat".to_owned()).spawn(run);
        Self { _stop: stop, _thread: JoinOnDrop(thread.ok()) }
    }
}
