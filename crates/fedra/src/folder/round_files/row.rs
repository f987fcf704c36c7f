//! A round as named numbers, the same for every format.
//!
//! One name for one thing: a column `central_test.macro_f1` of the tables is the chart
//! `central_test/macro_f1` of `TensorBoard`. Which columns there are depends on the run (a cut has bytes
//! across it, a private run has an epsilon) and scores come when the model is first scored, so columns
//! are those that any round had so far, in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fedra_engine::{Bytes, RoundReport};

use crate::error::{Context, Result};
use crate::folder::round_log;
use crate::run_files::ROUNDS;
use crate::text::headline::set_name;

/// All rounds so far.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The columns in order.
    pub columns: BTreeSet<Column>,
    /// The rounds in order.
    pub rows: Vec<Row>,
}

/// The numbers of one round.
pub type Row = BTreeMap<Column, Number>;

/// A column; those of every run come first, scores come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    place: usize,
    /// Its name.
    pub name: String,
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// How many.
    Count(u64),
    /// How much.
    Real(f64),
}

impl Number {
    /// The nearest float.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Real(real) => real,
        }
    }
}

impl Rows {
    /// The complete rounds of the run in a folder.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        let (path, mut rows) = (folder.join(ROUNDS), Self::default());
        round_log::whole_lines(&path, &mut |line| {
            let report = serde_json::from_slice(line);
            let what = || format!("{}: line {} is no report", path.display(), rows.rows.len() + 1);
            rows.push(&report.with_context(what)?);
            Ok(true)
        })?;
        Ok(rows)
    }

    /// Adds a round.
    pub fn push(&mut self, report: &RoundReport) {
        let row = row(report);
        self.columns.extend(row.keys().cloned());
        self.rows.push(row);
    }
}

/// The column of the round's index.
pub const ROUND: &str = "round";
/// The column of the round's length.
pub const SECONDS: &str = "seconds";

fn row(report: &RoundReport) -> Row {
    let mut row = Row::new();
    let mut place = 0;
    // Absent numbers have a place too, so that all rounds have the same order.
    let mut put = |name: &str, number: Option<Number>| {
        if let Some(number) = number {
            row.insert(Column { place, name: name.to_owned() }, number);
        }
        place += 1;
    };
    let count = |count: u64| Some(Number::Count(count));
    let length = |length: usize| Some(Number::Count(length as u64));
    let real = |real: f64| Some(Number::Real(real));
    put(ROUND, count(u64::from(report.round.0)));
    put("loss", report.loss.map(Number::Real));
    put("epsilon", report.privacy.as_ref().map(|privacy| Number::Real(privacy.epsilon)));
    put("cohort", length(report.cohort.len()));
    put("arrived", length(report.arrived.len()));
    put("failed", length(report.failed.len()));
    put("refused", length(report.refused.len()));
    put("failed_attempts", length(report.failed_attempts.len()));
    put("blocks", length(report.blocks.len()));
    put("changed", count(report.changed));
    let Bytes { up, down, full_up, full_down, evaluation, crossing } = report.bytes;
    put("bytes.up", count(up.0));
    put("bytes.down", count(down.0));
    put("bytes.full_up", count(full_up.0));
    put("bytes.full_down", count(full_down.0));
    put("bytes.evaluation", count(evaluation.0));
    let crosses = !crossing.is_none();
    for (name, bytes) in [
        ("bytes.hidden_up", crossing.hidden_up.0),
        ("bytes.hidden_down", crossing.hidden_down.0),
        ("bytes.gradient_up", crossing.gradient_up.0),
        ("bytes.gradient_down", crossing.gradient_down.0),
        ("bytes.metadata_up", crossing.metadata_up.0),
        ("bytes.metadata_down", crossing.metadata_down.0),
        ("exchanges", crossing.exchanges),
    ] {
        put(name, crosses.then_some(Number::Count(bytes)));
    }
    put("memory.client", report.memory.map(|memory| Number::Count(memory.client.0)));
    put("memory.server", report.memory.map(|memory| Number::Count(memory.server.0)));
    put("effort", count(report.effort));
    put(SECONDS, real(report.seconds));
    put("slowest", real(report.slowest));
    for set in &report.scores {
        let on = set_name(set.on);
        let mut score = |name: &str, value: f64| {
            row.insert(Column { place, name: format!("{on}.{name}") }, Number::Real(value));
        };
        score("loss", set.loss);
        set.mean.iter().for_each(|(name, value)| score(name, *value));
        set.pooled.iter().for_each(|(name, value)| score(&format!("pooled_{name}"), *value));
    }
    row
}
