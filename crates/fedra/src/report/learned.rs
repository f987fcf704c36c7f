//! What learned when and where, and how far the clients went apart.

use fedra_engine::{RoleDrift, RoleGroup, RoundReport, StageReport, Treatment};
use fedra_report::{Chart, Content, HeatCell, HeatMap, Point, Scale, Series};

use crate::report::binned::Columns;
use crate::report::charts::{by_round, line};
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
    let is_second = rounds.last().is_some_and(|last| (0..count).any(|it| is_treated(last, it)));
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
    let hatching = is_second.then(|| treatment(record));
    Some(HeatMap {
        title: "Blocks that learned".to_owned(),
        caption: "The share of clients at which a block learned. The input is at the bottom. \
                  Embeddings and head are not shown."
            .to_owned(),
        x: (columns.in_words(), columns.names.clone()),
        y: ("block".to_owned(), from_top.iter().map(u16::to_string).collect()),
        cells: from_top.into_iter().map(row).collect(),
        value: "share of the clients, at most".to_owned(),
        hatching,
        ..HeatMap::default()
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
        Some(Treatment::Reset) => "second stage: the optimiser state was reset".to_owned(),
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
        title: "Scores of blocks".to_owned(),
        caption:
            "The clients' mean score of each block, as last measured: the basis of the choice."
                .to_owned(),
        x: (columns.in_words(), names.collect()),
        y: ("block".to_owned(), from_top.iter().map(u16::to_string).collect()),
        cells: from_top.iter().map(row).collect(),
        value: "score, at most".to_owned(),
        ..HeatMap::default()
    })
}

const ROLES: [(RoleGroup, &str); 5] = [
    (RoleGroup::QueryKey, "query and key"),
    (RoleGroup::Value, "value"),
    (RoleGroup::Output, "output"),
    (RoleGroup::Mlp, "feed-forward"),
    (RoleGroup::Rest, "embeddings, norms, head"),
];

fn drift(record: &RunRecord) -> Vec<Chart> {
    let lines = |value: fn(&RoleDrift) -> f64, scale: Scale| -> Vec<Series> {
        let of_role = |(colour, (role, name)): (usize, (RoleGroup, &str))| {
            let points = record.rounds.iter().filter_map(|report| {
                let drift = report.drift.as_ref()?.roles.get(&role)?;
                Some(Point::new(counted(report), value(drift)))
            });
            line(name, colour, points.filter(|point| scale.takes(point.y)))
        };
        ROLES.into_iter().enumerate().filter_map(of_role).collect()
    };
    let disagreement = by_round(
        (
            "Disagreement of the clients, by role",
            "0: all changes have the same direction. Near 1: they cancel out.",
        ),
        ("disagreement", Scale::Linear),
        lines(|drift| drift.disagreement, Scale::Linear),
    );
    let drift = by_round(
        (
            "Drift of the clients, by role",
            "Mean squared distance of the clients' changes to their mean.",
        ),
        ("drift", Scale::Log),
        lines(|drift| drift.drift, Scale::Log),
    );
    disagreement.into_iter().chain(drift).collect()
}
