//! What a federation looks like from outside while it is on: two small files in the run's folder.
//!
//! They are views for people and for other programs. Nothing of a run depends on them, nobody here reads
//! them back, and a disk that refuses them stops no round.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fedra_engine::{Activity, RoundProgress};
use fedra_plan::Round;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::NetFleet;
use crate::roster::Event;

/// How things stand.
pub const STATUS: &str = "status.json";
/// Who came and went, one object a line.
pub const EVENTS: &str = "events.jsonl";
/// The file is written no more often.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// While sites are waited for it is written at least so often.
const AT_LEAST_EVERY: Duration = Duration::from_secs(5);

/// How a federation stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// When this was written, in seconds since 1970.
    pub written: u64,
    /// The process that serves it.
    pub process: u32,
    /// Where sites find it; empty where nobody has to.
    #[serde(default)]
    pub place: String,
    /// What is going on.
    pub phase: FleetPhase,
    /// The round that is on, from 0.
    pub round: Round,
    /// How far the work inside the round is.
    #[serde(default)]
    pub progress: Option<RoundProgress>,
    /// The clients, in the order of their numbers; none where all are in the process itself.
    #[serde(default)]
    pub sites: Vec<SiteStatus>,
}

/// What is going on in a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetPhase {
    /// Sites are waited for before rounds begin.
    Waiting,
    /// Rounds are on.
    Running,
    /// A round had too few updates; clients that are away are waited for before it is repeated.
    Retrying,
    /// It is over.
    Ended,
}

/// How a client stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub here: bool,
    /// Why it is not, if it was.
    pub lost: Option<String>,
    /// For how many seconds it has been working on a request.
    pub working: Option<f64>,
    /// Its training examples.
    pub examples: u64,
    /// Bytes that went to it.
    pub sent: u64,
    /// Bytes that came from it.
    pub received: u64,
}

/// What the fleet remembers for these files.
#[derive(Debug)]
pub(super) struct Publication {
    folder: PathBuf,
    phase: FleetPhase,
    /// Since when each client works on a request.
    asked: BTreeMap<usize, Instant>,
    written: Option<Instant>,
    /// Whether something happened since.
    has_news: bool,
    /// What clients have been asked for, since when, and how many are done.
    work: Option<(Activity, Instant, u64, u64)>,
}

impl Publication {
    pub(super) fn new(folder: &Path) -> Self {
        let (phase, asked, written) = (FleetPhase::Waiting, BTreeMap::new(), None);
        Self { folder: folder.to_owned(), phase, asked, written, has_news: false, work: None }
    }

    /// It is written when it is asked for next.
    pub(super) const fn forget(&mut self) {
        self.written = None;
    }

    /// Whether it is time to write again.
    fn is_due(&self) -> bool {
        let after = if self.has_news { AT_MOST_EVERY } else { AT_LEAST_EVERY };
        self.written.is_none_or(|when| when.elapsed() >= after)
    }
}

impl NetFleet {
    /// Another part of the run begins.
    pub(super) fn enter(&mut self, phase: FleetPhase) {
        self.publication.phase = phase;
        self.publication.forget();
        self.publish();
    }

    /// A client has something to do.
    pub(super) fn note_asked(&mut self, seat: usize) {
        self.publication.asked.insert(seat, Instant::now());
    }

    /// It has done it, or is not waited for any more.
    pub(super) fn note_done(&mut self, seat: usize) {
        self.publication.asked.remove(&seat);
    }

    /// Writes how things stand if that is due.
    pub(super) fn publish_in_time(&mut self) {
        if self.publication.is_due() {
            self.publish();
            // Whoever shows it hears now and then that it goes on.
            self.tell_progress();
        }
    }

    /// Writes how things stand, unless that was done a moment ago.
    pub(super) fn publish(&mut self) {
        if self.publication.written.is_some_and(|when| when.elapsed() < AT_MOST_EVERY) {
            return;
        }
        (self.publication.written, self.publication.has_news) = (Some(Instant::now()), false);
        let status = self.status();
        let path = self.publication.folder.join(STATUS);
        let unfinished = path.with_extension("json.part");
        let text = serde_json::to_vec_pretty(&status).unwrap_or_default();
        let _best_effort =
            std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, &path));
    }

    /// So many clients have been asked for something.
    pub(super) fn begin_work(&mut self, activity: Activity, clients: usize) {
        self.publication.work = Some((activity, Instant::now(), 0, clients as u64));
        self.publication.has_news = true;
        self.tell_progress();
    }

    /// What comes now is not counted.
    pub(super) const fn no_work(&mut self) {
        self.publication.work = None;
    }

    /// One of them is done with it, or not waited for any more.
    pub(super) fn end_work(&mut self) {
        if let Some((_, _, done, _)) = &mut self.publication.work {
            *done += 1;
        }
        self.publication.has_news = true;
        self.tell_progress();
    }

    fn tell_progress(&self) {
        if let Some(progress) = self.progress() {
            self.observer.progressed(&progress);
        }
    }

    /// Steps are the sites' own, and nobody asks them how far they are.
    fn progress(&self) -> Option<RoundProgress> {
        let (activity, since, clients_done, clients) = self.publication.work?;
        let seconds = since.elapsed().as_secs_f64();
        Some(RoundProgress { activity, clients_done, clients, steps_done: 0, steps: 0, seconds })
    }

    fn status(&self) -> FleetStatus {
        let roster = self.host.roster();
        let site = |(seat, info): (usize, &fedra_engine::ClientInfo)| {
            let traffic = roster.traffic.of(&info.name);
            let place = &roster.seats[seat];
            let here = place.connection.is_some();
            let asked = self.publication.asked.get(&seat).filter(|_| here);
            SiteStatus {
                name: info.name.clone(),
                here,
                lost: place.lost.as_ref().map(|(_, reason)| reason.clone()),
                working: asked.map(|when| when.elapsed().as_secs_f64()),
                examples: info.examples,
                sent: traffic.sent,
                received: traffic.received,
            }
        };
        FleetStatus {
            written: now(),
            process: std::process::id(),
            place: self.carrier.place(),
            phase: self.publication.phase,
            round: self.round,
            progress: self.progress(),
            sites: self.infos.iter().enumerate().map(site).collect(),
        }
    }

    /// Appends what happened to the list of events.
    pub(super) fn log_event(&mut self, event: &Event) {
        self.publication.has_news = true;
        let name = |seat: &usize| self.infos.get(*seat).map_or("", |info| info.name.as_str());
        let (time, round) = (now(), self.round.0);
        let line = match event {
            Event::Joined { seat, about } => {
                json!({"time": time, "event": "joined", "client": name(seat), "about": about})
            }
            Event::Lost { seat, reason } => {
                json!({"time": time, "event": "lost", "client": name(seat), "about": reason})
            }
            Event::Refused { who, reason } => {
                json!({"time": time, "event": "refused", "client": who, "about": reason})
            }
            Event::Answer { seat, message, .. } => json!({
                "time": time, "event": "answer", "client": name(seat), "round": round,
                "bytes": message.payload_bytes(),
            }),
            Event::Said { line } => json!({"time": time, "event": "network", "about": line}),
            Event::Severed { reason } => {
                json!({"time": time, "event": "severed", "about": reason})
            }
        };
        let path = self.publication.folder.join(EVENTS);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _best_effort = file.and_then(|mut file| writeln!(file, "{line}"));
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
