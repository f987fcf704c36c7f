//! `fedra judgements`: the win rate of one model over another, out of judgements that somebody else made.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fedra::apply::judgements;
use fedra::text::grid::{Grid, counted};
use fedra_compute::Seed;
use fedra_data::{PositionBias, Rate, WinRate};

use crate::console;
use crate::flags::parse_seed;

const EXAMPLES: &str = "\
Examples:
  fedra judgements verdicts.jsonl
  fedra judgements verdicts.csv --json

Columns: id and winner (a, b or tie); judge, position (the answer that was shown first: a or b) and
category where they are known. docs/scores.md explains the numbers.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Judgements {
    /// Judgements: JSON lines, CSV or TSV
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Random seed of the intervals
    #[arg(long, default_value_t = 0, value_parser = parse_seed)]
    seed: u64,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

impl Judgements {
    /// Counts.
    pub fn run(&self) -> Result<()> {
        let judgements = judgements::read(&self.file)?;
        let Some(found) = WinRate::of(&judgements, Seed(self.seed)) else { return Ok(()) };
        if self.json {
            console::json(serde_json::to_string_pretty(&found)?);
            return Ok(());
        }
        let WinRate { win_rate, judgements, wins, losses, ties, position, categories, judges } =
            found;
        console::data(format_args!(
            "win rate of a: {}\n{}: {wins} won by a, {losses} by b, {}",
            in_words(&win_rate),
            counted(judgements, "judgement"),
            counted(ties, "tie")
        ));
        let groups = [("category", categories), ("judge", judges)];
        for (what, rates) in groups.into_iter().filter(|(_, rates)| rates.len() > 1) {
            let mut grid = Grid::new([&format!("<{what}"), ">win rate", "95 %", ">examples"]);
            for (name, rate) in rates {
                let examples = rate.examples.to_string();
                grid.row([name, percent(rate.rate), interval(&rate), examples]);
            }
            console::data("");
            console::table(&grid);
        }
        if let Some(PositionBias { first_wins, swapped, consistent }) = position {
            let low = first_wins.low.unwrap_or(0.0);
            let high = first_wins.high.unwrap_or(1.0);
            let verdict = match (low > 0.5, high < 0.5) {
                (true, _) => "the judges prefer the first answer",
                (_, true) => "the judges prefer the second answer",
                (false, false) => "no preference for a place seen",
            };
            console::data(format_args!(
                "\nthe first answer wins: {} ({verdict})",
                in_words(&first_wins)
            ));
            if swapped > 0 {
                console::data(format_args!(
                    "judged in both orders: {}, of which {consistent} have the same winner",
                    counted(swapped, "pair")
                ));
            }
        }
        Ok(())
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn interval(rate: &Rate) -> String {
    match (rate.low, rate.high) {
        (Some(low), Some(high)) => format!("{} to {}", percent(low), percent(high)),
        (_, _) => "-".to_owned(),
    }
}

fn in_words(rate: &Rate) -> String {
    let examples = counted(rate.examples as u64, "example");
    match interval(rate).as_str() {
        "-" => format!("{} of {examples}", percent(rate.rate)),
        interval => format!("{} of {examples}, 95 % interval {interval}", percent(rate.rate)),
    }
}
