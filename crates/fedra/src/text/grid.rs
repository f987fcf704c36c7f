//! Tables for people: columns as wide as their widest cell, numbers to the right.
//!
//! A cell may hold a name out of a file, so a cell is one line and shows no control character.

use std::borrow::Cow;

use fedra_data::printable;
use fedra_report::{Column, Side, Table, wrapped};

/// A table on its way to a terminal or a page.
///
/// Columns are set to the left. A heading that starts with `>` is that of a column of numbers, which is set
/// to the right; one that starts with `<` has names and sentences out of files ([`Side::Name`]).
pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// Columns at which a table that is too wide continues below itself.
    parts: Vec<usize>,
}

impl Grid {
    /// An empty table with these headings.
    pub fn new(headings: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let column = |heading: &str| {
            let (side, name) = match heading.split_at_checked(1) {
                Some((">", name)) => (Side::Right, name),
                Some(("<", name)) => (Side::Name, name),
                Some(_) | None => (Side::Left, heading),
            };
            Column { name: name.to_owned(), side }
        };
        let columns: Vec<Column> = headings.into_iter().map(|one| column(one.as_ref())).collect();
        let names = columns.iter().map(|column| column.name.clone()).collect();
        Self { columns, rows: vec![names], parts: Vec::new() }
    }

    /// Adds a row, one cell a column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let shown = |cell: String| match printable(&cell) {
            Cow::Borrowed(_) => cell,
            Cow::Owned(escaped) => escaped,
        };
        let cells: Vec<String> = cells.into_iter().map(shown).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell a column");
        self.rows.push(cells);
    }

    /// Where the table is too wide, it continues below itself from this column on.
    pub fn part_at(&mut self, column: usize) {
        self.parts.push(column);
    }

    /// The same table for a page in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let rule = (0..self.columns.len()).map(|at| if self.is_right(at) { "---:" } else { "---" });
        let rule: Vec<String> = rule.map(str::to_owned).collect();
        let mut lines: Vec<String> = self.rows.iter().map(|row| line(row)).collect();
        lines.insert(1, line(&rule));
        lines.join("\n")
    }

    /// The same table for a page in HTML, with a sentence above it.
    pub fn table(&self, caption: impl Into<String>) -> Table {
        let (columns, rows) = (self.columns.clone(), self.rows[1..].to_vec());
        Table { caption: caption.into(), columns, rows }
    }

    fn is_right(&self, column: usize) -> bool {
        self.columns[column].side == Side::Right
    }

    /// The lines, without blanks at their ends.
    pub fn lines(&self) -> Vec<String> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.set(&all, &self.widths())
    }

    /// The table on lines of so many characters. One that is wider continues below itself, its first column
    /// again; long cells of words take several lines, and what is a single word is cut.
    pub fn within(&self, width: usize) -> String {
        let mut widths = self.widths();
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP * (widths.len().max(1) - 1);
        if total(&widths) <= width {
            return self.to_string();
        }
        let [first, rest @ ..] = widths.as_mut_slice() else { return String::new() };
        *first = (*first).min((width * 2 / 5).max(LEAST));
        let room = width.saturating_sub(*first + GAP).max(LEAST);
        for own in rest {
            *own = (*own).min(room);
        }
        let mut tables: Vec<Vec<usize>> = vec![vec![0]];
        for column in 1..widths.len() {
            let table = tables.last_mut().expect("there is a first");
            let used = table.iter().map(|column| widths[*column] + GAP).sum::<usize>();
            let is_new =
                table.len() > 1 && (used + widths[column] > width || self.parts.contains(&column));
            if is_new {
                tables.push(vec![0, column]);
            } else {
                table.push(column);
            }
        }
        let set = |columns: &Vec<usize>| self.set(columns, &widths).join("\n");
        tables.iter().map(set).collect::<Vec<_>>().join("\n\n")
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }

    /// Some of the columns, as wide as is said.
    fn set(&self, columns: &[usize], widths: &[usize]) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            let cells: Vec<Vec<String>> =
                columns.iter().map(|column| cell_lines(&row[*column], widths[*column])).collect();
            let deep = cells.iter().map(Vec::len).max().unwrap_or(0);
            for depth in 0..deep {
                let cell = |(cell, column): (&Vec<String>, &usize)| {
                    let text = cell.get(depth).map_or("", String::as_str);
                    let width = widths[*column];
                    if self.is_right(*column) {
                        format!("{text:>width$}")
                    } else {
                        format!("{text:width$}")
                    }
                };
                let line: Vec<String> = cells.iter().zip(columns).map(cell).collect();
                lines.push(line.join("  ").trim_end().to_owned());
            }
        }
        lines
    }
}

/// Blanks between two columns.
const GAP: usize = 2;
/// Columns are no narrower than this.
const LEAST: usize = 8;

/// The two ends of a word: names of one kind often begin alike.
fn shortened(word: &str, width: usize) -> String {
    let letters: Vec<char> = word.chars().collect();
    let kept = width.saturating_sub(2).min(letters.len());
    let start: String = letters[..kept / 2].iter().collect();
    let end: String = letters[letters.len() - kept.div_ceil(2)..].iter().collect();
    format!("{start}..{end}")
}

/// A cell on lines of a width: broken between words, a longer word cut in its middle.
fn cell_lines(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let fitted = |word: &str| match word.chars().count() {
        length if length <= width => word.to_owned(),
        _ => shortened(word, width),
    };
    let words: Vec<String> = text.split(' ').map(fitted).collect();
    wrapped(&words.join(" "), width)
}

impl std::fmt::Display for Grid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.lines().join("\n"))
    }
}

/// The first few of some names, and how many more there are: `a, b and 3 more`.
pub fn listed(names: impl ExactSizeIterator<Item: AsRef<str>>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let first: Vec<_> = names.take(most).collect();
    let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
    let rest = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
    first.join(", ") + &rest
}

/// Words in a row: `a, b and c`, where the last stands behind this one.
pub fn joined(words: &[impl AsRef<str>], before_last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [most @ .., last] if !most.is_empty() => {
            format!("{} {before_last} {last}", most.join(", "))
        }
        few => few.concat(),
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
    fn a_table_that_is_too_wide_goes_on_below_itself() {
        let mut grid = Grid::new(["variant", ">score", "difference", ">up", ">down"]);
        grid.row([
            "fedavg with a long name".into(),
            "0.71".into(),
            "-".into(),
            "1 MB".into(),
            "2".into(),
        ]);
        grid.part_at(3);
        assert_eq!(
            grid.within(32),
            "variant       score  difference\nfedavg with    0.71  -\na long name\n\n\
             variant         up  down\nfedavg with   1 MB     2\na long name"
        );
        assert_eq!(grid.within(80), grid.to_string());
    }

    #[test]
    fn a_table_fits_every_width_that_is_not_silly() {
        let mut grid = Grid::new(["label", ">precision", ">recall", "a word", ">support"]);
        for name in ["pneumonia", "x".repeat(200).as_str(), "acute renal failure", "\u{627}\u{644}"]
        {
            let cells = [name, "0.1234", "0.5678", name, "1,234,567"];
            grid.row(cells.map(str::to_owned));
        }
        for width in 24..200 {
            for line in grid.within(width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
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
