//! The ledger: everything that was released, in a chain that shows any change.
//!
//! It only grows. Each entry carries a digest over its predecessor's and its own event, so an edited,
//! reordered or inserted line breaks the chain; a shortened ledger is caught by the [`Head`], which
//! belongs in the checkpoint. A round is put to [`Ledger::append`] before it happens.
//!
//! ```text
//! digest of entry n = SHA-256(digest of entry n - 1, event n as JSON)
//! ```
//! The digest before the first entry is that of the guarantee, so a ledger cannot change its budget.
//!
//! What is spent is counted up as entries come, for everyone and for each client, so another round costs as
//! much time as it has entries and clients, however long the ledger is.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::io::BufRead;

use fedra_plan::Digest;
use serde::{Deserialize, Serialize};

use crate::composition::{Composition, Spent};
use crate::error::PrivacyError;
use crate::event::{Event, Release};
use crate::guarantee::Guarantee;
use crate::numbers::Delta;
use crate::rdp::Curves;

/// One guarantee and what was spent of it.
#[derive(Clone, Debug)]
pub struct Ledger {
    guarantee: Guarantee,
    events: Vec<Event>,
    digest: Digest,
    /// Digests of the events that are made again to the same bits.
    repeatable: HashSet<Digest>,
    counted: Counted,
    /// Divergences that were computed so far.
    curves: Curves,
    /// What is spent with all of them, where that is known.
    spent: Option<Spent>,
}

/// What was released, counted up. A release about one client's rows costs no other client's; one about
/// everyone's costs all.
#[derive(Clone, Debug)]
struct Counted {
    everyone: Composition,
    /// What each client released beside that.
    own: BTreeMap<String, Composition>,
}

/// What is spent follows from the rest.
impl PartialEq for Ledger {
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.guarantee, of.digest);
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
    guarantee: Guarantee,
}

/// A line after the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    event: Cow<'a, Event>,
    digest: Digest,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(guarantee: Guarantee) -> Result<Self, PrivacyError> {
        let everyone = Composition::nothing(guarantee.relation);
        Ok(Self {
            guarantee,
            events: Vec::new(),
            digest: Digest::of(&json(&guarantee, 1)?),
            repeatable: HashSet::new(),
            counted: Counted { everyone, own: BTreeMap::new() },
            curves: Curves::default(),
            spent: None,
        })
    }

    /// What is guaranteed.
    pub const fn guarantee(&self) -> &Guarantee {
        &self.guarantee
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
        self.spent.map_or_else(|| self.spent_with(&[], &mut Curves::default()), Ok)
    }

    /// Records the events and returns their lines, to be on disk before anything is released; refuses
    /// events that would bring epsilon past the budget, and then records none. A release that is in the ledger already,
    /// because a round is made again to the same bits, is not recorded a second time.
    pub fn append(&mut self, events: &[Event]) -> Result<String, PrivacyError> {
        let new = self.new_among(events)?;
        let mut curves = std::mem::take(&mut self.curves);
        let checked = self.check(&new, &mut curves);
        self.curves = curves;
        self.spent = Some(checked?);
        let mut lines = String::new();
        for (event, json) in new {
            let line = self.events.len() + 2;
            let digest = link(self.digest, &json);
            write_line(&mut lines, &Entry { event: Cow::Borrowed(event), digest }, line)?;
            self.record(event.clone(), &json, digest)?;
        }
        Ok(lines)
    }

    /// Epsilon after these events, or why they must not happen.
    fn check(&self, new: &[New<'_>], curves: &mut Curves) -> Result<Spent, PrivacyError> {
        let events: Vec<&Event> = new.iter().map(|(event, _)| *event).collect();
        let Some(budget) = self.guarantee.budget else { return self.spent_with(&events, curves) };
        for event in &events {
            if let Release::NonPrivate { what, why } = &event.release {
                let (what, why, budget) = (what.clone(), why.clone(), budget.get());
                return Err(PrivacyError::Unbounded { what, why, budget });
            }
        }
        let after = self.spent_with(&events, curves)?;
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
            delta: self.guarantee.delta.get(),
            budget: budget.get(),
            spent: self.spent()?.pld,
        })
    }

    /// Those of the events that are not the same release as one that was recorded.
    fn new_among<'a>(&self, events: &'a [Event]) -> Result<Vec<New<'a>>, PrivacyError> {
        let mut new = Vec::with_capacity(events.len());
        for event in events {
            event.release.check()?;
            let json = json(event, self.events.len() + new.len() + 2)?;
            let is_known = event.input.is_some() && self.repeatable.contains(&Digest::of(&json));
            if !is_known {
                new.push((event, json));
            }
        }
        Ok(new)
    }

    /// Takes an event in; `json` is what the chain was computed from.
    fn record(&mut self, event: Event, json: &[u8], digest: Digest) -> Result<(), PrivacyError> {
        self.counted.add(&event)?;
        if event.input.is_some() {
            self.repeatable.insert(Digest::of(json));
        }
        self.digest = digest;
        self.events.push(event);
        Ok(())
    }

    /// The whole ledger as JSON lines.
    pub fn to_lines(&self) -> Result<String, PrivacyError> {
        let mut lines = String::new();
        write_line(&mut lines, &Opening { guarantee: self.guarantee }, 1)?;
        let mut digest = Digest::of(&json(&self.guarantee, 1)?);
        for (place, event) in self.events.iter().enumerate() {
            digest = link(digest, &json(event, place + 2)?);
            write_line(&mut lines, &Entry { event: Cow::Borrowed(event), digest }, place + 2)?;
        }
        Ok(lines)
    }

    /// Reads a ledger to look at it; refuses one that was edited or reordered, or that does not lead past
    /// its end, where that is known. Without an end, one that was cut off looks whole.
    pub fn read(lines: impl BufRead, end: Option<Head>) -> Result<Self, PrivacyError> {
        let heads: Vec<Head> = end.into_iter().collect();
        Ok(Self::replay(lines, None, &heads)?.ledger)
    }

    /// Reads a ledger back for a run that makes this guarantee; refuses one that was edited, reordered
    /// or shortened, so that it does not lead past each of these heads, or that was made under another guarantee.
    ///
    /// A ledger may have entries beyond the heads: their round was begun and not finished. They count,
    /// because what they announce may have been released.
    ///
    /// Without a guarantee it is the one that the ledger makes itself.
    pub fn replay(
        mut lines: impl BufRead,
        guarantee: Option<Guarantee>,
        heads: &[Head],
    ) -> Result<Replayed, PrivacyError> {
        let mut text = Vec::new();
        let mut next = |text: &mut Vec<u8>, line: usize| {
            text.clear();
            lines.read_until(b'\n', text).map_err(|error| wrong(line, error.to_string()))
        };
        if next(&mut text, 1)? == 0 {
            return Err(wrong(1, "the privacy guarantee is missing"));
        }
        let opening = serde_json::from_slice::<Opening>(&text);
        let found = opening.map_err(|error| wrong(1, error.to_string()))?.guarantee;
        if let Some(expected) = guarantee.filter(|guarantee| *guarantee != found) {
            let (found, expected) = (found.to_string(), expected.to_string());
            return Err(PrivacyError::OtherGuarantee { found, expected });
        }
        let mut ledger = Ledger::new(found)?;
        let mut is_torn = !text.ends_with(b"\n");
        let mut due: Vec<Head> = heads.to_vec();
        due.retain(|head| ledger.head() != *head);
        for line in 2.. {
            if next(&mut text, line)? == 0 {
                break;
            }
            is_torn = !text.ends_with(b"\n");
            let Entry { event, digest } = match serde_json::from_slice::<Entry<'_>>(&text) {
                Ok(entry) => entry,
                Err(_) if is_torn => break,
                Err(error) => return Err(wrong(line, error.to_string())),
            };
            event.release.check().map_err(|error| wrong(line, error.to_string()))?;
            let json = json(&event, line)?;
            let expected = link(ledger.digest, &json);
            if digest != expected {
                let reason = format!(
                    "found digest {digest}, expected {expected}: this line or an earlier one was changed, moved or removed"
                );
                return Err(wrong(line, reason));
            }
            ledger.record(event.into_owned(), &json, digest)?;
            due.retain(|head| ledger.head() != *head);
        }
        let Some(Head { entries, digest }) = due.first() else {
            return Ok(Replayed { ledger, is_torn });
        };
        let found = ledger.events.len();
        let reason = format!(
            "found {found} entries that do not lead past the {entries} that were written ({digest}): the ledger was shortened, or belongs to another run"
        );
        Err(wrong(found + 1, reason))
    }

    /// The worst client's epsilon with further events.
    fn spent_with(&self, more: &[&Event], curves: &mut Curves) -> Result<Spent, PrivacyError> {
        let mut counted = self.counted.clone();
        more.iter().try_for_each(|event| counted.add(event))?;
        let Counted { everyone, own } = counted;
        // Clients with the same releases are one case.
        let mut cases: BTreeMap<Vec<u64>, Composition> = BTreeMap::new();
        for part in own.values() {
            let mut all = everyone.clone();
            all.add_all(part);
            cases.entry(all.fingerprint()).or_insert(all);
        }
        cases.entry(everyone.fingerprint()).or_insert(everyone);
        let cases: Vec<Composition> = cases.into_values().collect();
        Ok(worst(&cases, self.guarantee.delta, curves))
    }
}

