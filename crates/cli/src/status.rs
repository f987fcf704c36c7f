//! `fedra status`: how a run stands, in one process or on several machines, from the files in its folder.
//!
//! Whoever runs the rounds writes them, whatever carries its messages, so this needs no port, no
//! certificate and no word with a server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fedra::folder::run_files::{COMPARISON, EXPERIMENT, ROUNDS, STATUS, SUMMARY};
use fedra::folder::summary::duration;
use fedra::text::grid::counted;
use fedra::text::shell;
use fedra_engine::{Activity, ClientId, NormReport, RoundProgress};
use fedra_net::{FleetPhase, FleetStatus, SiteStatus};
use fedra_plan::{ByteCount, Round};
use fedra_privacy::shown;
use serde_json::Value;

use crate::console;

const EXAMPLES: &str = "\
Examples:
  fedra status runs/study
  fedra status runs/study --format json
  fedra status runs/study --format prometheus > /var/lib/node_exporter/fedra.prom

The folder is that of `fedra run` or `fedra serve`. How far the round is that is on is written once a
second; `fedra serve` counts clients, and `fedra run` their steps too. At a server, who came, went and answered is in events.jsonl, one object a
line; what each round came to is in its rounds.jsonl.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// The folder of a run, or of a comparison
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// For people, as one JSON object, or as metrics in Prometheus's text format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Who is to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Prometheus,
}

impl Status {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let runs = runs_of_comparison(&self.folder);
        if let ([first, ..], Format::Text) = (runs.as_slice(), self.format) {
            console::data(comparison(&self.folder, &runs));
            let one = self.folder.join(first).display().to_string();
            let one = shell::quoted(&one);
            console::say(format_args!("more about one run: fedra status {one}"));
            return Ok(());
        }
        if let [first, ..] = runs.as_slice() {
            bail!(
                "{}: found a comparison, expected the folder of one run for this format, such as {}",
                self.folder.display(),
                self.folder.join(first).display()
            );
        }
        let picture = Picture::read(&self.folder)?;
        match self.format {
            Format::Text => console::data(picture.text().trim_end()),
            Format::Json => console::json(picture.json()),
            Format::Prometheus => console::bytes(picture.metrics().as_bytes()),
        }
        Ok(())
    }
}

/// Folders of runs below that of a comparison, by name: `VARIANT/seed-N`, and deeper for those that tune.
fn runs_of_comparison(folder: &Path) -> Vec<PathBuf> {
    /// `VARIANT/tune/VALUES/seed-N`.
    const DEEPEST: usize = 4;
    fn gather(folder: &Path, name: &Path, runs: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let (path, name) = (entry.path(), name.join(entry.file_name()));
            let is_seed = entry.file_name().to_string_lossy().starts_with("seed-");
            if is_seed && path.join(EXPERIMENT).is_file() {
                runs.push(name);
            } else if name.components().count() < DEEPEST {
                gather(&path, &name, runs);
            }
        }
    }
    let mut runs = Vec::new();
    if !folder.join(EXPERIMENT).is_file() {
        gather(folder, Path::new(""), &mut runs);
    }
    // A folder above or below that of a comparison is none.
    runs.retain(|run| match run.components().count() {
        2 => true,
        DEEPEST => run.components().nth(1).is_some_and(|part| part.as_os_str() == "tune"),
        _ => false,
    });
    runs.sort();
    runs
}

/// How the runs of a comparison stand, a line each.
fn comparison(folder: &Path, runs: &[PathBuf]) -> String {
    let is_over = |run: &&PathBuf| folder.join(run).join(SUMMARY).is_file();
    let complete = runs.iter().filter(is_over).count();
    let doing = match (fedra::is_at_work(folder), folder.join(COMPARISON).is_file()) {
        (true, _) => "is on",
        (false, true) => "is over",
        (false, false) => "stopped before its end: no process is at work here",
    };
    let mut text = format!(
        "a comparison, which {doing}; {} so far, of which {complete} complete",
        counted(runs.len() as u64, "run")
    );
    for run in runs {
        let stands = match Picture::read(&folder.join(run)) {
            Ok(picture) => picture.headline(),
            Err(error) => format!("{error:#}"),
        };
        let _ = write!(text, "\n  {}  {}", plain(&run.display().to_string()), plain(&stands));
    }
    text
}

