//! Keeps the two files of [status](super::status) up to date.

use std::io::Write;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fedra_engine::{Activity, RoundProgress};
use serde_json::json;

use super::NetFleet;
use super::status::{AT_MOST_EVERY, EVENTS, FleetPhase, FleetStatus, STATUS, SiteStatus};
use crate::registry::Event;

impl NetFleet {
    /// Another part of the run begins.
    pub(super) fn enter(&mut self, phase: FleetPhase) {
        self.publication.phase = phase;
        self.publication.written = None;
        self.publish();
    }

    /// Writes how things stand if that is due.
    pub(super) fn publish_in_time(&mut self) {
        if self.publication.is_due() {
            self.publish();
            // Whoever shows it hears now and then that it continues.
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
        let mut line = match event {
            Event::Joined { seat, about } => {
                json!({"event": "joined", "client": name(seat), "about": about})
            }
            Event::Lost { seat, reason } => {
                json!({"event": "lost", "client": name(seat), "about": reason})
            }
            Event::Refused { who, reason } => {
                json!({"event": "refused", "client": who, "about": reason})
            }
            Event::Answer { seat, message, .. } => json!({
                "event": "answer", "client": name(seat), "round": self.round,
                "bytes": message.payload_bytes(),
            }),
            Event::Said { line } => json!({"event": "network", "about": line}),
            Event::Severed { reason } => json!({"event": "severed", "about": reason}),
        };
        line["time"] = now().into();
        let path = self.publication.folder.join(EVENTS);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _best_effort = file.and_then(|mut file| writeln!(file, "{line}"));
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
