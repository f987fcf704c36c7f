//! A thread that nobody forgets.

use std::thread::JoinHandle;

/// Waits for a thread when it is dropped. Fields are dropped in order: in a struct it stands behind what tells the
/// thread to end.
#[derive(Debug)]
pub struct JoinOnDrop(pub Option<JoinHandle<()>>);

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // If it broke down, those who wait for its answers have been told.
            let _ended = thread.join();
        }
    }
}
