//! The ledger: everything that was released, in a chain that shows any change.
//!
//! It only grows. Each entry carries a digest over its predecessor's and its own event, so an edited,
//! reordered or inserted line breaks the chain; a shortened ledger is caught by the [`Head`], which
//! belongs in the checkpoint. A round is put to [`Ledger::would_pass`] before it happens.
//!
//! ```text
//! digest of entry n = SHA-256(digest of entry n - 1, event n as JSON)
//! ```
//! The digest before the first entry is that of the promise, so a ledger cannot change its budget.

use std::collections::BTreeMap;
use std::fmt::Write;

use fedra_plan::Digest;
use serde::{Deserialize, Serialize};

use crate::composition::{Composition, Spent};
use crate::error::PrivacyError;
use crate::event::{Event, Release};
use crate::numbers::Delta;
use crate::promise::Promise;
use crate::rdp::Orders;

/// One promise and what was spent of it.
#[derive(Clone, Debug)]
pub struct Ledger {
    promise: Promise,
    events: Vec<Event>,
    digest: Digest,
    /// What is spent with all of them, where that is known.
    spent: Option<Spent>,
}

/// What is spent follows from the rest.
impl PartialEq for Ledger {
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.promise, of.digest);
        parts(self) == parts(other) && self.events == other.events
    }
}

/// Where a ledger ends: kept apart from it, in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// How many entries it has.
    pub entries: u64,
    /// The last link of the chain.
    pub digest: Digest,
}

/// The first line of a ledger.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    promise: Promise,
}

/// Any other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    event: Event,
    digest: Digest,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(promise: Promise) -> Result<Self, PrivacyError> {
        let digest = Digest::of(&json(&promise, 1)?);
        Ok(Self { promise, events: Vec::new(), digest, spent: None })
    }

    /// What is promised.
    pub const fn promise(&self) -> &Promise {
        &self.promise
    }

    /// What was released, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Where the ledger ends now.
    pub const fn head(&self) -> Head {
        Head { entries: self.events.len() as u64, digest: self.digest }
    }

    /// Epsilon so far: that of the worst-off client's units.
    pub fn spent(&self) -> Result<Spent, PrivacyError> {
        self.spent.map_or_else(|| self.spent_with(&[]), Ok)
    }

    /// Epsilon after these events; refuses them if it would pass the budget. Nothing is recorded.
    pub fn would_pass(&self, events: &[Event]) -> Result<Spent, PrivacyError> {
        let events = &self.new_among(events);
        for event in events {
            event.release.check()?;
        }
        let Some(budget) = self.promise.budget else { return self.spent_with(events) };
        for event in events {
            if let Release::NonPrivate { what, why } = &event.release {
                let (what, why, budget) = (what.clone(), why.clone(), budget.get());
                return Err(PrivacyError::Unbounded { what, why, budget });
            }
        }
        let after = self.spent_with(events)?;
        if after.pld <= budget.get() {
            return Ok(after);
        }
        let mut mechanisms: Vec<&str> = events.iter().map(|event| &*event.mechanism).collect();
        mechanisms.dedup();
        let what = match events.first() {
            Some(first) => format!("round {}: {}", first.round.0 + 1, mechanisms.join(", ")),
            None => "nothing".to_owned(),
        };
        Err(PrivacyError::OverBudget {
            what,
            would_be: after.pld,
            delta: self.promise.delta.get(),
            budget: budget.get(),
            spent: self.spent()?.pld,
        })
    }

    /// Records the events and returns their lines, to be on disk before anything is released; refuses
    /// as [`Self::would_pass`] does, and then records none. A release that is in the ledger already,
    /// because a round is made again to the same bits, is not recorded a second time.
    pub fn append(&mut self, events: &[Event]) -> Result<String, PrivacyError> {
        let events = &self.new_among(events);
        self.spent = Some(self.would_pass(events)?);
        let mut lines = String::new();
        let mut digest = self.digest;
        for (place, event) in events.iter().enumerate() {
            let line = self.events.len() + place + 2;
            digest = link(digest, event, line)?;
            lines += &text(&Entry { event: event.clone(), digest }, line)?;
        }
        self.digest = digest;
        self.events.extend_from_slice(events);
        Ok(lines)
    }

    /// Those of the events that are not the same release as one that was recorded.
    fn new_among(&self, events: &[Event]) -> Vec<Event> {
        let is_new = |event: &&Event| event.input.is_none() || !self.events.contains(event);
        events.iter().filter(is_new).cloned().collect()
    }

    /// The whole ledger as JSON lines.
    pub fn to_lines(&self) -> Result<String, PrivacyError> {
        let mut lines = text(&Opening { promise: self.promise }, 1)?;
        let mut digest = Digest::of(&json(&self.promise, 1)?);
        for (place, event) in self.events.iter().enumerate() {
            digest = link(digest, event, place + 2)?;
            lines += &text(&Entry { event: event.clone(), digest }, place + 2)?;
        }
        Ok(lines)
    }

    /// Reads a ledger of which nothing is known but its text, to look at it; refuses one that was edited
    /// or reordered. One that was cut off at its end looks whole.
    pub fn read(lines: &str) -> Result<Self, PrivacyError> {
        let first = lines.lines().next().unwrap_or_default();
        let unread = |error: serde_json::Error| {
            let reason = format!("found no promise ({error}), expected one");
            PrivacyError::Ledger { line: 1, reason }
        };
        let Opening { promise } = serde_json::from_str(first).map_err(unread)?;
        Self::replay(lines, promise, Self::new(promise)?.head())
    }

    /// Reads a ledger back for a run that makes this promise; refuses one that was edited, reordered
    /// or shortened, or that was made under another promise.
    ///
    /// A ledger may have entries beyond the head: their round was begun and not finished. They count,
    /// because what they announce may have been released.
    pub fn replay(lines: &str, promise: Promise, head: Head) -> Result<Self, PrivacyError> {
        let wrong = |line, reason: String| PrivacyError::Ledger { line, reason };
        let unread = |line| move |error: serde_json::Error| wrong(line, error.to_string());
        let mut rest = lines.lines().enumerate().map(|(index, line)| (index + 1, line));
        let Some((_, first)) = rest.next() else {
            return Err(wrong(1, "found nothing, expected a promise".into()));
        };
        let opening: Opening = serde_json::from_str(first).map_err(unread(1))?;
        if opening.promise != promise {
            let (found, expected) = (opening.promise.to_string(), promise.to_string());
            return Err(PrivacyError::OtherPromise { found, expected });
        }
        let mut ledger = Self::new(promise)?;
        let mut passed_head = ledger.head() == head;
        for (line, content) in rest {
            let Entry { event, digest } = match serde_json::from_str(content) {
                Ok(entry) => entry,
                // A line that was cut short, by a full disk or a kill, announced nothing that happened.
                Err(_) if is_torn(lines, content) => break,
                Err(error) => return Err(unread(line)(error)),
            };
            event.release.check().map_err(|error| wrong(line, error.to_string()))?;
            let expected = link(ledger.digest, &event, line)?;
            if digest != expected {
                let reason = format!(
                    "found digest {digest}, expected {expected}: this line or one before it was changed, moved or removed"
                );
                return Err(wrong(line, reason));
            }
            ledger.digest = digest;
            ledger.events.push(event);
            passed_head |= ledger.head() == head;
        }
        if !passed_head {
            let Head { entries, digest } = head;
            let found = ledger.events.len();
            let reason = format!(
                "found {found} entries that do not lead past the checkpoint's {entries} ({digest}): the ledger was shortened, or belongs to another run"
            );
            return Err(wrong(found + 1, reason));
        }
        Ok(ledger)
    }

    /// The worst client's epsilon with further events. A release about one client's rows costs no
    /// other client's; one about everyone's costs all.
    fn spent_with(&self, more: &[Event]) -> Result<Spent, PrivacyError> {
        let mut shared: Vec<&Release> = Vec::new();
        let mut own: BTreeMap<&str, Vec<&Release>> = BTreeMap::new();
        for event in self.events.iter().chain(more) {
            match &event.client {
                Some(client) => own.entry(client).or_default().push(&event.release),
                None => shared.push(&event.release),
            }
        }
        let everyone = std::iter::once(Vec::new());
        let relation = self.promise.relation;
        let mut distinct: Vec<Composition> = Vec::new();
        for releases in everyone.chain(own.into_values()) {
            let all = shared.iter().chain(&releases).copied();
            let composition = Composition::of(relation, all)?;
            // Clients of one size spend alike; each case is accounted once.
            if !distinct.contains(&composition) {
                distinct.push(composition);
            }
        }
        Ok(worst(&distinct, self.promise.delta))
    }
}

