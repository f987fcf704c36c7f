//! How one run stands, from the files in its folder.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use fedra::folder::summary::duration;
use fedra::run_files::{EXPERIMENT, ROUNDS, STATUS, SUMMARY};
use fedra::text::headline::set_name;
use fedra_engine::{Activity, ClientId, NormReport, RoundProgress, RoundReport};
use fedra_net::{FleetPhase, FleetStatus, SiteStatus};
use fedra_plan::{ByteCount, Round};
use fedra_privacy::shown;
use serde_json::Value;

/// All that is known.
pub struct Picture {
    pub status: FleetStatus,
    /// The reports of complete rounds: how many, and what matters of them.
    pub complete: u64,
    /// Rounds in all, where the folder says so.
    pub rounds: Option<u64>,
    pub up: u64,
    pub down: u64,
    /// The newest score of each set and name.
    pub scores: Vec<(String, String, f64)>,
    pub epsilon: Option<f64>,
    /// Updates far outside their cohort, round by round, counted from 1.
    pub far: Vec<(u64, NormReport)>,
    /// Seconds since the server wrote.
    pub age: u64,
    /// Whether a server is at work in the folder.
    pub is_served: bool,
    /// Whether the last round is complete.
    pub is_finished: bool,
}

impl Picture {
    pub fn read(folder: &Path) -> Result<Self> {
        let status = status_of(folder)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let age = now.saturating_sub(status.written);
        let mut picture = Self {
            status,
            complete: 0,
            rounds: rounds_of(folder),
            up: 0,
            down: 0,
            scores: Vec::new(),
            epsilon: None,
            far: Vec::new(),
            age,
            is_served: fedra::is_at_work(folder),
            is_finished: folder.join(SUMMARY).is_file(),
        };
        let rounds = std::fs::read_to_string(folder.join(ROUNDS)).unwrap_or_default();
        // The last line may be half written.
        rounds
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .for_each(|report| picture.add(report));
        Ok(picture)
    }

    fn add(&mut self, report: RoundReport) {
        self.complete += 1;
        self.up = self.up.saturating_add(report.bytes.up.0);
        self.down = self.down.saturating_add(report.bytes.down.0);
        self.epsilon = report.privacy.map(|privacy| privacy.epsilon).or(self.epsilon);
        let far = report.norms.filter(|norms| !norms.far.is_empty());
        self.far.extend(far.map(|norms| (self.complete, norms)));
        for set in report.scores {
            let on = set_name(set.on).to_owned();
            for (name, score) in set.mean.into_iter().filter(|(_, score)| score.is_finite()) {
                self.scores.retain(|(known, other, _)| *known != on || *other != name);
                self.scores.push((on.clone(), name, score));
            }
        }
    }

    /// What it is doing, on one line.
    pub fn headline(&self) -> String {
        let Self { status, complete, age, .. } = self;
        let (round, of) = self.round();
        let doing = match (status.phase, self.is_served) {
            (FleetPhase::Waiting, true) => "waiting for clients".to_owned(),
            (FleetPhase::Running, true) => format!("round {round}{of} is running"),
            (FleetPhase::Retrying, true) => {
                format!("round {round}{of} had too few updates and waits for absent clients")
            }
            (FleetPhase::Waiting, false) => {
                "stopped while it waited for clients: no process is running here".to_owned()
            }
            (FleetPhase::Running | FleetPhase::Retrying, false) => {
                format!("stopped in round {round}{of}: no process is running here")
            }
            (FleetPhase::Ended, _) if self.is_finished => "has finished".to_owned(),
            (FleetPhase::Ended, _) => "ended before its last round".to_owned(),
        };
        format!("{doing}; {complete} complete; as of {age} s ago")
    }

