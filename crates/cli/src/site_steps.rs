//! What a site shows of its own work: a live line on a terminal, elsewhere a line once a minute.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use fedra::folder::summary::duration;
use fedra::listener::Finishes;
use fedra_client::Observer;
use fedra_engine::{Arrival, ClientInfo, RoundProgress};
use fedra_plan::Round;

use crate::console;
use crate::flags::Verbosity;
use crate::interrupt;
use crate::live::{A_WHILE, cut, fitted};
use crate::screen::{self, Line, locked};

/// What is shown while nothing is worked on.
const WAITS: &str = "waiting for the server";

/// Follows the client of a site, and stops it on Ctrl-C.
pub struct SiteSteps {
    state: Arc<Mutex<State>>,
    voice: Verbosity,
    finishes: Finishes,
    line: Line,
}

struct State {
    /// The round that it last trained in, counted from 1.
    round: Option<u32>,
    work: Option<RoundProgress>,
    said: Instant,
}

impl SiteSteps {
    /// Nothing is worked on yet.
    pub fn new(voice: Verbosity, finishes: Finishes) -> Self {
        let state = State { round: None, work: None, said: Instant::now() };
        let state = Arc::new(Mutex::new(state));
        let line = Line::new(voice == Verbosity::Lively, &state, State::line);
        Self { state, voice, finishes, line }
    }
}

impl State {
    /// What it works on; nothing once it is done.
    fn work(&self) -> Option<RoundProgress> {
        self.work.filter(|work| work.clients_done < work.clients)
    }

    fn parts(&self) -> Vec<String> {
        let Some(work) = self.work() else { return vec![WAITS.to_owned()] };
        let left = work.left().map(|left| duration(left.as_secs_f64()));
        let parts = [
            self.round.map(|round| format!("round {round}")),
            Some(work.counted().unwrap_or_else(|| work.activity.name().to_owned())),
            left.map(|left| format!("about {left} left")),
        ];
        parts.into_iter().flatten().collect()
    }

    fn line(&self, width: usize) -> String {
        let Some(work) = self.work() else { return cut(WAITS, width.saturating_sub(1)) };
        let share = work.steps_done as f64 / work.steps.max(1) as f64;
        let parts = self.parts().into_iter().map(Some);
        fitted(&(0..).zip(parts).collect::<Vec<(u8, Option<String>)>>(), share, width)
    }

    /// What it is at, if nothing has been said for a while.
    fn said_in_a_while(&mut self, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.said) < A_WHILE {
            return None;
        }
        self.said = now;
        Some(self.parts().join(", "))
    }
}

impl Observer for SiteSteps {
    fn started(&self, _client: &ClientInfo, round: Round) {
        let mut state = locked(&self.state);
        (state.round, state.said) = (Some(round.0 + 1), Instant::now());
    }

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, progress: &RoundProgress) {
        let said = {
            let mut state = locked(&self.state);
            state.work = Some(*progress);
            let is_heard = self.voice == Verbosity::Lively && !screen::was_live();
            if is_heard { state.said_in_a_while(Instant::now()) } else { None }
        };
        if let Some(said) = said {
            console::say(said);
        }
    }

    fn stops(&self) -> bool {
        self.finishes == Finishes::Step && interrupt::interrupted()
    }
}

impl Drop for SiteSteps {
    fn drop(&mut self) {
        self.line.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fedra_engine::Activity;

    #[test]
    fn a_site_shows_its_steps_and_then_that_it_waits() {
        let now = Instant::now();
        let mut state = State { round: None, work: None, said: now };
        assert_eq!(state.parts(), ["waiting for the server"]);
        let work = RoundProgress {
            activity: Activity::Training,
            clients_done: 0,
            clients: 1,
            steps_done: 10,
            steps: 40,
            seconds: 10.0,
        };
        (state.round, state.work) = (Some(3), Some(work));
        assert_eq!(state.parts(), ["round 3", "step 10/40", "about 30.0 s left"]);
        let later = now + Duration::from_secs(61);
        assert_eq!(state.said_in_a_while(now), None);
        assert!(state.said_in_a_while(later).is_some());
        assert_eq!(state.said_in_a_while(later), None);
        state.work = Some(RoundProgress { clients_done: 1, ..work });
        assert_eq!(state.line(60), "waiting for the server");
    }
}
