//! Scores label by label, and which label was taken for which.

use fedra_data::{ByLabel, ConfusionMatrix};
use fedra_report::{CellFace, Column, Content, HeatCell, HeatMap, PlotRow, RowPlot, Side, Table};

use crate::report::record::RunRecord;
use crate::text::grid::grouped;

/// Labels that fit on a chart.
const CHARTED: usize = 30;

/// Labels whose names fit side by side.
const NAMED: usize = 12;

/// A table, a chart and a matrix for each set that was counted.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let Some(summary) = &record.summary else { return Vec::new() };
    let mut contents = Vec::new();
    for (set, by_label) in &summary.by_label {
        let set = set.replace('_', " ");
        contents.extend(chart(&set, by_label).map(Content::Rows));
        contents.extend(
            by_label.confusion.as_ref().and_then(|matrix| heat(&set, matrix)).map(Content::Heat),
        );
    }
    for (set, by_label) in &summary.by_label {
        if by_label.labels.len() > CHARTED {
            contents.push(Content::Table(table(&set.replace('_', " "), by_label)));
        }
    }
    contents
}

fn chart(set: &str, by_label: &ByLabel) -> Option<RowPlot> {
    let labels = &by_label.labels;
    if labels.is_empty() || labels.len() > CHARTED {
        return None;
    }
    let number = |value: f64| Some(value).filter(|value| value.is_finite());
    let rows = labels.iter().map(|one| PlotRow {
        name: format!("{} ({})", one.label, grouped(one.support)),
        values: vec![number(one.precision), number(one.recall), number(one.f1)],
        span: None,
    });
    Some(RowPlot {
        title: format!("Label by label, {set}"),
        caption: "In brackets: how often the label is true.".to_owned(),
        x: "share".to_owned(),
        y: "label".to_owned(),
        marks: vec![("precision".to_owned(), 1), ("recall".to_owned(), 2), ("F1".to_owned(), 0)],
        rows: rows.collect(),
    })
}

/// Rows are shares of the true label, so that rare labels are seen too.
fn heat(set: &str, matrix: &ConfusionMatrix) -> Option<HeatMap> {
    let ConfusionMatrix { labels, counts } = matrix;
    if labels.is_empty() || labels.len() > CHARTED {
        return None;
    }
    let row = |counts: &Vec<u64>| {
        let all: u64 = counts.iter().sum();
        let share = |count: &u64| {
            (all > 0).then(|| HeatCell {
                value: (100.0 * *count as f64 / all as f64).round(),
                hatched: false,
            })
        };
        counts.iter().map(share).collect()
    };
    // Many names side by side could not be read: columns have the numbers of their rows.
    let numbered = labels.len() > NAMED;
    let number = |(place, label): (usize, &String)| format!("{} {label}", place + 1);
    let (columns, rows, key) = if numbered {
        let columns = (1..=labels.len()).map(|place| place.to_string()).collect();
        let rows = labels.iter().enumerate().map(number).collect();
        (columns, rows, " Columns have the numbers of their rows.")
    } else {
        (labels.clone(), labels.clone(), "")
    };
    Some(HeatMap {
        title: format!("Which was taken for which, {set}"),
        caption: format!(
            "Each row is a true label; its cells are percent of it, by predicted label.{key}"
        ),
        x: ("predicted".to_owned(), columns),
        y: ("true".to_owned(), rows),
        cells: counts.iter().map(row).collect(),
        value: "percent of the true label, at most".to_owned(),
        hatching: None,
        face: CellFace::Number,
    })
}

fn table(set: &str, by_label: &ByLabel) -> Table {
    let right = |name: &str| Column { name: name.to_owned(), side: Side::Right };
    let rows = by_label.labels.iter().map(|one| {
        let [precision, recall, f1] =
            [one.precision, one.recall, one.f1].map(|value| format!("{value:.3}"));
        vec![one.label.clone(), grouped(one.support), precision, recall, f1]
    });
    let label = Column { name: "label".to_owned(), side: Side::Left };
    Table {
        caption: format!("Label by label, {set}."),
        columns: [label]
            .into_iter()
            .chain(["true", "precision", "recall", "F1"].map(right))
            .collect(),
        rows: rows.collect(),
    }
}
