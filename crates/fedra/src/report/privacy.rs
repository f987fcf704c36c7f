//! What a private run has spent by round, and how large its signal was beside the noise.

use std::collections::BTreeSet;

use fedra_engine::{PrivacyReport, RoundReport};
use fedra_plan::Layer;
use fedra_report::{Chart, Content, HeatCell, HeatMap, Point, Scale};

use crate::forecast::private::ratio;
use crate::report::binned::Columns;
use crate::report::charts::{by_round, level, line};
use crate::report::record::{RunRecord, counted};

/// Charts, and the statement in words.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let charts = [spent(record).map(Content::Lines), signal(record).map(Content::Heat)];
    let summary = record.summary.as_ref();
    let statement = summary.and_then(|summary| summary.privacy.as_ref());
    let statement = statement.map(|privacy| Content::Words(privacy.statement.clone()));
    let noise = summary.and_then(|summary| summary.noise.as_ref()).map(|noise| {
        Content::Words(format!("At the cut: {noise}. By itself this is no privacy guarantee."))
    });
    charts.into_iter().flatten().chain(statement).chain(noise).collect()
}

fn spent(record: &RunRecord) -> Option<Chart> {
    let told =
        |report: &RoundReport| Some(Point::new(counted(report), report.privacy.as_ref()?.epsilon));
    let mut series = vec![line("spent", 0, record.rounds.iter().filter_map(told))?];
    let opened = record.experiment.as_ref().and_then(|it| it.recipe.privacy.as_ref());
    let summed = record.summary.as_ref().and_then(|summary| summary.privacy.as_ref());
    let guarantee =
        summed.map(|privacy| privacy.guarantee).or(opened.map(|privacy| privacy.guarantee));
    let budget = guarantee.and_then(|guarantee| guarantee.budget);
    series.extend(budget.and_then(|budget| level("budget", 1, (&series, budget.get()))));
    let of = record.rounds.iter().find_map(|report| report.privacy.as_ref());
    let caption = of.map_or(String::new(), |PrivacyReport { unit, delta, .. }| {
        format!("Epsilon of all releases so far, for each {unit}, at delta {delta}.")
    });
    by_round(("Privacy spent", &caption), ("epsilon", Scale::Linear), series)
}

fn signal(record: &RunRecord) -> Option<HeatMap> {
    let rounds = &record.rounds;
    let layers = |report: &RoundReport| {
        report.privacy.as_ref().map_or(Vec::new(), |privacy| privacy.layers.clone())
    };
    let all: BTreeSet<Layer> = rounds.iter().flat_map(&layers).map(|layer| layer.layer).collect();
    let from_top: Vec<Layer> = all.into_iter().rev().collect();
    let columns = Columns::of(rounds);
    let row = |layer: &Layer| {
        let cell = |range: &std::ops::Range<usize>| {
            let told = rounds[range.clone()].iter().flat_map(&layers);
            let ratios: Vec<f64> =
                told.filter(|one| one.layer == *layer).filter_map(|one| ratio(&one)).collect();
            let value = ratios.iter().sum::<f64>() / ratios.len() as f64;
            (!ratios.is_empty()).then_some(HeatCell { value, hatched: false })
        };
        columns.ranges.iter().map(cell).collect()
    };
    let cells: Vec<Vec<Option<HeatCell>>> = from_top.iter().map(row).collect();
    cells.iter().flatten().any(Option::is_some).then(|| HeatMap {
        title: "Signal-to-noise ratio".to_owned(),
        caption:
            "The norm of the signal over that of the noise in what was released, by part of the \
                  model. Below 1 the noise is larger."
                .to_owned(),
        x: (columns.in_words(), columns.names.clone()),
        y: ("part".to_owned(), from_top.iter().map(Layer::to_string).collect()),
        cells,
        value: "signal-to-noise ratio, at most".to_owned(),
        ..HeatMap::default()
    })
}
