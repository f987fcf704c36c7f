//! A thread that says again and again that its party is there.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Beats until it is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
        Self { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A beat takes seconds at most.
            let _ended = thread.join();
        }
    }
}
