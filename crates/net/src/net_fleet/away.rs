//! Waiting for sites that are away: before a round is repeated, and after the last one.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{MOST_NAMED, NetFleet};
use crate::registry::Slot;

impl NetFleet {
    /// The seats on which nobody sits, of those that are meant.
    pub(super) fn away(&self, is_meant: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let roster = self.host.roster();
        let is_away = |(_, seat): &(usize, &Slot)| seat.connection.is_none();
        let away = roster.seats.iter().enumerate().filter(is_away).map(|(number, _)| number);
        away.filter(|number| is_meant(*number)).collect()
    }

    /// Stays a while for those who took part and are away, so that they hear that the run has finished.
    pub(super) fn tell_latecomers(&mut self, away: BTreeSet<usize>) {
        let mut away = away;
        // Whoever never came in this time of the server is not on its way back.
        away.retain(|seat| self.host.roster().seats[*seat].lost.is_some());
        let until = Instant::now() + self.options.farewell;
        if away.is_empty() || until <= Instant::now() {
            return;
        }
        let (names, seconds) = (self.names_of(&away), self.options.farewell.as_secs_f64());
        self.listener.told(&format!(
            "waiting for {names}, {seconds:.0} s at most, to notify them that the run has finished"
        ));
        while Instant::now() < until && !self.listener.stops() {
            away.retain(|seat| !self.host.roster().latecomers.contains(seat));
            if away.is_empty() || self.glance(Some(until)).is_err() {
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
