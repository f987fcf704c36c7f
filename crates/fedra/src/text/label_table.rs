//! Scores label by label, as a table.

use fedra_data::ByLabel;

use super::grid::{Grid, grouped};

/// The first few labels with their scores.
pub fn label_table(by_label: &ByLabel, most: usize) -> Grid {
    let mut grid = Grid::new(["label", ">precision", ">recall", ">f1", ">support"]);
    for one in by_label.labels.iter().take(most) {
        let [precision, recall, f1] =
            [one.precision, one.recall, one.f1].map(|value| format!("{value:.4}"));
        grid.row([one.label.clone(), precision, recall, f1, grouped(one.support)]);
    }
    grid
}
