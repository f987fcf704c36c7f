//! Which processes a client has had: the newest stays, and the others do not come back.
//!
//! A process is known by a number that it draws when it starts. Two processes of one client that both dial
//! again whenever they lose their connection would otherwise throw each other out for ever, and with each
//! change what the client kept would be in the other one's folder.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tonic::Status;

/// Processes of one client that are remembered: more have not been at work side by side.
const MOST: usize = 64;

/// The processes of all clients, by name.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<BTreeMap<String, Vec<u64>>>);

impl Processes {
    /// Takes up what another process of the server noted: the oldest first.
    pub(crate) fn restore(&self, client: &str, processes: &[u64]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(client.to_owned(), processes.to_vec());
    }

    /// Whether a process may speak for a client: not after another one has taken its place.
    pub(crate) fn check(&self, client: &str, process: u64) -> Result<(), Status> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_newest, older)) = all.get(client).and_then(|known| known.split_last()) else {
            return Ok(());
        };
        if older.contains(&process) { Err(replaced(client)) } else { Ok(()) }
    }

    /// A process was let in: it is the newest now. All that are known of the client, the oldest first.
    pub(crate) fn enter(&self, client: &str, process: u64) -> Vec<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(client.to_owned()).or_default();
        if known.last() != Some(&process) {
            known.push(process);
            let spare = known.len().saturating_sub(MOST);
            known.drain(..spare);
        }
        known.clone()
    }
}

/// What a process is told whose place another one has taken.
pub(crate) fn replaced(client: &str) -> Status {
    Status::already_exists(format!(
        "another process joined as {client} and replaced this one: only one process per client can take part"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_process_stays_and_no_older_one_comes_back() {
        let all = Processes::default();
        for process in [1, 1, 2] {
            assert!(all.check("a", process).is_ok());
            all.enter("a", process);
        }
        assert!(all.check("a", 2).is_ok(), "it may dial again");
        assert_eq!(all.check("a", 1).unwrap_err().code(), tonic::Code::AlreadyExists);
        assert!(all.check("b", 1).is_ok(), "each client has its own");
        let kept = all.enter("a", 3);
        assert_eq!(kept, [1, 2, 3]);
        let again = Processes::default();
        again.restore("a", &kept);
        assert!(again.check("a", 2).is_err() && again.check("a", 3).is_ok());
        for process in 0..1000 {
            assert!(all.enter("c", process).len() <= MOST);
        }
    }
}
