//! A comparison for people: the same tables on a terminal and in `compare.md`.

use fedra_plan::ByteCount;
use fedra_privacy::shown;
use fedra_report::Content;

use super::comparison::{Comparison, Line, Row, Standing};
use super::statistics::Average;
use crate::folder::summary::duration;
use crate::text::grid::{Grid, counted};
use crate::text::wrap::wrapped;

/// Every table with its heading, and the notes.
pub struct Page {
    tables: Vec<(String, Grid)>,
    notes: Vec<String>,
    title: String,
    /// What the comparison is called.
    pub name: String,
}

impl Page {
    /// Sets a comparison.
    pub fn of(comparison: &Comparison) -> Self {
        let seeds = comparison.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let title =
            format!("{}: {} variants, seeds {seeds}", comparison.name, comparison.variants.len());
        let judged = match &comparison.score {
            Some(score) => format!("{} on the {}", score.name, score.on.replace('_', " ")),
            None => "score".to_owned(),
        };
        let after = if comparison.at_equal.contains_key("rounds") {
            "after all rounds, whose number differs between variants"
        } else {
            "at equal rounds"
        };
        let heading = format!("{judged}, {after}{}", interval(comparison));
        let mut tables = vec![(heading, lines(comparison))];
        for (key, words) in [
            ("rounds", "equal rounds"),
            ("bytes", "equal bytes up and down"),
            ("compute", "equal client compute in multiply-adds"),
        ] {
            if let Some(rows) = comparison.at_equal.get(key) {
                let heading = match rows.as_slice() {
                    [Row { budget: Some(budget), set_by: Some(by), .. }, rest @ ..]
                        if rest.iter().all(|row| row.set_by.as_ref() == Some(by)) =>
                    {
                        format!("at {words}: {}, the total of {by}", amount(key, *budget))
                    }
                    _ => format!("at {words}, among variants with the same baseline"),
                };
                tables.push((heading, budget_lines(comparison, key, rows)));
            }
        }
        Self { tables, notes: comparison.notes.clone(), title, name: comparison.name.clone() }
    }

    /// For a terminal, on lines of so many characters.
    pub fn text(&self, width: usize) -> String {
        let tables = self.tables.iter().map(|(heading, grid)| {
            format!("{}\n{}\n", wrapped(heading, width), grid.within(width))
        });
        let notes = self.notes.iter().map(|note| wrapped(&format!("note: {note}"), width));
        let mut parts: Vec<String> = tables.collect();
        parts.push(notes.collect::<Vec<_>>().join("\n"));
        parts.join("\n").trim_end().to_owned()
    }

    /// For a page in HTML: the tables, and the notes.
    pub fn contents(&self) -> (Vec<Content>, Vec<Content>) {
        let table = |(heading, grid): &(String, Grid)| {
            // A heading begins a sentence; the name of a score stays as it is.
            let rest = heading.strip_prefix("at ").map(|rest| format!("At {rest}."));
            Content::Table(grid.table(rest.unwrap_or_else(|| format!("{heading}."))))
        };
        let notes = self.notes.iter().map(|note| Content::Words(note.clone()));
        (self.tables.iter().map(table).collect(), notes.collect())
    }

    /// For a page in Markdown.
    pub fn markdown(&self) -> String {
        let mut parts = vec![format!("# {}\n", self.title)];
        for (heading, grid) in &self.tables {
            parts.push(format!("## {heading}\n\n{}\n", grid.markdown()));
        }
        if !self.notes.is_empty() {
            let notes = self.notes.iter().map(|note| format!("- {note}"));
            parts.push(format!("## Notes\n\n{}\n", notes.collect::<Vec<_>>().join("\n")));
        }
        parts.join("\n")
    }
}

fn interval(comparison: &Comparison) -> String {
    match comparison.seeds.len() {
        1 => String::new(),
        seeds => format!(" (mean of {seeds} seeds ± half its 95 % interval)"),
    }
}

fn lines(comparison: &Comparison) -> Grid {
    let any = |has: &dyn Fn(&Line) -> bool| comparison.variants.iter().any(has);
    let (tuned, epsilon) = (any(&|line| !line.tuned.is_empty()), any(&|l| l.epsilon.is_some()));
    let mut headings = vec!["variant", ">score", "difference"];
    headings.extend(tuned.then_some("tuned"));
    headings.extend([">up", ">down", ">of full", ">compute", ">rounds", ">time"]);
    headings.extend(epsilon.then_some(">epsilon"));
    let mut grid = Grid::new(headings);
    // What they reached, and below it what that took.
    grid.part_at(if tuned { 4 } else { 3 });
    for line in &comparison.variants {
        let [score, difference] = score_cells(&line.standing);
        let mut cells = vec![line.name.clone(), score, difference];
        cells.extend(tuned.then(|| line.tuned.join(", ")));
        cells.extend([
            bytes(line.bytes.up),
            bytes(line.bytes.down),
            line.share.map_or_else(dash, |share| format!("{:.1} %", 100.0 * share)),
            multiply_adds(line.multiply_adds as f64),
            format!("{:.0}", line.standing.rounds),
            duration(line.seconds),
        ]);
        cells.extend(
            epsilon.then(|| line.epsilon.map_or_else(dash, |epsilon| shown::up(epsilon, 2))),
        );
        grid.row(cells);
    }
    grid
}

fn budget_lines(comparison: &Comparison, key: &str, rows: &[Row]) -> Grid {
    let mut grid = Grid::new(["variant", ">score", "difference", ">rounds", ">budget"]);
    for (Row { name, budget, standing, .. }, whole) in rows.iter().zip(&comparison.variants) {
        let [score, difference] = score_cells(standing);
        let rounds = match standing.score {
            Some(_) => format!("{:.1} of {:.0}", standing.rounds, whole.standing.rounds),
            None => "none fits".to_owned(),
        };
        let budget = budget.map_or_else(dash, |budget| amount(key, budget));
        grid.row([name.clone(), score, difference, rounds, budget]);
    }
    grid
}

/// `0.768 ± 0.012`, and `+0.031 ± 0.004 better`.
fn score_cells(standing: &Standing) -> [String; 2] {
    let margin = |mean: &Average| mean.margin.map_or(String::new(), |m| format!(" ± {m:.3}"));
    let score =
        standing.score.map_or_else(dash, |mean| format!("{:.3}{}", mean.mean, margin(&mean)));
    let difference = match (&standing.difference, &standing.baseline) {
        (Some(mean), _) => {
            let verdict = match standing.verdict {
                Some(verdict) => verdict.words().to_owned(),
                None => format!("no verdict from {}", counted(mean.seeds as u64, "seed")),
            };
            format!("{:+.3}{} {verdict}", mean.mean, margin(mean))
        }
        (None, Some(_)) => dash(),
        (None, None) => "baseline".to_owned(),
    };
    [score, difference]
}

fn dash() -> String {
    "-".to_owned()
}

fn bytes(count: ByteCount) -> String {
    if count.0 == 0 { dash() } else { count.to_string() }
}

fn amount(key: &str, budget: f64) -> String {
    match key {
        "bytes" => ByteCount(budget as u64).to_string(),
        "compute" => multiply_adds(budget),
        _ => format!("{budget:.0} rounds"),
    }
}

fn multiply_adds(count: f64) -> String {
    match count {
        count if count >= 1e15 => format!("{:.2} P", count * 1e-15),
        count if count >= 1e12 => format!("{:.2} T", count * 1e-12),
        count if count >= 1e9 => format!("{:.2} G", count * 1e-9),
        count => format!("{:.2} M", count * 1e-6),
    }
}
