//! The time between a lost connection and the next one: who is told, how long is waited, and when nobody
//! waits any longer.
//!
//! Waits grow, and each is drawn between half of its length and all of it: sites that lost the same server
//! do not come back in the same moment.

use std::time::{Duration, Instant};

use fedra_seed::{Generator, Seed};

use crate::listener::{Left, Listener, rest};

/// The first wait before dialling again; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Waits while the other side is away.
pub struct Outage<'a> {
    listener: &'a dyn Listener,
    /// How long the other side may be away; absent: for ever.
    patience: Option<Duration>,
    /// Since when it has been away.
    since: Instant,
    is_told: bool,
    wait: Duration,
    draws: Generator,
}

impl<'a> Outage<'a> {
    /// Nobody was there yet. The lengths of waits are drawn from the seed.
    pub fn new(listener: &'a dyn Listener, patience: Option<Duration>, seed: Seed) -> Self {
        let draws = seed.of("waits between connections").generator();
        let since = Instant::now();
        Self { listener, patience, since, is_told: false, wait: FIRST_WAIT, draws }
    }

    /// The other side was there until now: the next loss is told again.
    pub fn was_there(&mut self) {
        (self.since, self.is_told) = (Instant::now(), false);
    }

    /// Something came of the last connection: waits are short again.
    pub const fn was_useful(&mut self) {
        self.wait = FIRST_WAIT;
    }

    /// Waits before the next attempt, and says why, once for each outage. How the site leaves, if it is not
    /// to try again.
    pub fn rest(&mut self, why: &str) -> Option<Left> {
        if !std::mem::replace(&mut self.is_told, true) {
            self.listener.told(&format!("{why}; trying again until it answers"));
        }
        let drawn = self.wait.mul_f64(0.5 + self.draws.uniform() / 2.0);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        let left = self.patience.map(|patience| patience.saturating_sub(self.since.elapsed()));
        if !rest(drawn.min(left.unwrap_or(drawn)), || self.listener.stops()) {
            return Some(Left::Stopped);
        }
        let patience = self.patience.filter(|it| self.since.elapsed() >= *it)?;
        let seconds = patience.as_secs();
        Some(Left::Alone(format!("no answer for {seconds} s: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[derive(Default)]
    struct Said {
        lines: RefCell<Vec<String>>,
        stops: Cell<bool>,
    }

    impl Listener for Said {
        fn told(&self, line: &str) {
            self.lines.borrow_mut().push(line.to_owned());
        }

        fn stops(&self) -> bool {
            self.stops.get()
        }
    }

    #[test]
    fn an_outage_is_told_once_and_the_next_one_again() {
        let said = Said::default();
        let mut outage = Outage::new(&said, None, Seed(1));
        outage.wait = Duration::from_millis(1);
        assert_eq!(outage.rest("gone"), None);
        assert_eq!(outage.rest("still gone"), None);
        outage.was_there();
        assert_eq!(outage.rest("gone again"), None);
        let expected =
            ["gone; trying again until it answers", "gone again; trying again until it answers"];
        assert_eq!(*said.lines.borrow(), expected);
        said.stops.set(true);
        assert_eq!(outage.rest("gone"), Some(Left::Stopped));
    }

    #[test]
    fn waits_grow_to_the_longest_and_begin_anew_once_something_came_of_a_connection() {
        let said = Said::default();
        said.stops.set(true);
        let mut outage = Outage::new(&said, None, Seed(1));
        for _ in 0..9 {
            let _stopped = outage.rest("gone");
        }
        assert_eq!(outage.wait, LONGEST_WAIT);
        outage.was_there();
        assert_eq!(
            outage.wait, LONGEST_WAIT,
            "a connection that brings nothing is no reason to hurry"
        );
        outage.was_useful();
        assert_eq!(outage.wait, FIRST_WAIT);
    }

    #[test]
    fn whoever_has_no_patience_leaves_with_the_last_reason() {
        let said = Said::default();
        let mut outage = Outage::new(&said, Some(Duration::ZERO), Seed(1));
        let left = outage.rest("cannot reach it");
        assert_eq!(left, Some(Left::Alone("no answer for 0 s: cannot reach it".to_owned())));
    }
}
