//! How long the phases of a round took, and what each side held in memory.

use fedra_engine::{Phases, RoundReport, SideMemory};
use fedra_plan::ByteCount;
use fedra_report::{Chart, Content, Layer, Point, Scale, StackedBars};

use crate::report::binned::Columns;
use crate::report::charts::{by_round, line, unit_of};
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
        "This log has no times by phase."
    };
    (!layers.is_empty()).then(|| StackedBars {
        title: "Time by phase".to_owned(),
        caption: caption.to_owned(),
        x: (columns.in_words(), columns.names.clone()),
        y: "seconds per round".to_owned(),
        layers,
    })
}

fn memory(record: &RunRecord) -> Option<Chart> {
    let held = || record.rounds.iter().filter_map(|report| Some((counted(report), report.memory?)));
    let most = held().map(|(_, it)| it.client.0.max(it.server.0)).max()?;
    let (unit, size) = unit_of(most as f64);
    let of = |name: &str, colour, side: fn(&SideMemory) -> ByteCount| {
        line(name, colour, held().map(|(round, it)| Point::new(round, side(&it).0 as f64 / size)))
    };
    let caption = "The most tensor memory so far, weights included: of the client that held most, and of the \
                   server.";
    let lines = [of("client", 0, |it| it.client), of("server", 1, |it| it.server)];
    let series = lines.into_iter().flatten().collect();
    by_round(("Memory of both sides", caption), (unit, Scale::Linear), series)
}
