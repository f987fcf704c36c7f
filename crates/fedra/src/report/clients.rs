//! How the clients did, one by one: who gains and who loses.

use std::collections::BTreeMap;

use fedra_engine::{ClientId, EvaluationSet};
use fedra_report::{Chart, Content, PlotRow, Point, RowPlot, Scale, Series};

use crate::folder::client_names::ClientNames;
use crate::report::charts::{by_round, line};
use crate::report::facts::spoken;
use crate::report::record::{RunRecord, set_in_words};
use crate::text::grid::counted;

/// Lines that can be told apart.
const LINES: usize = 8;
/// Rows that fit on a page.
const ROWS: usize = 24;

/// Curves and spread.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let Some(on) = record.client_set() else { return Vec::new() };
    let (clients, score) = by_client(record, on);
    let Some(score) = score.filter(|_| clients.len() > 1) else { return Vec::new() };
    let axis = format!("{}, {}", spoken(&score), set_in_words(on));
    let spread = spread(&record.clients, &clients, &axis);
    let curves = curves(&record.clients, &clients, axis);
    curves.map(Content::Lines).into_iter().chain(spread.map(Content::Rows)).collect()
}

type Curves = BTreeMap<ClientId, Vec<Point>>;

/// The score of each client by round, and its name: of each client there is the headline alone.
fn by_client(record: &RunRecord, on: EvaluationSet) -> (Curves, Option<String>) {
    let (mut curves, mut name) = (Curves::new(), None);
    for (round, set) in record.scored(on) {
        for one in &set.each {
            let (Some(client), Some((score, value))) = (one.client, one.scores.iter().next())
            else {
                continue;
            };
            if value.is_finite() {
                curves.entry(client).or_default().push(Point::new(round, *value));
                name.get_or_insert_with(|| score.clone());
            }
        }
    }
    (curves, name)
}

fn curves(names: &ClientNames, curves: &Curves, axis: String) -> Option<Chart> {
    let mut caption = "The same model on each client's own examples.";
    let mut series: Vec<Series> = (curves.iter().enumerate())
        .filter_map(|(colour, (client, points))| line(names.name(*client), colour, points.clone()))
        .collect();
    if curves.len() > LINES {
        series = quantiles(curves);
        caption = "The same model on each client's own examples: the lowest and the highest score, the quartiles \
                   and the median.";
    }
    by_round(("Score by client", caption), (axis, Scale::Linear), series)
}

/// Where many clients lie, round by round.
fn quantiles(clients: &Curves) -> Vec<Series> {
    let mut rounds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for point in clients.values().flatten() {
        rounds.entry(point.x as u64).or_default().push(point.y);
    }
    for values in rounds.values_mut() {
        values.sort_by(f64::total_cmp);
    }
    let names = ["best", "upper quarter", "middle", "lower quarter", "worst"];
    let shares = [1.0, 0.75, 0.5, 0.25, 0.0];
    let of_share = |(colour, (name, share)): (usize, (&str, f64))| {
        let pick = |(round, values): (&u64, &Vec<f64>)| {
            let place = (share * (values.len() - 1) as f64).round() as usize;
            Point::new(*round as f64, values[place])
        };
        line(name, colour, rounds.iter().map(pick))
    };
    names.into_iter().zip(shares).enumerate().filter_map(of_share).collect()
}

/// First and last scoring of each client; of many, those at either end.
fn spread(names: &ClientNames, curves: &Curves, axis: &str) -> Option<RowPlot> {
    let mut moved: Vec<(ClientId, f64, f64)> = curves
        .iter()
        .filter_map(|(client, points)| match points.as_slice() {
            [first, .., last] => Some((*client, first.y, last.y)),
            [] | [_] => None,
        })
        .collect();
    if moved.is_empty() {
        return None;
    }
    let gained = moved.iter().filter(|(_, first, last)| last > first).count() as u64;
    let lost = moved.iter().filter(|(_, first, last)| last < first).count() as u64;
    let all = moved.len();
    moved.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)).then(a.0.cmp(&b.0)));
    let mut caption =
        format!("{} gained and {lost} lost since the first scoring.", counted(gained, "client"));
    if all > ROWS {
        moved.drain(ROWS / 2..all - ROWS / 2);
        caption = format!(
            "{caption} Shown: the {} that gained most and the {} that gained least.",
            ROWS / 2,
            ROWS / 2
        );
    }
    let row = |(client, first, last): &(ClientId, f64, f64)| PlotRow {
        name: names.name(*client),
        values: vec![Some(*first), Some(*last)],
        span: Some((*first, *last, if last < first { 1 } else { 2 })),
    };
    Some(RowPlot {
        title: "Gain by client".to_owned(),
        caption,
        x: axis.to_owned(),
        y: "from the largest gain to the smallest".to_owned(),
        marks: vec![("first scoring".to_owned(), 4), ("last scoring".to_owned(), 0)],
        rows: moved.iter().map(row).collect(),
    })
}