/// All that is known.
struct Picture {
    status: FleetStatus,
    /// The reports of complete rounds: how many, and what matters of them.
    complete: u64,
    /// Rounds in all, where the folder says so.
    rounds: Option<u64>,
    up: u64,
    down: u64,
    /// The newest score of each set and name.
    scores: Vec<(String, String, f64)>,
    epsilon: Option<f64>,
    /// Updates far outside their cohort, round by round, counted from 1.
    far: Vec<(u64, NormReport)>,
    /// Seconds since the server wrote.
    age: u64,
    /// Whether a server is at work in the folder.
    is_served: bool,
    /// Whether the last round is complete.
    is_finished: bool,
}

impl Picture {
    fn read(folder: &Path) -> Result<Self> {
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
        for report in rounds.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            picture.add(&report);
        }
        Ok(picture)
    }

    fn add(&mut self, report: &Value) {
        self.complete += 1;
        let bytes = |key: &str| report["bytes"][key].as_u64().unwrap_or(0);
        self.up = self.up.saturating_add(bytes("up"));
        self.down = self.down.saturating_add(bytes("down"));
        if let Some(privacy) = report["privacy"].as_object() {
            // Null is how JSON writes an epsilon without a bound.
            let spent = privacy.get("epsilon").and_then(Value::as_f64);
            self.epsilon = Some(spent.unwrap_or(f64::INFINITY));
        }
        let norms = serde_json::from_value::<NormReport>(report["norms"].clone());
        self.far
            .extend(norms.ok().filter(|norms| !norms.far.is_empty()).map(|n| (self.complete, n)));
        let sets = report["scores"].as_array().map(Vec::as_slice).unwrap_or_default();
        for set in sets {
            let on = set["on"].as_str().unwrap_or_default();
            let Some(means) = set["mean"].as_object() else { continue };
            for (name, score) in means {
                let Some(score) = score.as_f64() else { continue };
                self.scores.retain(|(known, other, _)| known != on || other != name);
                self.scores.push((on.to_owned(), name.clone(), score));
            }
        }
    }

    /// What it is doing, on one line.
    fn headline(&self) -> String {
        let Self { status, complete, age, .. } = self;
        let (round, of) = self.round();
        let doing = match (status.phase, self.is_served) {
            (FleetPhase::Waiting, true) => "waits for clients".to_owned(),
            (FleetPhase::Running, true) => format!("round {round}{of} is on"),
            (FleetPhase::Retrying, true) => {
                format!("round {round}{of} had too few updates and waits for clients that are away")
            }
            (FleetPhase::Waiting, false) => {
                "stopped while it waited for clients: no process is at work here".to_owned()
            }
            (FleetPhase::Running | FleetPhase::Retrying, false) => {
                format!("stopped in round {round}{of}: no process is at work here")
            }
            (FleetPhase::Ended, _) if self.is_finished => "is over".to_owned(),
            (FleetPhase::Ended, _) => "ended before its last round".to_owned(),
        };
        format!("{doing}; {complete} complete; as of {age} s ago")
    }

    fn text(&self) -> String {
        let Self { status, up, down, .. } = self;
        let mut text = format!("{}\n", self.headline());
        if let Some(progress) = self.progress() {
            let _ = writeln!(text, "{}", self.within(progress));
        }
        match status.place.as_str() {
            "" if self.is_served => {
                let _ = writeln!(text, "process {}", status.process);
            }
            "" => {}
            place => {
                let _ = writeln!(text, "at {}, process {}", plain(place), status.process);
            }
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
    fn progress(&self) -> Option<&RoundProgress> {
        let is_on = self.status.phase == FleetPhase::Running && self.is_served;
        self.status.progress.as_ref().filter(|_| is_on)
    }

    /// How long the rest of it will take, counted from now.
    fn seconds_left(&self, progress: &RoundProgress) -> Option<f64> {
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
            // However a network words it: nobody is missed after the last round.
            (false, _, Some(_)) if self.is_finished => "is done".to_owned(),
            (true, ..) if !self.is_served => "was here".to_owned(),
            (true, Some(seconds), _) => format!("works for {:.0} s", seconds + self.age as f64),
            (true, None, _) => "is here".to_owned(),
            (false, _, Some(reason)) => format!("is gone: {}", plain(reason)),
            (false, _, None) => "has not come".to_owned(),
        }
    }

    fn json(&self) -> String {
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

    fn metrics(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
            let _ = writeln!(text, "# HELP fedra_{name} {help}\n# TYPE fedra_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "fedra_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        let by_site = |value: &dyn Fn(&SiteStatus) -> f64| {
            let label = |site: &SiteStatus| format!("{{client=\"{}\"}}", escaped(&site.name));
            self.status.sites.iter().map(|site| (label(site), value(site))).collect()
        };
        let truth = f64::from;
        let is_on = match self.status.phase {
            FleetPhase::Running | FleetPhase::Retrying => self.is_served,
            FleetPhase::Waiting | FleetPhase::Ended => false,
        };
        metric("running", "gauge", "Whether rounds are on.", one(truth(u8::from(is_on))));
        let is_finished = truth(u8::from(self.is_finished));
        metric("finished", "gauge", "Whether the last round is complete.", one(is_finished));
        metric("status_age_seconds", "gauge", "Since the server wrote.", one(self.age as f64));
        metric("rounds_complete", "counter", "Complete rounds.", one(self.complete as f64));
        if let Some(rounds) = self.rounds {
            metric("rounds", "gauge", "Rounds in all.", one(rounds as f64));
        }
        let far = self.far.iter().map(|(_, norms)| norms.far.len()).sum::<usize>();
        let help = "Updates beyond ten times the median norm of their round.";
        metric("far_updates", "counter", help, one(far as f64));
        metric("payload_up_bytes", "counter", "Payloads from clients.", one(self.up as f64));
        metric("payload_down_bytes", "counter", "Payloads to clients.", one(self.down as f64));
        if let Some(epsilon) = self.epsilon {
            metric("privacy_epsilon", "gauge", "Privacy spent.", one(epsilon));
        }
        if let Some(progress) = self.progress() {
            let labels = format!("{{activity=\"{}\"}}", progress.activity.name());
            let of = |count: u64| vec![(labels.clone(), count as f64)];
            let (done, clients) = (of(progress.clients_done), of(progress.clients));
            metric("round_clients_done", "gauge", "Clients that are done in this round.", done);
            metric("round_clients", "gauge", "Clients that were asked in it.", clients);
            if progress.steps > 0 {
                let (done, steps) = (of(progress.steps_done), of(progress.steps));
                metric("round_steps_done", "gauge", "Steps taken, or examples looked at.", done);
                metric("round_steps", "gauge", "Steps or examples in all.", steps);
            }
            if let Some(left) = self.seconds_left(progress) {
                metric("round_seconds_left", "gauge", "The rest of it, about.", one(left));
            }
        }
        if self.status.sites.is_empty() {
            return text;
        }
        let here = by_site(&|site| truth(u8::from(site.here && self.is_served)));
        metric("client_here", "gauge", "Whether a client is there.", here);
        let working = by_site(&|site| site.working.filter(|_| self.is_served).unwrap_or(0.0));
        metric("client_working_seconds", "gauge", "Time on its present request.", working);
        let sent = by_site(&|site| site.sent as f64);
        metric("client_sent_bytes", "counter", "Bytes that went to a client.", sent);
        let received = by_site(&|site| site.received as f64);
        metric("client_received_bytes", "counter", "Bytes that came from it.", received);
        let scores = self.scores.iter().map(|(on, name, score)| {
            (format!("{{on=\"{}\",name=\"{}\"}}", escaped(on), escaped(name)), *score)
        });
        metric("score", "gauge", "The newest scores.", scores.collect());
        text
    }
}

/// What whoever runs the rounds wrote last; where it has taken that with it, what its other files tell.
fn status_of(folder: &Path) -> Result<FleetStatus> {
    let file = folder.join(STATUS);
    let missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text)
            .with_context(|| format!("{}: found no status of a run", file.display())),
        Err(error) if missing(&error) && fedra::is_at_work(folder) => bail!(
            "{}: found a process that has not begun its rounds yet\n\
             hint: see its last line of output for what it is doing",
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
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// A text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let rounds = concat!(
            r#"{"bytes": {"up": 5, "down": 6}, "scores": [{"on": "central_test", "mean": {"f1": 0.5}}]}"#,
            "\n",
            r#"{"bytes": {"up": 5, "down": 6}, "scores": [{"on": "central_test", "mean": {"f1": 0.75, "x": null}}], "privacy": {"epsilon": 2.5}}"#,
            "\n{\"bytes\": {\"up\"",
        );
        let folder = folder(STANDS, rounds);
        let read = || Picture::read(folder.path()).unwrap();
        let told = read().text();
        assert!(
            told.starts_with("stopped in round 3: no process is at work here; 2 com"),
            "{told}"
        );
        assert!(told.contains("no\"rth  was here; "), "{told}");
        let metrics = read().metrics();
        assert!(metrics.contains("fedra_running 0\n"), "{metrics}");
        assert!(metrics.contains("fedra_client_here{client=\"no\\\"rth\"} 0\n"), "{metrics}");
        let lock = std::fs::File::create(folder.path().join("fedra.lock")).unwrap();
        lock.try_lock().unwrap();
        let picture = read();
        assert!(picture.metrics().contains("fedra_running 1\n"));
        let text = picture.text();
        assert!(text.starts_with("round 3 is on; 2 complete; as of "), "{text}");
        assert!(text.contains("central_test f1: 0.7500\nprivacy spent: epsilon 2.5000"), "{text}");
        assert!(text.contains("west    is gone: it[31m left;"), "{text}");
        let metrics = picture.metrics();
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
        status["progress"] = serde_json::json!({
            "activity": "training", "clients_done": 1, "clients": 4, "steps_done": 10, "steps": 1000,
            "seconds": 60.0,
        });
        let folder = folder(&status.to_string(), "{}\n{}\n");
        let read = || Picture::read(folder.path()).unwrap();
        assert!(!read().text().contains("step 10"), "{}", read().text());
        let lock = std::fs::File::create(folder.path().join("fedra.lock")).unwrap();
        lock.try_lock().unwrap();
        let text = read().text();
        let expected = "\ntraining, step 10/1000; 1 of 4 clients done; about 99.0 min left of it\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("\nprocess 7\n") && !text.contains("clients, with"), "{text}");
        let metrics = read().metrics();
        let expected = "fedra_round_steps_done{activity=\"training\"} 10\n";
        assert!(metrics.contains(expected) && !metrics.contains("client_here"), "{metrics}");
        let json: Value = serde_json::from_str(&read().json()).unwrap();
        assert_eq!(json["progress"]["steps"], 1000);
    }

    #[test]
    fn a_run_that_is_not_on_is_told_from_its_other_files() {
        let folder = folder("", "{}\n{}\n");
        std::fs::remove_file(folder.path().join(STATUS)).unwrap();
        let experiment = include_str!("../../fedra/tests/tiny.toml");
        std::fs::write(folder.path().join(EXPERIMENT), experiment).unwrap();
        let text = || Picture::read(folder.path()).unwrap().text();
        let expected = "stopped in round 3 of 3: no process is at work here; 2 complete; as of ";
        assert!(text().starts_with(expected), "{}", text());
        std::fs::write(folder.path().join(SUMMARY), "{}").unwrap();
        assert!(text().starts_with("is over; 2 complete"), "{}", text());
        let nothing = tempfile::tempdir().unwrap();
        assert!(Picture::read(nothing.path()).is_err());
    }

    #[test]
    fn rounds_are_told_of_how_many_and_after_the_last_one_nobody_is_missed() {
        let folder = folder(STANDS, "{}\n{}\n");
        let told = |what: fn(&Picture) -> String| what(&Picture::read(folder.path()).unwrap());
        let experiment = include_str!("../../fedra/tests/tiny.toml");
        std::fs::write(folder.path().join(EXPERIMENT), experiment).unwrap();
        let text = told(Picture::text);
        assert!(
            text.starts_with("stopped in round 3 of 3: no process is at work here; 2 "),
            "{text}"
        );
        assert!(told(Picture::metrics).contains("fedra_rounds 3\n"));
        let ended = STANDS.replace("running", "ended");
        std::fs::write(folder.path().join(STATUS), ended).unwrap();
        let text = told(Picture::text);
        assert!(text.starts_with("ended before its last round; 2 complete"), "{text}");
        assert!(text.contains("west    is gone: "), "{text}");
        std::fs::write(folder.path().join(SUMMARY), "{}").unwrap();
        let text = told(Picture::text);
        assert!(
            text.starts_with("is over; 2 complete") && text.contains("west    is done;"),
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
