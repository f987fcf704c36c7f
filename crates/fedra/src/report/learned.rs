//! What learned when and where, and how far the clients went apart.

use std::collections::BTreeSet;

use fedra_engine::{DriftReport, RoleDrift, RoleGroup, RoundReport, StageReport, Treatment};
use fedra_report::{CellFace, Chart, Content, HeatCell, HeatMap, Point, Scale, Series, Stroke};

use crate::report::binned::Columns;
use crate::report::curves::finite;
use crate::report::record::{RunRecord, counted};

/// The heat map of blocks, scores of blocks, and drift.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let heat = [blocks(record), scores(record)].into_iter().flatten().map(Content::Heat);
    let drift = drift(record).into_iter().map(Content::Lines);
    heat.chain(drift).collect()
}

/// The share of the clients at whom a block learned in a round.
fn share(report: &RoundReport, block: u16) -> f64 {
    let arrived = report.arrived.len() as f64;
    let counted = report.selection.as_ref().and_then(|it| it.clients.get(usize::from(block)));
    match counted {
        // It is counted among those who were asked, of whom some may not have come.
        Some(clients) if arrived > 0.0 => (f64::from(*clients) / arrived).min(1.0),
        Some(_) | None => f64::from(u8::from(report.blocks.contains(&block))),
    }
}

/// Whether a block's part of the second stage had begun in a round.
fn is_treated(report: &RoundReport, block: u16) -> bool {
    let Some(StageReport { since, blocks }) = &report.stage else { return false };
    let begun = since.as_ref().or_else(|| blocks.get(&block));
    begun.is_some_and(|since| *since <= report.round)
}

fn rows(record: &RunRecord) -> Option<u16> {
    record.blocks().filter(|blocks| *blocks > 0 && *blocks <= 256 && !record.rounds.is_empty())
}

fn blocks(record: &RunRecord) -> Option<HeatMap> {
    let (count, rounds) = (rows(record)?, &record.rounds);
    let columns = Columns::of(rounds);
    let treated: BTreeSet<u16> = rounds.last().map_or(BTreeSet::new(), |last| {
        (0..count).filter(|block| is_treated(last, *block)).collect()
    });
    let row = |block: u16| {
        let shares = columns.mean(rounds, |report| share(report, block));
        let cells = shares.into_iter().zip(&columns.ranges).map(|(value, range)| {
            let hatched = rounds[range.clone()].iter().any(|report| is_treated(report, block));
            Some(HeatCell { value, hatched })
        });
        cells.collect()
    };
    // The first block is next to the input, at the bottom.
    let from_top: Vec<u16> = (0..count).rev().collect();
    let hatching = (!treated.is_empty()).then(|| treatment(record));
    Some(HeatMap {
        title: "Blocks that learned".to_owned(),
        caption: "The share of the clients at whom a block learned. The input is at the bottom. \
                  Embeddings and head are not shown."
            .to_owned(),
        x: (columns.in_words(), columns.names.clone()),
        y: ("block".to_owned(), from_top.iter().map(u16::to_string).collect()),
        cells: from_top.into_iter().map(row).collect(),
        value: "share of the clients, at most".to_owned(),
        hatching,
        face: CellFace::Shade,
    })
}

/// What the second stage does, for the legend.
fn treatment(record: &RunRecord) -> String {
    let stage = record.experiment.as_ref().and_then(|it| it.recipe.stage.as_ref());
    match stage.map(|stage| stage.treatment) {
        Some(Treatment::Frozen) => "second stage: a part of the block is frozen".to_owned(),
        Some(Treatment::Damped(factor)) => {
            format!("second stage: a part of the block learns at {factor} of its rate")
        }
        Some(Treatment::Reset) => "second stage: optimisers forgot what they knew".to_owned(),
        None => "second stage".to_owned(),
    }
}

/// What clients measured of each block, where they did.
fn scores(record: &RunRecord) -> Option<HeatMap> {
    let count = rows(record)?;
    let measured: Vec<(f64, &Vec<f64>)> = record
        .rounds
        .iter()
        .filter_map(|report| {
            let scores = &report.selection.as_ref()?.scores;
            let fits = scores.len() == usize::from(count)
                && scores.iter().all(|score| score.is_finite() && *score >= 0.0);
            fits.then(|| (counted(report), scores))
        })
        .collect();
    let columns = Columns::of(&measured);
    let names = columns.ranges.iter().map(|range| measured[range.start].0.to_string());
    let from_top: Vec<u16> = (0..count).rev().collect();
    let cell = |value: f64| Some(HeatCell { value, hatched: false });
    let row = |block: &u16| {
        let means = columns.mean(&measured, |(_, scores)| scores[usize::from(*block)]);
        means.into_iter().map(cell).collect()
    };
    (!measured.is_empty()).then(|| HeatMap {
        title: "What blocks scored".to_owned(),
        caption:
            "The clients' mean score of each block, as last measured: what the choice is made of."
                .to_owned(),
        x: (columns.in_words(), names.collect()),
        y: ("block".to_owned(), from_top.iter().map(u16::to_string).collect()),
        cells: from_top.iter().map(row).collect(),
        value: "score, at most".to_owned(),
        hatching: None,
        face: CellFace::Shade,
    })
}

fn role_in_words(role: RoleGroup) -> (&'static str, usize) {
    match role {
        RoleGroup::QueryKey => ("query and key", 0),
        RoleGroup::Value => ("value", 1),
        RoleGroup::Output => ("output", 2),
        RoleGroup::Mlp => ("feed-forward", 3),
        RoleGroup::Rest => ("embeddings, norms, head", 4),
    }
}

fn drift(record: &RunRecord) -> Vec<Chart> {
    let told = |report: &RoundReport| report.drift.clone().map(|drift| (counted(report), drift));
    let rounds: Vec<(f64, DriftReport)> = record.rounds.iter().filter_map(told).collect();
    let lines = |value: &dyn Fn(&RoleDrift) -> f64, scale: Scale| -> Vec<Series> {
        let mut series = Vec::new();
        for role in [
            RoleGroup::QueryKey,
            RoleGroup::Value,
            RoleGroup::Output,
            RoleGroup::Mlp,
            RoleGroup::Rest,
        ] {
            let point = |(round, drift): &(f64, DriftReport)| {
                Some(Point::new(*round, value(drift.roles.get(&role)?)))
            };
            let points = finite(rounds.iter().filter_map(point));
            let points: Vec<Point> =
                points.into_iter().filter(|point| scale.takes(point.y)).collect();
            if !points.is_empty() {
                let (name, colour) = role_in_words(role);
                let name = name.to_owned();
                series.push(Series { name, points, stroke: Stroke::Marked, colour });
            }
        }
        series
    };
    let chart =
        |title: &str, caption: &str, (y, scale): (&str, Scale), series: Vec<Series>| Chart {
            title: title.to_owned(),
            caption: caption.to_owned(),
            x: ("round".to_owned(), Scale::Linear),
            y: (y.to_owned(), scale),
            series,
        };
    let charts = [
        chart(
            "Disagreement of the clients, by role",
            "0: all changes point the same way. Near 1: they cancel out.",
            ("disagreement", Scale::Linear),
            lines(&|drift| drift.disagreement, Scale::Linear),
        ),
        chart(
            "Drift of the clients, by role",
            "Mean squared distance of the clients' changes to their mean.",
            ("drift", Scale::Log),
            lines(&|drift| drift.drift, Scale::Log),
        ),
    ];
    charts.into_iter().filter(|chart| !chart.series.is_empty()).collect()
}
