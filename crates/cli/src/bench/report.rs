//! What a bench of the federation tells: the work, the model, the cost.

use clap::Args;
use fedra_plan::ByteCount;
use serde::Serialize;

use super::stopwatch::Cost;
use crate::console;
use fedra::text::grid::grouped;

/// The result of a bench; `Work` is what was done, and so many.
#[derive(Serialize)]
pub struct Report<Work> {
    peer: String,
    #[serde(flatten)]
    pub work: Work,
    pub shape: &'static str,
    pub parameters: u64,
    #[serde(flatten)]
    pub cost: Cost,
}

/// How a result is printed.
#[derive(Args)]
pub struct Format {
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

impl Format {
    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        self.json
    }
}

impl<Work: Serialize> Report<Work> {
    /// A result of this program.
    pub fn new(work: Work, (shape, parameters): (&'static str, u64), cost: Cost) -> Self {
        let peer = format!("fedra {}", env!("CARGO_PKG_VERSION"));
        Self { peer, work, shape, parameters, cost }
    }

    /// Prints it; the sentence starts with what was done.
    pub fn print(&self, format: &Format, done: &str) {
        if format.json {
            console::json(serde_json::json!(self));
            return;
        }
        console::data(format_args!(
            "{done} {} parameters: {} s of processor, {} s of time, {} peak",
            grouped(self.parameters),
            figures(self.cost.cpu_seconds),
            figures(self.cost.wall_seconds),
            ByteCount(self.cost.peak_bytes),
        ));
    }
}

/// Seconds, or milliseconds' fractions of them, with as many digits as say something.
fn figures(seconds: f64) -> String {
    let digits = if seconds < 0.01 { 5 } else { 3 };
    format!("{seconds:.digits$}")
}
