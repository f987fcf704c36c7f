//! What a bench tells: one JSON object, or a sentence.

use std::fmt::Display;

use clap::Args;
use fedra_plan::ByteCount;
use serde::Serialize;

use super::stopwatch::Cost;
use crate::console;
use fedra::text::grid::grouped;

/// How a result is printed.
#[derive(Args)]
pub struct Format {
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

impl Format {
    /// Prints a result of this program, as an object or in words.
    pub fn print(&self, result: &impl Serialize, words: impl Display) {
        if !self.json {
            return console::data(words);
        }
        let mut object = serde_json::json!(result);
        object["peer"] = format!("fedra {}", env!("CARGO_PKG_VERSION")).into();
        console::json(object);
    }
}

/// The result of a bench of the federation; `Work` is what was done, and so many.
#[derive(Serialize)]
pub struct Report<Work> {
    #[serde(flatten)]
    pub work: Work,
    pub shape: &'static str,
    pub parameters: u64,
    #[serde(flatten)]
    pub cost: Cost,
}

impl<Work: Serialize> Report<Work> {
    /// Prints it; the sentence starts with what was done.
    pub fn print(&self, format: &Format, done: &str) {
        let words = format_args!(
            "{done} {} parameters: {} s of processor, {} s of time, {} peak",
            grouped(self.parameters),
            figures(self.cost.cpu_seconds),
            figures(self.cost.wall_seconds),
            ByteCount(self.cost.peak_bytes),
        );
        format.print(self, words);
    }
}

/// Seconds, or milliseconds' fractions of them, with as many digits as say something.
fn figures(seconds: f64) -> String {
    let digits = if seconds < 0.01 { 5 } else { 3 };
    format!("{seconds:.digits$}")
}

/// A number with so many digits behind the point.
pub fn rounded(number: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (number * unit).round() / unit
}

/// The one in the middle; `None` of none.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The least of them.
pub fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}
