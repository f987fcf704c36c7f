//! Scores label by label, and confusion matrices.

use fedra_data::{ByLabel, ConfusionMatrix};
use fedra_report::{CellFace, Content, HeatCell, HeatMap, PlotRow, RowPlot};

use crate::report::record::RunRecord;
use crate::text::grid::grouped;
use crate::text::label_table::label_table;

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
            let caption = format!("By label, {}.", set.replace('_', " "));
            contents.push(Content::Table(label_table(by_label, usize::MAX).table(caption)));
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
        title: format!("By label, {set}"),
        caption: "In brackets: support, the number of true cases.".to_owned(),
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
        title: format!("Confusion matrix, {set}"),
        caption: format!(
            "Each row is a true label; its cells are percentages of it, by predicted label.{key}"
        ),
        x: ("predicted".to_owned(), columns),
        y: ("true".to_owned(), rows),
        cells: counts.iter().map(row).collect(),
        value: "percent of the true label, at most".to_owned(),
        face: CellFace::Number,
        ..HeatMap::default()
    })
}