/// An event that is not in the ledger yet, and its text.
type New<'a> = (&'a Event, Vec<u8>);

impl Counted {
    fn add(&mut self, event: &Event) -> Result<(), PrivacyError> {
        let nothing = Composition::nothing(self.everyone.relation);
        match &event.client {
            None => self.everyone.add(&event.release),
            Some(client) => self.own.entry(client.clone()).or_insert(nothing).add(&event.release),
        }
    }
}

/// A ledger that was read back.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The ledger.
    pub ledger: Ledger,
    /// Whether its text ends with a line that was cut short, by a full disk or a kill. Such a line announced
    /// nothing that happened, and is no part of the ledger.
    pub is_torn: bool,
}

fn wrong(line: usize, reason: impl Into<String>) -> PrivacyError {
    PrivacyError::Ledger { line, reason: reason.into() }
}

/// The case that spent most.
///
/// A privacy loss distribution takes longer than Rényi divergences, which are never below it. So cases
/// are looked at in falling order of those, until no other can be the worst.
fn worst(cases: &[Composition], delta: Delta, curves: &mut Curves) -> Spent {
    let mut bounds: Vec<(&Composition, (f64, f64))> =
        cases.iter().map(|one| (one, one.rdp_with(delta, curves))).collect();
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

/// The next link of the chain, to an event in JSON.
fn link(previous: Digest, event: &[u8]) -> Digest {
    Digest::of(&[previous.as_bytes(), event].concat())
}

fn json(value: &impl Serialize, line: usize) -> Result<Vec<u8>, PrivacyError> {
    serde_json::to_vec(value).map_err(|error| wrong(line, error.to_string()))
}

fn write_line(lines: &mut String, value: &impl Serialize, line: usize) -> Result<(), PrivacyError> {
    let written = serde_json::to_string(value).map_err(|error| wrong(line, error.to_string()))?;
    let _always = writeln!(lines, "{written}");
    Ok(())
}
