//! The clients of a run as a table: what each brought, how often it came, how the model does there, and
//! why it was missing.
//!
//! A page is passed on, and under client-level differential privacy who took part is what the promise
//! hides. So there the table is left out, and the page says so; the run's folder, which stays with the
//! server, has the same facts.

use std::collections::{BTreeMap, BTreeSet};

use fedra_data::printable;
use fedra_engine::{Absence, ClientId};
use fedra_report::{Column, Content, Side, Table};

use crate::folder::client_names::NamedClient;
use crate::folder::run_files::{CLIENTS, ROUNDS};
use crate::report::facts::spoken;
use crate::report::record::{RunRecord, set_in_words};
use crate::text::grid::{counted, grouped};

/// Clients that fit on a page.
const ROWS: usize = 100;

/// What is told of a client.
#[derive(Default)]
struct Tally {
    /// Rounds for which it was drawn.
    asked: u64,
    /// Rounds whose model has its update.
    came: u64,
    /// Answers that did not come or were refused.
    missing: u64,
    /// Why the last of them.
    reason: String,
    /// Rows that it was scored on last, the loss, and the score.
    scored: Option<(u64, f64, Option<f64>)>,
}

/// The table, or why there is none.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    if record.hides_clients() {
        return vec![Content::Words(format!(
            "There is no table by client: this run promises client-level differential privacy, which \
             hides who took part, and a page is passed on. {CLIENTS} and {ROUNDS}, which stay with the \
             server, have it."
        ))];
    }
    let tallies = tallies(record);
    if tallies.is_empty() || (record.rounds.is_empty() && record.clients.clients.is_empty()) {
        return Vec::new();
    }
    vec![Content::Table(table(record, &tallies))]
}

fn tallies(record: &RunRecord) -> BTreeMap<ClientId, Tally> {
    let named = record.clients.clients.iter().map(|named| (named.client, Tally::default()));
    let mut tallies: BTreeMap<ClientId, Tally> = named.collect();
    for report in &record.rounds {
        let round = report.round.0 + 1;
        for client in &report.cohort {
            tallies.entry(*client).or_default().asked += 1;
        }
        for client in &report.arrived {
            tallies.entry(*client).or_default().came += 1;
        }
        let before = report.failed_attempts.iter();
        let before =
            before.flat_map(|attempt| [("", &attempt.failed), ("refused: ", &attempt.refused)]);
        let all = before.chain([("", &report.failed), ("refused: ", &report.refused)]);
        for (how, Absence { client, reason, diverged: _ }) in
            all.flat_map(|(how, absences)| absences.iter().map(move |absence| (how, absence)))
        {
            let tally = tallies.entry(*client).or_default();
            tally.missing += 1;
            // Clients begin some reasons with their own name.
            let named =
                record.clients.get(*client).and_then(|named| reason.strip_prefix(&named.name));
            let reason = named.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason);
            tally.reason = format!("round {round}: {how}{}", printable(reason));
        }
    }
    let sets = record.client_set().into_iter().flat_map(|on| record.scored(on));
    for one in sets.flat_map(|(_, set)| &set.each) {
        let Some(client) = one.client else { continue };
        let score = one.scores.values().next().copied();
        tallies.entry(client).or_default().scored = Some((one.examples, one.loss, score));
    }
    tallies
}

/// What a client has in a column.
type Cell<'a> = Box<dyn Fn(ClientId, &Tally) -> String + 'a>;

/// A column and its cells.
struct Part<'a> {
    name: String,
    side: Side,
    cell: Cell<'a>,
}

fn table(record: &RunRecord, tallies: &BTreeMap<ClientId, Tally>) -> Table {
    let mut shown: Vec<(&ClientId, &Tally)> = tallies.iter().collect();
    let all = shown.len();
    if all > ROWS {
        let score =
            |tally: &Tally| tally.scored.and_then(|scored| scored.2).unwrap_or(f64::INFINITY);
        shown.sort_by(|(one, a), (other, b)| {
            b.missing.cmp(&a.missing).then(score(a).total_cmp(&score(b))).then(one.cmp(other))
        });
        shown.truncate(ROWS);
    }
    let parts = parts(record, tallies);
    let row = |(client, tally): &(&ClientId, &Tally)| {
        parts.iter().map(|part| (part.cell)(**client, tally)).collect()
    };
    Table {
        caption: caption(record, tallies, all),
        rows: shown.iter().map(row).collect(),
        columns: parts
            .iter()
            .map(|part| Column { name: part.name.clone(), side: part.side })
            .collect(),
    }
}

