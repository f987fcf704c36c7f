//! Waiting for sites that are away: before a round is repeated, and after the last one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fedra_engine::EngineError;
use fedra_wire::ClientId;

use super::{FleetPhase, MOST_NAMED, NetFleet};
use crate::registry::Slot;

/// The longest wait before a round is repeated.
const LONGEST: Duration = Duration::from_mins(10);

impl NetFleet {
    /// The seats on which nobody sits, of those that are meant.
    pub(super) fn away(&self, is_meant: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let roster = self.host.roster();
        let is_away = |(_, seat): &(usize, &Slot)| seat.connection.is_none();
        let away = roster.seats.iter().enumerate().filter(is_away).map(|(number, _)| number);
        away.filter(|number| is_meant(*number)).collect()
    }

    /// Waits for those of the given clients that are away, until they are back or the time is up: a round
    /// that is repeated at once would miss the same ones again.
    pub(super) fn wait_for_return(
        &mut self,
        absent: &[ClientId],
        again: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        let absent: BTreeSet<usize> = absent.iter().map(|client| client.0 as usize).collect();
        let longer = 1 << again.saturating_sub(1).min(16);
        let wait = self.options.retry_after.saturating_mul(longer).min(LONGEST);
        let (until, mut is_told) = (Instant::now() + wait, false);
        loop {
            let away = self.away(|seat| absent.contains(&seat));
            if away.is_empty() || Instant::now() >= until || stop() || self.listener.stops() {
                break;
            }
            if !std::mem::replace(&mut is_told, true) {
                let (round, names) = (self.round.0 + 1, self.names_of(&away));
                self.listener.told(&format!(
                    "too few updates for round {round}: it is repeated when {names} are back, after \
                     {:.0} s at the latest",
                    wait.as_secs_f64()
                ));
                self.enter(FleetPhase::Retrying);
            }
            self.publish();
            let severed = |reason| EngineError::Fleet { doing: "reach the clients", reason };
            self.glance(Some(until)).map_err(severed)?;
        }
        if is_told {
            self.enter(FleetPhase::Running);
        }
        Ok(())
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