/// Whether this is the last line and was not written to its end.
fn is_torn(lines: &str, content: &str) -> bool {
    !lines.ends_with('\n') && lines.ends_with(content)
}

/// The case that spent most.
///
/// A privacy loss distribution takes longer than Rényi divergences, which are never below it. So cases
/// are looked at in falling order of those, until no other can be the worst.
fn worst(cases: &[Composition], delta: Delta) -> Spent {
    let orders = Orders::default();
    let mut bounds: Vec<(&Composition, (f64, f64))> =
        cases.iter().map(|one| (one, one.rdp(delta, &orders))).collect();
    bounds.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0));
    let mut worst = Spent { pld: 0.0, rdp: 0.0, order: 0.0 };
    for (case, (rdp, order)) in bounds {
        if rdp <= worst.pld {
            break;
        }
        let pld = case.pld(delta);
        if pld >= worst.pld {
            worst = Spent { pld, rdp, order };
        }
    }
    worst
}

/// The next link of the chain.
fn link(previous: Digest, event: &Event, line: usize) -> Result<Digest, PrivacyError> {
    let mut bytes = previous.as_bytes().to_vec();
    bytes.extend(json(event, line)?);
    Ok(Digest::of(&bytes))
}

fn json(value: &impl Serialize, line: usize) -> Result<Vec<u8>, PrivacyError> {
    serde_json::to_vec(value)
        .map_err(|error| PrivacyError::Ledger { line, reason: error.to_string() })
}

fn text(value: &impl Serialize, line: usize) -> Result<String, PrivacyError> {
    let written = serde_json::to_string(value);
    let written =
        written.map_err(|error| PrivacyError::Ledger { line, reason: error.to_string() })?;
    let mut text = String::with_capacity(written.len() + 1);
    let _always = writeln!(text, "{written}");
    Ok(text)
}
