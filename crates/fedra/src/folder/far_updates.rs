//! Updates far outside their cohort, among the events of a federation on other machines.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fedra_engine::{ClientId, ClientInfo, EngineError, RoundReport, Sink};
use serde_json::json;

use crate::run_files::EVENTS;

/// Appends a line for each to the list of events, where a server keeps one.
pub(crate) struct FarUpdates<'a> {
    pub folder: &'a Path,
    pub clients: &'a [ClientInfo],
}

impl Sink for FarUpdates<'_> {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        let Some(norms) = &report.norms else { return Ok(()) };
        // A view for people and other programs: a disk that refuses it stops no round.
        let Ok(mut events) = OpenOptions::new().append(true).open(self.folder.join(EVENTS)) else {
            return Ok(());
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let name = |id: ClientId| {
            self.clients.iter().find(|client| client.id == id).map_or("", |client| &client.name)
        };
        for far in &norms.far {
            let line = json!({
                "time": time, "event": "far_update", "client": name(far.client), "round": report.round,
                "norm": far.norm, "median": norms.median, "scaled": norms.scaled.contains(&far.client),
            });
            let _best_effort = writeln!(events, "{line}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_update_is_among_the_events_of_a_server_and_nowhere_else() {
        let report: RoundReport = serde_json::from_value(json!({
            "round": 2, "cohort": [0, 1], "arrived": [0, 1], "failed": [], "refused": [], "blocks": [],
            "changed": 1, "loss": 1.0, "bytes": {"up": 1, "down": 1, "full_up": 1, "full_down": 1}, "seconds": 1.0, "slowest": 1.0,
            "most_updates_held": 1, "scores": [],
            "norms": {"median": 1.0, "far": [{"client": 1, "norm": 1e14}]},
        }))
        .unwrap();
        let place = tempfile::tempdir().unwrap();
        let client =
            |id: u32| ClientInfo { id: ClientId(id), name: format!("hospital-{id}"), examples: 1 };
        let clients = [client(0), client(1)];
        let mut sink = FarUpdates { folder: place.path(), clients: &clients };
        sink.round(&report).unwrap();
        let events = place.path().join(EVENTS);
        assert!(!events.exists(), "a run in one process has no events");
        std::fs::write(&events, "").unwrap();
        sink.round(&report).unwrap();
        let written = std::fs::read_to_string(&events).unwrap();
        let line: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!((&line["event"], &line["client"]), (&json!("far_update"), &json!("hospital-1")));
        assert_eq!((&line["round"], &line["norm"]), (&json!(2), &json!(1e14)));
    }
}
