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

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write;

use crate::document::is_start;
use crate::{Division, Holding, Labels, Table, printable};

/// A bar is this long where there is room for it.
const BAR: usize = 20;
/// And no shorter.
const SHORTEST_BAR: usize = 4;
/// Columns of a picture.
const WIDE: usize = 80;
/// Letters of a name.
const LONGEST_NAME: usize = 28;
const MOST_LABELS: usize = 24;
const SHADES: [char; 5] = ['\u{b7}', '\u{2591}', '\u{2592}', '\u{2593}', '\u{2588}'];

impl Division {
    /// The division as lines of text. Of more clients than `most`, the largest are shown, largest
    /// first, and the others are counted.
    pub fn picture(&self, table: &Table, most: usize) -> String {
        let counted = Counted::labels(table);
        let overall = counted.counts(table, 0..table.examples.len());
        let (clients, others) = self.largest(most);
        let mut rows: Vec<Line<'_>> = Vec::new();
        for holding in clients {
            let counts = counted.counts(table, holding.rows());
            rows.push(Line { name: printable(&holding.client), parts: parts([holding]), counts });
        }
        let central = Line {
            name: "central test".into(),
            parts: [0, 0, self.central_test.len()],
            counts: counted.counts(table, self.central_test.iter().copied()),
        };
        // A bar is one holder's: what many hold together has none.
        let longest = rows.iter().chain([&central]).map(Line::total).max().unwrap_or(0).max(1);
        let rest = (!others.is_empty()).then(|| Line {
            name: format!("and {} more", others.len()).into(),
            parts: parts(others.iter().copied()),
            counts: counted.counts(table, others.iter().flat_map(|holding| holding.rows())),
        });
        let together = rest.is_some().then_some(rows.len());
        rows.extend(rest);
        rows.push(central);

        for row in &mut rows {
            row.name = shortened(&row.name).into();
        }
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(6);
        let labels = counted.heading().len().max(counted.shown.len());
        let beside = width + "  ".len() + "   train  valid   test  ".len() + labels;
        let bar_width = WIDE.saturating_sub(beside).clamp(SHORTEST_BAR, BAR);
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("writing to a string cannot fail");
            out.push('\n');
        };
        line(format_args!(
            "{:width$}  {:bar_width$}  {:>6} {:>6} {:>6}  {}",
            "client",
            "rows",
            "train",
            "valid",
            "test",
            counted.heading(),
        ));
        for (place, row) in rows.iter().enumerate() {
            let Line { name, parts, counts } = row;
            let filled = if together == Some(place) {
                0
            } else {
                (row.total() * bar_width).div_ceil(longest)
            };
            let bar = "\u{2588}".repeat(filled);
            let (mine, all) = if counted.of_rows {
                (row.total(), table.examples.len())
            } else {
                (counts.iter().sum(), overall.iter().sum())
            };
            let cells = shades((counts, mine), (&overall, all));
            line(format_args!(
                "{name:width$}  {bar:bar_width$}  {:>6} {:>6} {:>6}  {cells}",
                parts[0], parts[1], parts[2],
            ));
        }
        for (place, &label) in counted.shown.iter().enumerate() {
            line(format_args!("  {} {}", letter(place), printable(table.labels.name(label))));
        }
        match counted.hidden {
            0 => {}
            1 => line(format_args!("  and 1 rarer label")),
            hidden => line(format_args!("  and {hidden} rarer labels")),
        }
        out
    }

    /// All clients in their order, or the largest of them, largest first, and the others.
    fn largest(&self, most: usize) -> (Vec<&Holding>, Vec<&Holding>) {
        let mut clients: Vec<&Holding> = self.clients.iter().collect();
        if clients.len() <= most {
            return (clients, Vec::new());
        }
        // Stable: among equals the order stays.
        clients.sort_by_key(|holding| Reverse(holding.len()));
        let others = clients.split_off(most);
        (clients, others)
    }
}

/// A name, or its two ends: names of one kind often begin alike.
fn shortened(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    let kept = LONGEST_NAME - 2;
    let start: String = letters[..kept / 2].iter().collect();
    let end: String = letters[letters.len() - kept.div_ceil(2)..].iter().collect();
    format!("{start}..{end}")
}

/// One line of the picture before it is drawn.
struct Line<'a> {
    name: Cow<'a, str>,
    /// Rows for training, validation and test.
    parts: [usize; 3],
    /// Of each label that is shown.
    counts: Vec<usize>,
}

impl Line<'_> {
    fn total(&self) -> usize {
        self.parts.iter().sum()
    }
}

/// Rows for training, validation and test, of all holders together.
fn parts<'a>(holders: impl IntoIterator<Item = &'a Holding>) -> [usize; 3] {
    let mut parts = [0; 3];
    for holding in holders {
        for (sum, rows) in
            parts.iter_mut().zip([&holding.train, &holding.validation, &holding.test])
        {
            *sum += rows.len();
        }
    }
    parts
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

    /// What stands over the cells.
    fn heading(&self) -> String {
        match self.shown.len() {
            0 => String::new(),
            1 => "label a".to_owned(),
            count => format!("labels a-{}", letter(count - 1)),
        }
    }

    fn counts(&self, table: &Table, rows: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut counts = vec![0; self.shown.len()];
        for label in rows.flat_map(|row| table.examples[row].labels.numbers()) {
            if let Ok(place) = self.shown.binary_search(label) {
                counts[place] += 1;
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
        assert_eq!(division.picture(&table, 2), expected);
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
        let picture = Partition::Client.divide(&table, whole, 1).unwrap().picture(&table, 9);
        let cells = |client: &str| {
            let line = picture.lines().find(|line| line.starts_with(client)).unwrap();
            line.rsplit("  ").next().unwrap().to_owned()
        };
        // Flu is on 3 of 6 rows and gout on 2: 1 / 0.5 = 2 times and 1 / 0.33 = 3 times at "many".
        assert_eq!(cells("many"), "\u{2593}\u{2593}");
        assert_eq!(cells("one"), "\u{2592}\u{b7}");
        assert_eq!(cells("none"), "\u{b7}\u{b7}");
    }

    #[test]
    fn of_many_clients_the_largest_are_shown_and_the_others_counted() {
        let mut builder = TableBuilder::new(Task::Classes);
        for (client, count) in [("a", 1), ("b", 4), ("c", 2), ("d\u{1b}[0m", 3), ("e", 2)] {
            for _ in 0..count {
                builder.push(Row::text("x").with_labels(["flu"]).with_client(client)).unwrap();
            }
        }
        let table = builder.finish();
        let whole = Shares { central: 0.0, validation: 0.0, test: 0.0 };
        let division = Partition::Client.divide(&table, whole, 1).unwrap();
        let expected = "\
client        rows                   train  valid   test  label a
b             ████████████████████       4      0      0  ▒
d\\u{1b}[0m    ███████████████            3      0      0  ▒
and 3 more                               5      0      0  ▒
central test                             0      0      0  ·
  a flu
";
        assert_eq!(division.picture(&table, 2), expected);
    }
}