fn caption(record: &RunRecord, tallies: &BTreeMap<ClientId, Tally>, all: usize) -> String {
    let came = tallies.values().filter(|tally| tally.came > 0).count() as u64;
    let mut caption = format!(
        "{}, of which {} in the model.",
        counted(all as u64, "client"),
        if came == 1 {
            "1 has an update".to_owned()
        } else {
            format!("{} have updates", grouped(came))
        }
    );
    if let Some(on) = record.client_set() {
        caption =
            format!("{caption} Loss and score are the last on the {} rows.", set_in_words(on));
    }
    if all > ROWS {
        caption = format!(
            "{caption} Shown: {ROWS}, those with the most missing updates first, then those with the lowest \
             scores. {CLIENTS} and {ROUNDS} have all of them."
        );
    }
    caption
}

/// Rows of a kind, and how many of them a client has.
type Rows = (&'static str, fn(&NamedClient) -> u64);

const ROWS_OF: [Rows; 3] = [
    ("training rows", |named| named.train),
    ("validation rows", |named| named.validation),
    ("test rows", |named| named.test),
];

fn parts<'a>(record: &'a RunRecord, tallies: &BTreeMap<ClientId, Tally>) -> Vec<Part<'a>> {
    let part = |name: &str, side, cell: Cell<'a>| Part { name: name.to_owned(), side, cell };
    let any = |has: fn(&Tally) -> bool| tallies.values().any(has);
    let named = move |client: ClientId, _: &Tally| record.clients.name(client);
    let mut parts = vec![part("client", Side::Name, Box::new(named))];
    for (name, count) in ROWS_OF {
        if record.clients.clients.iter().any(|named| count(named) > 0) {
            // A client that has not come has told no number.
            let cell = move |client: ClientId, _: &Tally| {
                let rows = record.clients.get(client).map_or(0, count);
                if rows == 0 { String::new() } else { grouped(rows) }
            };
            parts.push(part(name, Side::Right, Box::new(cell)));
        }
    }
    if !record.rounds.is_empty() {
        let cell = |_: ClientId, tally: &Tally| {
            format!("{} of {}", grouped(tally.came), grouped(tally.asked))
        };
        parts.push(part("rounds", Side::Right, Box::new(cell)));
    }
    if any(|tally| tally.scored.is_some()) {
        let loss =
            |_: ClientId, tally: &Tally| tally.scored.map_or(String::new(), |it| number(it.1));
        parts.push(part("loss", Side::Right, Box::new(loss)));
        let name = score_name(record).map_or("score".to_owned(), |name| spoken(&name));
        let score = |_: ClientId, tally: &Tally| {
            tally.scored.and_then(|it| it.2).map_or(String::new(), number)
        };
        parts.push(part(&name, Side::Right, Box::new(score)));
    }
    if any(|tally| tally.missing > 0) {
        let missing = |_: ClientId, tally: &Tally| match tally.missing {
            0 => String::new(),
            missing => grouped(missing),
        };
        parts.push(part("missing", Side::Right, Box::new(missing)));
        let reason = |_: ClientId, tally: &Tally| tally.reason.clone();
        parts.push(part("last reason", Side::Name, Box::new(reason)));
    }
    parts
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "not finite".to_owned() }
}

/// What the score of a client is called; each has its headline alone.
fn score_name(record: &RunRecord) -> Option<String> {
    let names: BTreeSet<&String> = record
        .client_set()
        .into_iter()
        .flat_map(|on| record.scored(on))
        .flat_map(|(_, set)| set.each.iter().flat_map(|one| one.scores.keys()))
        .collect();
    names.into_iter().next().cloned()
}
