//! How long the phases of a round took, and what each side held in memory.

use fedra_engine::{Phases, RoundReport};
use fedra_report::{Chart, Content, Layer, Point, Scale, Series, StackedBars, Stroke};

use crate::report::binned::Columns;
use crate::report::curves::unit_of;
use crate::report::record::{RunRecord, counted};

/// A phase, and how long it took.
type Phase = (&'static str, fn(&Phases) -> f64);

const PHASES: [Phase; 5] = [
    ("sync", |phases| phases.sync),
    ("probe", |phases| phases.probe),
    ("train", |phases| phases.train),
    ("apply", |phases| phases.apply),
    ("evaluate", |phases| phases.evaluate),
];

/// Bars of time, and lines of memory.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let time = time(record).map(Content::Bars);
    time.into_iter().chain(memory(record).map(Content::Lines)).collect()
}

/// A time that can be drawn.
fn positive(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}

fn time(record: &RunRecord) -> Option<StackedBars> {
    let rounds = &record.rounds;
    if rounds.is_empty() {
        return None;
    }
    let columns = Columns::of(rounds);
    let measured = rounds.iter().any(|report| report.phases.is_some());
    let mut layers = Vec::new();
    for (name, phase) in PHASES.into_iter().filter(|_| measured) {
        let of =
            |report: &RoundReport| report.phases.as_ref().map_or(0.0, |it| positive(phase(it)));
        layers.push(Layer { name: name.to_owned(), heights: columns.mean(rounds, of) });
    }
    let rest = |report: &RoundReport| {
        let known: f64 = PHASES
            .into_iter()
            .filter_map(|(_, phase)| Some(positive(phase(report.phases.as_ref()?))))
            .sum();
        (positive(report.seconds) - known).max(0.0)
    };
    let name = if measured { "the rest" } else { "whole round" };
    layers.push(Layer { name: name.to_owned(), heights: columns.mean(rounds, rest) });
    layers.retain(|layer| layer.heights.iter().any(|height| *height > 0.0));
    let caption = if measured {
        "Bringing clients up to date, measuring blocks, training, the server's step, scoring."
    } else {
        "This log does not tell phases apart."
    };
    (!layers.is_empty()).then(|| StackedBars {
        title: "Time by phase".to_owned(),
        caption: caption.to_owned(),
        x: (columns.in_words(), columns.names.clone()),
        y: "seconds a round".to_owned(),
        layers,
    })
}

fn memory(record: &RunRecord) -> Option<Chart> {
    let sides = |report: &RoundReport| {
        report.memory.map(|it| (counted(report), it.client.0 as f64, it.server.0 as f64))
    };
    let held: Vec<(f64, f64, f64)> = record.rounds.iter().filter_map(sides).collect();
    let most = held.iter().flat_map(|(_, client, server)| [*client, *server]).fold(0.0, f64::max);
    let (unit, size) = unit_of(most);
    let line = |name: &str, colour, side: fn(&(f64, f64, f64)) -> f64| Series {
        name: name.to_owned(),
        points: held.iter().map(|it| Point::new(it.0, side(it) / size)).collect(),
        stroke: Stroke::Marked,
        colour,
    };
    (!held.is_empty()).then(|| Chart {
        title: "Memory of both sides".to_owned(),
        caption: "The most tensor memory so far, weights included: of the client that held most, \
                  and of the server."
            .to_owned(),
        x: ("round".to_owned(), Scale::Linear),
        y: (unit.to_owned(), Scale::Linear),
        series: vec![line("client", 0, |it| it.1), line("server", 1, |it| it.2)],
    })
}
