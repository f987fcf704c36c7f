//! What the laboratories share: findings, points out of several worlds, and a word on progress.

use std::io::IsTerminal;
use std::time::Instant;

use anyhow::Result;
use fedra::text::grid::Grid;
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
    pub shapes: Vec<Shape>,
    /// A last sentence for the terminal.
    pub conclusion: Option<String>,
    /// Every number.
    pub results: Value,
    /// How many runs are behind them.
    pub runs: usize,
}

/// One prediction and what became of it.
pub struct Shape {
    /// Whether it was seen.
    pub seen: bool,
    /// What was predicted.
    pub name: String,
    /// By which criterion; absent where all share one.
    pub criterion: Option<String>,
    /// The numbers that decided.
    pub numbers: String,
}

/// How findings are told.
#[derive(Clone, Copy)]
pub enum Telling {
    /// In sentences.
    Words,
    /// As one JSON object.
    Json,
}

impl Findings {
    /// Writes everything and tells what was found; the work began then.
    pub fn tell(self, folder: &StudyFolder, telling: Telling, begun: Instant) -> Result<()> {
        let entry = |shape: &Shape| {
            let word = if shape.seen { "Seen" } else { "Not seen" };
            let criterion = shape.criterion.iter().map(|text| format!("Criterion: {text}."));
            let text = criterion.chain([format!("Numbers: {}.", shape.numbers)]).collect();
            (format!("{word}: {}", shape.name), text)
        };
        let table = |(caption, grid): &(String, Grid)| Content::Table(grid.table(caption));
        let mut seen: Vec<Content> = self.table.iter().map(table).collect();
        if !self.shapes.is_empty() {
            seen.push(Content::Findings(self.shapes.iter().map(entry).collect()));
        }
        let seen = vec![Section::new("Predictions and results", seen)];
        folder.put_page((&self.title, self.introduction), seen, &self.charts)?;
        folder.put("results.json", &format!("{}\n", self.results))?;
        match telling {
            Telling::Json => console::json(&self.results),
            Telling::Words => {
                if let Some((caption, grid)) = &self.table {
                    console::page(format_args!("{caption}\n"));
                    console::table(grid);
                    console::data("");
                }
                for shape in &self.shapes {
                    let word = if shape.seen { "seen    " } else { "NOT SEEN" };
                    console::page(format_args!("{word}  {}", shape.name));
                    if let Some(criterion) = &shape.criterion {
                        console::page(format_args!("          if {criterion}"));
                    }
                    console::page(format_args!("          {}\n", shape.numbers));
                }
                if let Some(conclusion) = &self.conclusion {
                    console::page(conclusion);
                }
                console::say(format_args!(
                    "{} runs in {:.0} s; open {}",
                    self.runs,
                    begun.elapsed().as_secs_f64(),
                    folder.page().display()
                ));
            }
        }
        Ok(())
    }
}

impl From<bool> for Telling {
    /// What `--json` says.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Words }
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

/// Rings around the lowest point of each line: a shallow minimum is hard to see otherwise.
pub fn lowest_of(series: &[Series]) -> Series {
    let lowest = |series: &Series| {
        series
            .points
            .iter()
            .copied()
            .min_by(|a, b| a.y.total_cmp(&b.y))
            .map(|at| Point::new(at.x, at.y))
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
