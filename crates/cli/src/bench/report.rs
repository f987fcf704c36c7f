//! What a bench tells: one JSON object, or a sentence.

use std::fmt::Display;

use clap::Args;
use fedra_plan::ByteCount;
use serde_json::Value;

use super::stopwatch::Stopwatch;
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
    pub fn print(&self, mut object: Value, words: impl Display) {
        if !self.json {
            return console::data(words);
        }
        object["peer"] = format!("fedra {}", env!("CARGO_PKG_VERSION")).into();
        console::json(object);
    }

    /// Prints the cost of a bench of the federation; the sentence starts with what was done.
    pub fn print_cost(&self, mut object: Value, done: &str, (parameters, cost): (u64, Stopwatch)) {
        object["parameters"] = parameters.into();
        object["cpu_seconds"] = cost.cpu_seconds.into();
        object["wall_seconds"] = cost.wall_seconds.into();
        object["peak_bytes"] = cost.peak_bytes.into();
        let words = format_args!(
            "{done} {} parameters: {} s of processor, {} s of time, {} peak",
            grouped(parameters),
            figures(cost.cpu_seconds),
            figures(cost.wall_seconds),
            ByteCount(cost.peak_bytes),
        );
        self.print(object, words);
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
