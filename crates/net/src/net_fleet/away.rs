//! Waiting for sites that are away: before a round is repeated, and after the last one.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{FAREWELL, MOST_NAMED, NetFleet};
use crate::registry::Slot;

impl NetFleet {
    /// The seats on which nobody sits, of those that are meant.
    pub(super) fn away(&self, is_meant: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let roster = self.host.roster();
        let is_away = |(_, seat): &(usize, &Slot)| seat.connection.is_none();
        let away = roster.seats.iter().enumerate().filter(is_away).map(|(number, _)| number);
        away.filter(|number| is_meant(*number)).collect()
    }

    /// The seats of those who have not heard that the run has finished, of those that are meant.
    ///
    /// What was sent is not what was heard: a connection may be broken without anybody having noticed. A site
    /// has heard it when it has left by itself.
    pub(super) fn uninformed(&self, is_meant: impl Fn(&Slot) -> bool) -> BTreeSet<usize> {
        let roster = self.host.roster();
        let seats = roster.seats.iter().enumerate().filter(|(_, seat)| is_meant(seat));
        seats.map(|(number, _)| number).filter(|seat| !roster.informed.contains(seat)).collect()
    }

    /// Stays a while for those who took part and have not heard that the run has finished.
    pub(super) fn wait_for_uninformed(&mut self) {
        let (begun, farewell) = (Instant::now(), self.options.farewell);
        let until = begun + farewell;
        let mut named = BTreeSet::new();
        while Instant::now() < until && !self.listener.stops() {
            // Whoever never came in this time of the server is not on its way back.
            let waiting = self.uninformed(|seat| seat.connection.is_some() || seat.lost.is_some());
            if waiting.is_empty() {
                return;
            }
            let is_usual = begun.elapsed() < FAREWELL;
            let missed = self.uninformed(|seat| match seat.connection {
                Some(_) => !is_usual,
                None => seat.lost.is_some(),
            });
            if !missed.is_subset(&named) {
                let (names, seconds) = (self.names_of(&missed), farewell.as_secs_f64());
                self.listener.told(&format!(
                    "waiting for {names}, {seconds:.0} s at most, to notify them that the run has finished"
                ));
                named.extend(missed);
            }
            if self.glance(Some(until)).is_err() {
                return;
            }
        }
    }

    /// Clients for people: the first few by name.
    pub(super) fn names_of(&self, seats: &BTreeSet<usize>) -> String {
        let names = seats.iter().filter_map(|seat| self.infos.get(*seat));
        let first: Vec<&str> = names.take(MOST_NAMED).map(|info| info.name.as_str()).collect();
        let first = first.join(", ");
        match seats.len() {
            0..=MOST_NAMED => first,
            many => format!("{first} and {} more", many - MOST_NAMED),
        }
    }
}