    pub fn text(&self) -> String {
        let Self { status, up, down, .. } = self;
        let mut text = format!("{}\n", self.headline());
        if let Some(progress) = self.progress() {
            let _ = writeln!(text, "{}", self.within(progress));
        }
        let place = plain(&status.place);
        let at = if place.is_empty() { place } else { format!("at {place}, ") };
        if self.is_served || !at.is_empty() {
            let _ = writeln!(text, "{at}process {}", status.process);
        }
        for (on, name, score) in &self.scores {
            let _ = writeln!(text, "{} {}: {score:.4}", plain(on), plain(name));
        }
        if let Some(epsilon) = self.epsilon {
            let _ = writeln!(text, "privacy spent: epsilon {}", shown::up(epsilon, 4));
        }
        for far in self.far_in_words() {
            let _ = writeln!(text, "warning: {far}");
        }
        let _ = writeln!(text, "payloads: {} up, {} down", ByteCount(*up), ByteCount(*down));
        if status.sites.is_empty() {
            return text;
        }
        let width = status.sites.iter().map(|site| plain(&site.name).chars().count()).max();
        let width = width.unwrap_or(0);
        let _ = writeln!(text, "clients, with their bytes on the wire since the server started:");
        for site in &status.sites {
            let (sent, received) = (ByteCount(site.sent), ByteCount(site.received));
            let (name, doing) = (plain(&site.name), self.doing(site));
            let _ = writeln!(text, "  {name:width$}  {doing}; {received} up, {sent} down");
        }
        text
    }

    /// How far the round that is on is.
    pub fn progress(&self) -> Option<&RoundProgress> {
        let is_on = self.status.phase == FleetPhase::Running && self.is_served;
        self.status.progress.as_ref().filter(|_| is_on)
    }

    /// How long the rest of it will take, counted from now.
    pub fn seconds_left(&self, progress: &RoundProgress) -> Option<f64> {
        progress.left().map(|left| (left.as_secs_f64() - self.age as f64).max(0.0))
    }

    fn within(&self, progress: &RoundProgress) -> String {
        let RoundProgress { activity, clients_done, clients, .. } = progress;
        let steps = match activity {
            Activity::Training => progress.counted().map(|steps| format!("training, {steps}")),
            Activity::Probing | Activity::Evaluating => progress.counted(),
        };
        let parts = [
            Some(steps.unwrap_or_else(|| activity.name().to_owned())),
            (*clients > 0).then(|| format!("{clients_done} of {clients} clients done")),
            self.seconds_left(progress).map(|left| format!("about {} left of it", duration(left))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Updates far outside their cohort, in words; the newest ones where there are many.
    fn far_in_words(&self) -> Vec<String> {
        const MOST: usize = 10;
        let name = |client: ClientId| {
            let site = self.status.sites.get(client.0 as usize);
            site.map_or_else(|| format!("client {client}"), |site| plain(&site.name))
        };
        let of_round = |(round, norms): &(u64, NormReport)| {
            let words = norms.in_words(name).into_iter();
            words.map(|far| format!("round {round}: {far}")).collect::<Vec<_>>()
        };
        let all: Vec<String> = self.far.iter().flat_map(of_round).collect();
        all[all.len().saturating_sub(MOST)..].to_vec()
    }

    /// The round after those that are complete, and of how many it is one.
    fn round(&self) -> (u64, String) {
        let next = self.complete + 1;
        match self.rounds {
            None => (next, String::new()),
            Some(rounds) => (next.min(rounds), format!(" of {rounds}")),
        }
    }

    fn doing(&self, site: &SiteStatus) -> String {
        match (site.here, site.working, &site.lost) {
            // However a network words it: no client is missed after the last round.
            (false, _, Some(_)) if self.is_finished => "has finished".to_owned(),
            (true, ..) if !self.is_served => "was connected".to_owned(),
            (true, Some(seconds), _) => format!("working for {:.0} s", seconds + self.age as f64),
            (true, None, _) => "is connected".to_owned(),
            (false, _, Some(reason)) => format!("disconnected: {}", plain(reason)),
            (false, _, None) => "has not joined".to_owned(),
        }
    }

    pub fn json(&self) -> String {
        let scores: Vec<Value> = self
            .scores
            .iter()
            .map(|(on, name, score)| serde_json::json!({"on": on, "name": name, "score": score}))
            .collect();
        let object = serde_json::json!({
            "age": self.age,
            "served": self.is_served,
            "finished": self.is_finished,
            "complete": self.complete,
            "rounds": self.rounds,
            "bytes": { "up": self.up, "down": self.down },
            "scores": scores,
            "epsilon": self.epsilon,
            "progress": self.progress(),
            "seconds_left": self.progress().and_then(|progress| self.seconds_left(progress)),
            "warnings": self.far_in_words(),
            "federation": self.status,
        });
        format!("{object:#}\n")
    }
}

/// What whoever runs the rounds wrote last; where it has taken that with it, what its other files tell.
fn status_of(folder: &Path) -> Result<FleetStatus> {
    let file = folder.join(STATUS);
    let missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text)
            .with_context(|| format!("{}: there is no status of a run here", file.display())),
        Err(error) if missing(&error) && fedra::is_at_work(folder) => bail!(
            "{}: the process has not started its rounds yet\n\
             hint: see the last line of its log",
            folder.display()
        ),
        Err(error) if missing(&error) => {
            let written = [ROUNDS, EXPERIMENT].into_iter().find_map(|name| {
                let modified =
                    std::fs::metadata(folder.join(name)).and_then(|file| file.modified());
                modified.ok()?.duration_since(UNIX_EPOCH).ok()
            });
            let Some(written) = written else {
                bail!("{}: found no {EXPERIMENT}, expected the folder of a run", folder.display());
            };
            let is_over = folder.join(SUMMARY).is_file();
            Ok(FleetStatus {
                written: written.as_secs(),
                process: 0,
                place: String::new(),
                phase: if is_over { FleetPhase::Ended } else { FleetPhase::Running },
                round: Round(0),
                progress: None,
                sites: Vec::new(),
            })
        }
        Err(error) => Err(error).context(format!("cannot read {}", file.display())),
    }
}

/// How many rounds an experiment is to have.
fn rounds_of(folder: &Path) -> Option<u64> {
    let file = folder.join(EXPERIMENT);
    let experiment = fedra::Experiment::open(&file, &fedra::Overrides::default()).ok()?;
    Some(u64::from(experiment.rounds))
}

/// A text of a file on one line of a terminal.
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::metrics;

