//! Tables for people: columns as wide as their widest cell, numbers to the right.
//!
//! A cell may hold a name out of a file, so a cell is one line and shows no control character.

use std::borrow::Cow;

use fedra_data::printable;
use fedra_report::{Column, Side, Table};

/// A table on its way to a terminal.
///
/// The first column and those of words are set to the left; [`Grid::new`] takes a heading that
/// starts with `>` for a column of numbers, which is set to the right.
pub struct Grid {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// An empty table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned());
        Self { right, rows: vec![names.collect()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.add(cells.into());
    }

    /// An empty table with any number of columns.
    pub fn with(headings: &[String]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned());
        Self { right, rows: vec![names.collect()] }
    }

    /// Adds a row, one cell a column.
    pub fn add(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.right.len(), "one cell a column");
        let shown = |cell: String| match printable(&cell) {
            Cow::Borrowed(_) => cell,
            Cow::Owned(escaped) => escaped,
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// The same table for a page in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let rule: Vec<String> =
            self.right.iter().map(|r| if *r { "---:" } else { "---" }.to_owned()).collect();
        let mut lines: Vec<String> = self.rows.iter().map(|row| line(row)).collect();
        lines.insert(1, line(&rule));
        lines.join("\n")
    }

    /// The same table for a page in HTML.
    pub fn table(&self) -> Table {
        let side = |right: &bool| if *right { Side::Right } else { Side::Left };
        let mut rows = self.rows.iter();
        let names = rows.next().into_iter().flatten();
        Table {
            caption: String::new(),
            columns: names
                .zip(&self.right)
                .map(|(name, right)| Column { name: name.clone(), side: side(right) })
                .collect(),
            rows: rows.cloned().collect(),
        }
    }

    /// The lines, without blanks at their ends.
    pub fn lines(&self) -> Vec<String> {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let cell = |row: &[String], column: usize| {
            let (text, width) = (&row[column], widths[column]);
            if self.right[column] { format!("{text:>width$}") } else { format!("{text:width$}") }
        };
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = (0..widths.len()).map(|column| cell(row, column)).collect();
            cells.join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

impl std::fmt::Display for Grid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.lines().join("\n"))
    }
}

/// So many of a thing: `1 round`, `1,200 rounds`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A count with its thousands apart.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let first = (digits.len() + 2) % 3 + 1;
    let mut out = digits[..first].to_owned();
    for start in (first..digits.len()).step_by(3) {
        out.push(',');
        out.push_str(&digits[start..start + 3]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let mut grid = Grid::new(["method", ">score"]);
        grid.row(["fedavg".into(), "0.71".into()]);
        grid.row(["local".into(), "0.5".into()]);
        assert_eq!(grid.to_string(), "method  score\nfedavg   0.71\nlocal     0.5");
    }

    #[test]
    fn thousands_are_apart() {
        let shown = [0, 12, 999, 1000, 271_303, 22_713_216].map(grouped);
        assert_eq!(shown, ["0", "12", "999", "1,000", "271,303", "22,713,216"]);
        assert_eq!(
            [0, 1, 2000].map(|n| counted(n, "round")),
            ["0 rounds", "1 round", "2,000 rounds"]
        );
    }
}
