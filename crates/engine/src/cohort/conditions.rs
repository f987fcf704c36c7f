//! Bad luck on purpose: clients that fail, clients that are slow, rounds that do not wait.
//!
//! Fates are drawn from the seed before anything trains, not from the clock, so a run under bad
//! conditions repeats to the byte. Who fails or comes late gets its download (those bytes are
//! spent) but no request, and its state stays as it was: it is as if it had not been sampled.
//!
//! Who is *away* is not even sampled. Intervals of rounds, counted from 1 as people count them, say
//! all there is to say: who is away in rounds 1 to 5 joins late, who is away from round 8 on has
//! left, and who is away in between comes back and downloads what it missed.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::Round;
use fedra_seed::Seed;
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, refuse};
use crate::settings::settings;

/// What goes wrong, and how long a round waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// The probability that a client fails in a round.
    pub fail: f64,
    /// Who is slow, and by how much.
    pub slow: Slow,
    /// Closes a round with the first so many answers; absent, it waits for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_with: Option<u32>,
    /// When clients, by name, are not there at all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub away: BTreeMap<String, Vec<Away>>,
}

/// Rounds, counted from 1, in which a client is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Away {
    /// The first.
    pub from: u32,
    /// The last; absent, it never comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
}

settings! {
    /// Slowness, drawn again in each round.
    #[derive(Copy)]
    pub struct Slow {
        /// The probability that a client is slow in a round.
        pub share: f64 = 0.0,
        /// How many times longer a slow client takes.
        pub factor: f64 = 4.0,
    }
}

/// What will become of a client in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It answers in time.
    Works,
    /// It does not answer.
    Fails,
    /// The round closes before it answers.
    Late,
}

impl Conditions {
    /// Refuses probabilities that are none, and rounds that close with nobody or with more clients
    /// than the most that a round has.
    pub fn check(&self, most: usize) -> Result<(), EngineError> {
        if !(0.0..=1.0).contains(&self.fail) {
            return refuse("conditions.fail", self.fail, "a probability from 0 to 1");
        }
        if !(0.0..=1.0).contains(&self.slow.share) {
            return refuse("conditions.slow.share", self.slow.share, "a probability from 0 to 1");
        }
        if !(self.slow.factor.is_finite() && self.slow.factor >= 1.0) {
            let expected = "a finite number, 1 or more";
            return refuse("conditions.slow.factor", self.slow.factor, expected);
        }
        if self.close_with == Some(0) {
            return refuse("conditions.close_with", 0, "at least 1");
        }
        if let Some(count) = self.close_with
            && count as usize > most
        {
            let found = format!("{count} of at most {most} clients in a round");
            let expected = "no more clients than can take part in a round";
            return refuse("conditions.close_with", found, expected);
        }
        for (name, away) in &self.away {
            let wrong = |one: &&Away| one.from == 0 || one.to.is_some_and(|to| to < one.from);
            if let Some(Away { from, to }) = away.iter().find(wrong) {
                let to = to.map_or(String::new(), |to| format!(" to {to}"));
                let expected = "rounds from 1 on, the last not before the first";
                return refuse("conditions.away", format!("{name:?} from {from}{to}"), expected);
            }
        }
        Ok(())
    }

    /// Whether the named client can be drawn in a round.
    pub fn is_here(&self, name: &str, round: Round) -> bool {
        let number = round.0.saturating_add(1);
        let away = self.away.get(name).map_or(&[][..], Vec::as_slice);
        !away.iter().any(|one| one.from <= number && one.to.is_none_or(|to| number <= to))
    }

    /// The fate of each client, given the steps it has to make, in the order of the cohort.
    pub(crate) fn fates(
        &self,
        experiment: Seed,
        round: Round,
        cohort: &[(ClientId, u64)],
    ) -> Vec<(ClientId, Fate)> {
        let seed = experiment.of("conditions").with(u64::from(round.0));
        let mut fates = Vec::with_capacity(cohort.len());
        let mut finishes = Vec::new();
        for &(client, steps) in cohort {
            let mut generator = seed.with(u64::from(client.0)).generator();
            let fails = generator.uniform() < self.fail;
            let slowed = generator.uniform() < self.slow.share;
            // Machines differ by up to a quarter even when none is slow.
            let pace =
                (0.75 + 0.5 * generator.uniform()) * if slowed { self.slow.factor } else { 1.0 };
            fates.push((client, if fails { Fate::Fails } else { Fate::Works }));
            if !fails {
                finishes.push((steps as f64 * pace, client));
            }
        }
        finishes.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        let in_time = self.close_with.map_or(finishes.len(), |count| count as usize);
        let late: BTreeSet<ClientId> =
            finishes.into_iter().skip(in_time).map(|(_, client)| client).collect();
        for (_, fate) in fates.iter_mut().filter(|(client, _)| late.contains(client)) {
            *fate = Fate::Late;
        }
        fates
    }
}

