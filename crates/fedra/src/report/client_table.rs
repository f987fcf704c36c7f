//! The clients of a run as a table: what each brought, how often it came, how the model does there, and
//! why it was missing.
//!
//! A page is passed on, and under client-level differential privacy who took part is what the guarantee
//! hides. So there the table is left out, and the page says so; the run's folder, which stays with the
//! server, has the same facts.

use std::collections::BTreeMap;

use fedra_data::printable;
use fedra_engine::{Absence, ClientId};
use fedra_report::{Content, Table};

use crate::folder::client_names::NamedClient;
use crate::report::facts::spoken;
use crate::report::record::{RunRecord, set_in_words};
use crate::run_files::{CLIENTS, ROUNDS};
use crate::text::grid::{Grid, counted, grouped};
use crate::text::headline::headline_of;

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
    /// The last loss and score.
    scored: Option<(f64, Option<f64>)>,
}

/// The table, or why there is none.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    if record.hides_clients() {
        return vec![Content::Words(format!(
            "There is no table by client: this run has client-level differential privacy, which hides who took \
             part, and a page may be passed on. {CLIENTS} and {ROUNDS}, which stay at the server, have these \
             facts."
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
        tallies.entry(client).or_default().scored = Some((one.loss, score));
    }
    tallies
}

fn table(record: &RunRecord, tallies: &BTreeMap<ClientId, Tally>) -> Table {
    let mut shown: Vec<(&ClientId, &Tally)> = tallies.iter().collect();
    let all = shown.len();
    if all > ROWS {
        let score =
            |tally: &Tally| tally.scored.and_then(|scored| scored.1).unwrap_or(f64::INFINITY);
        shown.sort_by(|(one, a), (other, b)| {
            b.missing.cmp(&a.missing).then(score(a).total_cmp(&score(b))).then(one.cmp(other))
        });
        shown.truncate(ROWS);
    }
    let counted = ROWS_OF.into_iter();
    let counted = counted.filter(|(_, of)| record.clients.clients.iter().any(|it| of(it) > 0));
    let counted: Vec<Rows> = counted.collect();
    let has_rounds = !record.rounds.is_empty();
    let is_scored = tallies.values().any(|tally| tally.scored.is_some());
    let is_missing = tallies.values().any(|tally| tally.missing > 0);
    let mut headings = vec!["<client".to_owned()];
    headings.extend(counted.iter().map(|(name, _)| format!(">{name}")));
    headings.extend(has_rounds.then(|| ">rounds".to_owned()));
    if is_scored {
        let last = record.client_set().and_then(|on| record.scored(on).last());
        let score = last.and_then(|(_, set)| headline_of(&set.mean));
        let score = score.map_or("score".to_owned(), |(name, _)| spoken(name));
        headings.extend([">loss".to_owned(), format!(">{score}")]);
    }
    if is_missing {
        headings.extend([">missing", "<last reason"].map(str::to_owned));
    }
    let mut grid = Grid::new(headings);
    // A client that has not come has told no number.
    let count = |count: u64| if count == 0 { String::new() } else { grouped(count) };
    for (client, tally) in shown {
        let named = record.clients.get(*client);
        let mut cells = vec![record.clients.name(*client)];
        cells.extend(counted.iter().map(|(_, of)| count(named.map_or(0, of))));
        if has_rounds {
            cells.push(format!("{} of {}", grouped(tally.came), grouped(tally.asked)));
        }
        if is_scored {
            let (loss, score) = tally.scored.map_or((None, None), |it| (Some(it.0), it.1));
            cells.extend([loss, score].map(|value| value.map_or(String::new(), number)));
        }
        if is_missing {
            cells.extend([count(tally.missing), tally.reason.clone()]);
        }
        grid.row(cells);
    }
    grid.table(caption(record, tallies, all))
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

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "not finite".to_owned() }
}