    /// A line of the log of rounds, with these fields.
    fn round(more: &Value) -> String {
        let mut report = json!({
            "round": 0, "cohort": [], "arrived": [], "failed": [], "refused": [], "blocks": [], "changed": 0,
            "loss": null, "seconds": 1.0, "slowest": 1.0, "most_updates_held": 0, "scores": [],
            "bytes": { "up": 5, "down": 6, "full_up": 5, "full_down": 6 },
        });
        let fields = more.as_object().unwrap().clone();
        report.as_object_mut().unwrap().extend(fields);
        format!("{report}\n")
    }

    fn two_rounds() -> String {
        round(&json!({})).repeat(2)
    }

    fn folder(status: &str, rounds: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(STATUS), status).unwrap();
        std::fs::write(folder.path().join(ROUNDS), rounds).unwrap();
        folder
    }

    const STANDS: &str = r#"{"written": 1, "process": 7, "place": "here", "phase": "running", "round": 2,
        "sites": [
          {"name": "no\"rth", "here": true, "lost": null, "working": 3.0, "examples": 5, "sent": 10, "received": 20},
          {"name": "west", "here": false, "lost": "it\u001b[31m left", "working": null, "examples": 5, "sent": 0, "received": 0}
        ]}"#;

    #[test]
    fn a_federation_is_told_from_its_files_alone() {
        let scores =
            |mean: Value| json!([{ "on": "central_test", "loss": 1.0, "mean": mean, "each": [] }]);
        let privacy = json!({ "unit": "example", "epsilon": 2.5, "delta": 1e-5 });
        let first = json!({ "scores": scores(json!({ "f1": 0.5 })) });
        let second =
            json!({ "scores": scores(json!({ "f1": 0.75, "x": null })), "privacy": privacy });
        let rounds = format!("{}{}{{\"bytes\": {{\"up\"", round(&first), round(&second));
        let folder = folder(STANDS, &rounds);
        let read = || Picture::read(folder.path()).unwrap();
        let told = read().text();
        assert!(
            told.starts_with("stopped in round 3: no process is running here; 2 com"),
            "{told}"
        );
        assert!(told.contains("no\"rth  was connected; "), "{told}");
        let metrics = metrics::of(&read());
        assert!(metrics.contains("fedra_running 0\n"), "{metrics}");
        assert!(metrics.contains("fedra_client_here{client=\"no\\\"rth\"} 0\n"), "{metrics}");
        let lock = std::fs::File::create(folder.path().join("fedra.lock")).unwrap();
        lock.try_lock().unwrap();
        let picture = read();
        assert!(metrics::of(&picture).contains("fedra_running 1\n"));
        let text = picture.text();
        assert!(text.starts_with("round 3 is running; 2 complete; as of "), "{text}");
        assert!(text.contains("central_test f1: 0.7500\nprivacy spent: epsilon 2.5000"), "{text}");
        assert!(text.contains("west    disconnected: it[31m left;"), "{text}");
        let metrics = metrics::of(&picture);
        assert!(metrics.contains("fedra_client_here{client=\"no\\\"rth\"} 1\n"), "{metrics}");
        assert!(metrics.contains("fedra_payload_up_bytes 10\n"), "{metrics}");
        assert!(
            metrics.contains("fedra_score{on=\"central_test\",name=\"f1\"} 0.75\n"),
            "{metrics}"
        );
        let json: Value = serde_json::from_str(&picture.json()).unwrap();
        assert_eq!(json["federation"]["sites"][1]["name"], "west");
    }

    #[test]
    fn the_work_inside_a_round_is_told_while_somebody_works_on_it() {
        let mut status: Value = serde_json::from_str(STANDS).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        // Of a run in one process.
        status.as_object_mut().unwrap().retain(|key, _| key != "place" && key != "sites");
        status["written"] = now.into();
        status["progress"] = json!({
            "activity": "training", "clients_done": 1, "clients": 4, "steps_done": 10, "steps": 1000,
            "seconds": 60.0,
        });
        let folder = folder(&status.to_string(), &two_rounds());
        let read = || Picture::read(folder.path()).unwrap();
        assert!(!read().text().contains("step 10"), "{}", read().text());
        let lock = std::fs::File::create(folder.path().join("fedra.lock")).unwrap();
        lock.try_lock().unwrap();
        let text = read().text();
        let expected = "\ntraining, step 10/1000; 1 of 4 clients done; about 99.0 min left of it\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("\nprocess 7\n") && !text.contains("clients, with"), "{text}");
        let metrics = metrics::of(&read());
        let expected = "fedra_round_steps_done{activity=\"training\"} 10\n";
        assert!(metrics.contains(expected) && !metrics.contains("client_here"), "{metrics}");
        let json: Value = serde_json::from_str(&read().json()).unwrap();
        assert_eq!(json["progress"]["steps"], 1000);
    }

    #[test]
    fn a_run_that_is_not_on_is_told_from_its_other_files() {
        let folder = folder("", &two_rounds());
        std::fs::remove_file(folder.path().join(STATUS)).unwrap();
        let experiment = include_str!("../../../fedra/tests/tiny.toml");
        std::fs::write(folder.path().join(EXPERIMENT), experiment).unwrap();
        let text = || Picture::read(folder.path()).unwrap().text();
        let expected = "stopped in round 3 of 3: no process is running here; 2 complete; as of ";
        assert!(text().starts_with(expected), "{}", text());
        std::fs::write(folder.path().join(SUMMARY), "{}").unwrap();
        assert!(text().starts_with("has finished; 2 complete"), "{}", text());
        let nothing = tempfile::tempdir().unwrap();
        assert!(Picture::read(nothing.path()).is_err());
    }

    #[test]
    fn rounds_are_told_of_how_many_and_after_the_last_one_nobody_is_missed() {
        let folder = folder(STANDS, &two_rounds());
        let told = |what: fn(&Picture) -> String| what(&Picture::read(folder.path()).unwrap());
        let experiment = include_str!("../../../fedra/tests/tiny.toml");
        std::fs::write(folder.path().join(EXPERIMENT), experiment).unwrap();
        let text = told(Picture::text);
        assert!(
            text.starts_with("stopped in round 3 of 3: no process is running here; 2 "),
            "{text}"
        );
        assert!(told(metrics::of).contains("fedra_rounds 3\n"));
        let ended = STANDS.replace("running", "ended");
        std::fs::write(folder.path().join(STATUS), ended).unwrap();
        let text = told(Picture::text);
        assert!(text.starts_with("ended before its last round; 2 complete"), "{text}");
        assert!(text.contains("west    disconnected: "), "{text}");
        std::fs::write(folder.path().join(SUMMARY), "{}").unwrap();
        let text = told(Picture::text);
        assert!(
            text.starts_with("has finished; 2 complete") && text.contains("west    has finished;"),
            "{text}"
        );
    }

    #[test]
    fn files_that_were_edited_by_hand_are_errors_or_nothing() {
        for wrong in ["", "{}", "[1]", "{\"written\": -1}"] {
            let folder = folder(wrong, "");
            assert!(Picture::read(folder.path()).is_err(), "{wrong}");
        }
        let odd = "null\n[]\n{\"bytes\": 3, \"scores\": {\"on\": 1}}\n{\"scores\": [null, {\"mean\": [1]}]}\n";
        let folder = folder(STANDS, odd);
        assert_eq!(Picture::read(folder.path()).unwrap().scores, []);
    }
}