/// Refuses names that no client has.
pub(crate) fn check_names<'given>(
    key: &'static str,
    (what, mut given): (&str, impl Iterator<Item = &'given String>),
    names: &BTreeSet<&str>,
) -> Result<(), EngineError> {
    let expected = "the name of a client; `fedra data` lists them";
    match given.find(|name| !names.contains(name.as_str())) {
        None => Ok(()),
        Some(stranger) => refuse(key, format!("{what} {stranger:?}"), expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cohort() -> Vec<(ClientId, u64)> {
        (0..8).map(|number| (ClientId(number), 10)).collect()
    }

    fn count(conditions: &Conditions, fate: Fate) -> usize {
        let rounds = (0..500).flat_map(|round| conditions.fates(Seed(1), Round(round), &cohort()));
        rounds.filter(|(_, found)| *found == fate).count()
    }

    #[test]
    fn clients_fail_as_often_as_told() {
        assert_eq!(count(&Conditions::default(), Fate::Works), 4000);
        let failed = count(&Conditions { fail: 0.25, ..Conditions::default() }, Fate::Fails);
        assert!((900..1100).contains(&failed), "{failed}");
    }

    #[test]
    fn a_round_closes_with_k_of_n() {
        let conditions = Conditions { close_with: Some(3), ..Conditions::default() };
        assert_eq!(count(&conditions, Fate::Works), 1500);
        assert_eq!(count(&conditions, Fate::Late), 2500);
    }

    #[test]
    fn a_round_cannot_wait_for_more_answers_than_it_has_clients() {
        let closing = |count| Conditions { close_with: Some(count), ..Conditions::default() };
        assert!(closing(8).check(8).is_ok());
        let refused = closing(9).check(8).expect_err("nine of eight").to_string();
        assert!(refused.contains("9 of at most 8 clients"), "{refused}");
        assert!(closing(0).check(8).is_err());
    }

    #[test]
    fn intervals_say_who_joins_late_who_leaves_and_who_comes_back() {
        let text = r#"{"away":{"late":[{"from":1,"to":2}],"gone":[{"from":3}],
            "twice":[{"from":2,"to":2},{"from":4,"to":4}]}}"#;
        let conditions: Conditions = serde_json::from_str(text).expect("legal");
        let rounds = |name: &str| -> Vec<bool> {
            (0..5).map(|round| conditions.is_here(name, Round(round))).collect()
        };
        assert_eq!(rounds("late"), [false, false, true, true, true]);
        assert_eq!(rounds("gone"), [true, true, false, false, false]);
        assert_eq!(rounds("twice"), [true, false, true, false, true]);
        assert_eq!(rounds("faithful"), [true; 5]);
        assert!(conditions.check(8).is_ok());
        assert!(
            check_names(
                "conditions.away",
                ("rounds of", conditions.away.keys()),
                &["late", "gone"].into()
            )
            .is_err()
        );
        for bad in [r#"{"from":0}"#, r#"{"from":3,"to":2}"#] {
            let text = format!(r#"{{"away":{{"x":[{bad}]}}}}"#);
            let conditions: Conditions = serde_json::from_str(&text).expect("legal words");
            assert!(conditions.check(8).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_slow_are_the_late() {
        let slow = Slow { share: 0.5, factor: 10.0 };
        let conditions = Conditions { slow, close_with: Some(1), ..Conditions::default() };
        let alone = Conditions { close_with: None, ..conditions.clone() };
        assert_eq!(count(&alone, Fate::Late), 0);
        // With eight clients of which half are slow, the first one is hardly ever a slow one; the
        // cohort's heaviest client never is the first.
        let mut heavy = cohort();
        heavy[0].1 = 1000;
        for round in 0..200 {
            let fates = conditions.fates(Seed(1), Round(round), &heavy);
            assert_eq!(fates[0], (ClientId(0), Fate::Late));
        }
    }
}
