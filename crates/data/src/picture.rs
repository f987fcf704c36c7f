//! A picture of a division for the terminal: who holds how much of what.
//!
//! One line a client: a bar for its rows and one shaded cell a label. A cell compares the label's
//! share at the client with its share in the whole table, so that rare labels show as well as
//! common ones: an even grey is IID, black beside white is not. Shares are of rows, whether these
//! have one label or several; where words are labelled they are of the marked spans, because rows
//! are cut as their source likes.
//!
//! ```text
//! · absent   ░ below half of its share   ▒ near it   ▓ above 1.5 times   █ above 3 times
//! ```

use std::fmt::Write;

use crate::document::is_start;
use crate::{Division, Labels, Table};

const BAR: usize = 20;
const MOST_LABELS: usize = 24;
const SHADES: [char; 5] = ['\u{b7}', '\u{2591}', '\u{2592}', '\u{2593}', '\u{2588}'];

impl Division {
    /// The division as lines of text.
    pub fn picture(&self, table: &Table) -> String {
        let counted = Counted::labels(table);
        let overall = counted.counts(table, 0..table.examples.len());
        let mut rows: Vec<(&str, [usize; 3], Vec<usize>)> = Vec::new();
        for holding in &self.clients {
            let parts = [&holding.train, &holding.validation, &holding.test].map(Vec::len);
            rows.push((&holding.client, parts, counted.counts(table, holding.rows())));
        }
        let central = counted.counts(table, self.central_test.iter().copied());
        rows.push(("central test", [0, 0, self.central_test.len()], central));

        let width = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0).max(6);
        let most = rows.iter().map(|row| row.1.iter().sum::<usize>()).max().unwrap_or(0).max(1);
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("writing to a string cannot fail");
            out.push('\n');
        };
        line(format_args!(
            "{:width$}  {:BAR$}  {:>6} {:>6} {:>6}  labels a-{}",
            "client",
            "rows",
            "train",
            "valid",
            "test",
            letter(counted.shown.len().max(1) - 1),
        ));
        for (name, parts, counts) in &rows {
            let total: usize = parts.iter().sum();
            let bar = "\u{2588}".repeat((total * BAR).div_ceil(most));
            let (mine, all) = if counted.of_rows {
                (total, table.examples.len())
            } else {
                (counts.iter().sum(), overall.iter().sum())
            };
            let cells = shades((counts, mine), (&overall, all));
            line(format_args!(
                "{name:width$}  {bar:BAR$}  {:>6} {:>6} {:>6}  {cells}",
                parts[0], parts[1], parts[2],
            ));
        }
        for (place, &label) in counted.shown.iter().enumerate() {
            line(format_args!("  {} {}", letter(place), table.labels.name(label)));
        }
        if counted.hidden > 0 {
            line(format_args!("  and {} rarer labels", counted.hidden));
        }
        out
    }
}

/// The labels that have a column, commonest first where there are too many.
struct Counted {
    shown: Vec<u32>,
    hidden: usize,
    /// Whether shares are of rows; of spans otherwise.
    of_rows: bool,
}

impl Counted {
    fn labels(table: &Table) -> Self {
        let per_word = table.examples.iter().any(|e| matches!(e.labels, Labels::PerWord(_)));
        let all =
            (0..table.labels.len() as u32).filter(|&l| !per_word || is_start(&table.labels, l));
        let every = Self { shown: all.collect(), hidden: 0, of_rows: !per_word };
        let counts = every.counts(table, 0..table.examples.len());
        let mut ranked: Vec<(usize, u32)> = counts.into_iter().zip(every.shown).collect();
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let hidden = ranked.len().saturating_sub(MOST_LABELS);
        let mut shown: Vec<u32> = ranked.into_iter().take(MOST_LABELS).map(|pair| pair.1).collect();
        shown.sort_unstable();
        Self { shown, hidden, of_rows: !per_word }
    }

    fn counts(&self, table: &Table, rows: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut counts = vec![0; self.shown.len()];
        let mut see = |label: u32| {
            if let Ok(place) = self.shown.binary_search(&label) {
                counts[place] += 1;
            }
        };
        for row in rows {
            match &table.examples[row].labels {
                Labels::One(label) => see(*label),
                Labels::Many(labels) | Labels::PerWord(labels) => {
                    for &label in labels {
                        see(label);
                    }
                }
                Labels::Absent => {}
            }
        }
        counts
    }
}

fn letter(place: usize) -> char {
    (b'a' + place.min(MOST_LABELS - 1) as u8) as char
}

/// One cell a label, from its counts here, out of so many, and in the whole table.
fn shades((counts, mine): (&[usize], usize), (overall, all): (&[usize], usize)) -> String {
    let shade = |(&count, &total): (&usize, &usize)| {
        // count / mine over total / all, without dividing by zero.
        match (count * all) as f64 / (mine * total).max(1) as f64 {
            0.0 => SHADES[0],
            ratio if ratio < 0.5 => SHADES[1],
            ratio if ratio <= 1.5 => SHADES[2],
            ratio if ratio <= 3.0 => SHADES[3],
            _ => SHADES[4],
        }
    };
    counts.iter().zip(overall).map(shade).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Partition, Row, Shares, TableBuilder, Task};

    #[test]
    fn a_one_sided_division_looks_one_sided() {
        let mut builder = TableBuilder::new(Task::Classes);
        for (client, label, count) in
            [("north", "flu", 4), ("south", "flu", 1), ("south", "gout", 1)]
        {
            for _ in 0..count {
                builder.push(Row::text("x").with_labels([label]).with_client(client)).unwrap();
            }
        }
        let table = builder.finish();
        let whole = Shares { central: 0.0, validation: 0.0, test: 0.0 };
        let division = Partition::Client.divide(&table, whole, 1).unwrap();
        let expected = "\
client        rows                   train  valid   test  labels a-b
north         ████████████████████       4      0      0  ▒·
south         ██████████                 2      0      0  ▒▓
central test                             0      0      0  ··
  a flu
  b gout
";
        assert_eq!(division.picture(&table), expected);
    }

    /// At "many" every row has both labels, at "one" a row has one of them: flu is on all rows of
    /// the one and on half of the other's, however many labels stand beside it.
    #[test]
    fn where_rows_have_several_labels_a_share_is_of_rows() {
        let mut builder = TableBuilder::new(Task::Diagnosis);
        for (client, labels) in [
            ("many", vec!["flu", "gout"]),
            ("many", vec!["flu", "gout"]),
            ("one", vec!["flu"]),
            ("one", vec![]),
            ("none", vec![]),
            ("none", vec![]),
        ] {
            builder.push(Row::text("x").with_labels(labels).with_client(client)).unwrap();
        }
        let table = builder.finish();
        let whole = Shares { central: 0.0, validation: 0.0, test: 0.0 };
        let picture = Partition::Client.divide(&table, whole, 1).unwrap().picture(&table);
        let cells = |client: &str| {
            let line = picture.lines().find(|line| line.starts_with(client)).unwrap();
            line.rsplit("  ").next().unwrap().to_owned()
        };
        // Flu is on 3 of 6 rows and gout on 2: 1 / 0.5 = 2 times and 1 / 0.33 = 3 times at "many".
        assert_eq!(cells("many"), "\u{2593}\u{2593}");
        assert_eq!(cells("one"), "\u{2592}\u{b7}");
        assert_eq!(cells("none"), "\u{b7}\u{b7}");
    }
}
