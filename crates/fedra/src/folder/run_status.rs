//! How a run in this process stands, in a small file of its folder that `fedra status` reads.
//!
//! Steps are taken far more often than anybody looks, so it is written once a second at most, whole or not
//! at all. Nothing of a run depends on it, nobody here reads it back, and a disk that refuses it stops no
//! round. It goes with the run: what stays in the folder says how far a run came that is not on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fedra_client::Observer;
use fedra_engine::{Arrival, ClientInfo, RoundProgress};
use fedra_plan::Round;
use serde_json::json;

use crate::process::locked;
use crate::run_files::STATUS;

/// It is written no more often.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Passes on what an observer is told, and keeps the file.
pub(crate) struct RunStatus {
    observer: Arc<dyn Observer>,
    path: PathBuf,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    round: Round,
    written: Option<Instant>,
}

impl RunStatus {
    /// A run in a folder continues after so many complete rounds.
    pub fn begin(folder: &Path, completed: Round, observer: Arc<dyn Observer>) -> Self {
        let last = Mutex::new(Last { round: completed, written: None });
        let status = Self { observer, path: folder.join(STATUS), last };
        status.write(None);
        status
    }

    fn write(&self, progress: Option<&RoundProgress>) {
        // Whoever comes while another thread writes has nothing newer to say.
        let Ok(mut last) = self.last.try_lock() else { return };
        if last.written.is_some_and(|when| when.elapsed() < AT_MOST_EVERY) {
            return;
        }
        last.written = Some(Instant::now());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let status = json!({
            "written": now.map_or(0, |since| since.as_secs()),
            "process": std::process::id(),
            "phase": "running",
            "round": last.round,
            "progress": progress,
        });
        let unfinished = self.path.with_extension("json.part");
        let _best_effort = fs::write(&unfinished, format!("{status:#}\n"))
            .and_then(|()| fs::rename(&unfinished, &self.path));
    }
}

impl Observer for RunStatus {
    fn started(&self, client: &ClientInfo, round: Round) {
        locked(&self.last).round = round;
        self.observer.started(client, round);
    }

    fn finished(&self, client: &ClientInfo, round: Round, arrival: &Arrival) {
        self.observer.finished(client, round, arrival);
    }

    fn progressed(&self, progress: &RoundProgress) {
        self.write(Some(progress));
        self.observer.progressed(progress);
    }

    fn stops(&self) -> bool {
        self.observer.stops()
    }
}

impl Drop for RunStatus {
    fn drop(&mut self) {
        let _absent = fs::remove_file(&self.path);
    }
}
