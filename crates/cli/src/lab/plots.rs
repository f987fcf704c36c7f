//! What the laboratories share: findings, points out of several worlds, and a word on progress.

use std::io::IsTerminal;
use std::time::Instant;

use anyhow::Result;
use fedra::text::grid::Grid;
use fedra_lab::Verdict;
use fedra_report::{Chart, Content, Point, Section, Series, Stroke};
use serde_json::Value;

use crate::console;
use crate::study_folder::StudyFolder;

/// What a laboratory found, on its way to files and to whoever asked.
pub struct Findings {
    /// The heading of the page.
    pub title: String,
    /// A paragraph each, before the plots.
    pub introduction: Vec<String>,
    /// The plots and their names.
    pub charts: Vec<(String, Chart)>,
    /// What became of many predictions of one kind, below how to read it.
    pub table: Option<(String, Grid)>,
    /// What was predicted, and what became of it.
    pub verdicts: Vec<Verdict>,
    /// A last sentence for the terminal.
    pub conclusion: Option<String>,
    /// Every number.
    pub results: Value,
    /// How many runs are behind them.
    pub runs: usize,
    /// Whether they are told as one JSON object, and not in sentences.
    pub json: bool,
}

impl Findings {
    /// Writes everything and tells what was found; the work began then.
    pub fn tell(self, folder: &StudyFolder, begun: Instant) -> Result<()> {
        let entry = |Verdict { shape, criterion, seen, numbers }: &Verdict| {
            let word = if *seen { "Seen" } else { "Not seen" };
            let text = vec![format!("Criterion: {criterion}."), format!("Numbers: {numbers}.")];
            (format!("{word}: {shape}"), text)
        };
        let table = |(caption, grid): &(String, Grid)| Content::Table(grid.table(caption));
        let mut seen: Vec<Content> = self.table.iter().map(table).collect();
        seen.push(Content::Findings(self.verdicts.iter().map(entry).collect()));
        let seen = vec![Section::new("Predictions and results", seen)];
        folder.put_page((&self.title, self.introduction), seen, &self.charts)?;
        folder.put("results.json", &format!("{}\n", self.results))?;
        if self.json {
            console::json(&self.results);
            return Ok(());
        }
        if let Some((caption, grid)) = &self.table {
            console::page(format_args!("{caption}\n"));
            console::table(grid);
            console::data("");
        }
        for Verdict { shape, criterion, seen, numbers } in &self.verdicts {
            let word = if *seen { "seen    " } else { "NOT SEEN" };
            console::page(format_args!("{word}  {shape}"));
            console::page(format_args!("          if {criterion}\n          {numbers}\n"));
        }
        self.conclusion.iter().for_each(console::page);
        let (seconds, page) = (begun.elapsed().as_secs_f64(), folder.page());
        let runs = self.runs;
        console::say(format_args!("{runs} runs in {seconds:.0} s; open {}", page.display()));
        Ok(())
    }
}

/// Losses and distances here are near one; what is a million times that is on its way to infinity.
const DIVERGED: f64 = 1e6;

/// The mean of several worlds at each place, with a band from the lowest to the highest. A place where any world
/// has no number is left out: the mean of those that did not diverge would flatter them.
pub fn summarised(worlds: &[Vec<(f64, Option<f64>)>]) -> Vec<Point> {
    let places = worlds.iter().map(Vec::len).min().unwrap_or(0);
    (0..places)
        .filter_map(|place| {
            let shown = |world: &Vec<(f64, Option<f64>)>| {
                world[place].1.filter(|value| value.abs() < DIVERGED)
            };
            let values: Vec<f64> = worlds.iter().map(shown).collect::<Option<_>>()?;
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Some(Point::with_band(worlds[0][place].0, mean, low, high))
        })
        .collect()
}

/// One line for each heterogeneity, in the same colour in every plot; `worlds` gives x and y of each world.
pub fn by_level(
    levels: &[f64],
    stroke: Stroke,
    worlds: impl Fn(f64) -> Vec<Vec<(f64, Option<f64>)>>,
) -> Vec<Series> {
    let line = |(colour, &h): (usize, &f64)| Series {
        name: format!("h = {h}"),
        points: summarised(&worlds(h)),
        stroke,
        colour,
    };
    levels.iter().enumerate().map(line).collect()
}

/// Rings around the lowest point of each line: a shallow minimum is hard to see otherwise.
pub fn lowest_of(series: &[Series]) -> Series {
    let lowest = |series: &Series| {
        let at = series.points.iter().min_by(|a, b| a.y.total_cmp(&b.y))?;
        Some(Point::new(at.x, at.y))
    };
    Series {
        name: "lowest".to_owned(),
        points: series.iter().filter_map(lowest).collect(),
        stroke: Stroke::Rings,
        colour: 6,
    }
}

/// Says how far it is, where a person watches.
pub fn progress(done: usize, all: usize) {
    if std::io::stderr().is_terminal() || done == all {
        console::say(format_args!("{done} of {all} runs"));
    }
}
