//! `fedra bench fold`: what it costs the server to turn updates into one mean change.

use anyhow::{Result, bail};
use clap::Args;
use fedra_compute::{Device, Seed};
use fedra_engine::{Contribution, Denominator, Fold};
use fedra_model::{Head, Model, Preset};
use fedra_plan::{ByteCount, Round, Scope};
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, encode, open};

use super::memory::{forget_peak, peak_resident_bytes};
use super::stopwatch::{Stopwatch, rounded};
use crate::console;
use crate::grid::grouped;

/// Check, open and add updates one after another, as a server does with what arrives.
#[derive(Args)]
pub struct FoldBench {
    /// Updates to fold
    #[arg(long, default_value_t = 20)]
    updates: u32,
    /// Model shape: tiny, minilm, bert-base, smollm2 or llama-1b
    #[arg(long, default_value = "minilm", value_parser = super::step::parse_shape)]
    shape: Preset,
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

/// The result.
#[derive(serde::Serialize)]
struct Report {
    peer: String,
    updates: u32,
    shape: &'static str,
    parameters: u64,
    update_bytes: u64,
    cpu_seconds: f64,
    wall_seconds: f64,
    peak_bytes: u64,
}

impl FoldBench {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        if self.updates == 0 {
            bail!("--updates: found 0, expected at least 1");
        }
        let model = Model::new(self.shape.config(), Head::Bare, None)?;
        let layout = model.layout();
        // One payload stands for all: whoever sent it, a server does the same with it.
        let payload = {
            let params = model.fresh_params(&Device::cpu(), Seed(1))?;
            let header = Header {
                kind: Kind::Change,
                encoding: Encoding::F32,
                round: Round(0),
                client: ClientId(0),
                examples: 100,
                steps: 7,
                loss: 0.5,
            };
            encode(layout, &header, &fedra_client::to_tensors(&params), None)?
        };
        let scope = Scope::everything(layout);
        let expected = Expectation {
            layout,
            kind: Kind::Change,
            encoding: Encoding::F32,
            round: Round(0),
            client: ClientId(0),
            scope: Some(&scope),
        };
        forget_peak();
        let watch = Stopwatch::start();
        let mut fold = Fold::new(Denominator::Participants);
        for number in 0..self.updates {
            let update = open(&payload, &expected)?;
            fold.add(&update, Contribution::weighing(f64::from(number + 1)));
        }
        let mean = fold.mean();
        let (wall, cpu) = watch.read();
        let report = Report {
            peer: format!("fedra {}", env!("CARGO_PKG_VERSION")),
            updates: self.updates,
            shape: self.shape.name(),
            parameters: mean.elements() as u64,
            update_bytes: payload.len() as u64,
            cpu_seconds: rounded(cpu),
            wall_seconds: rounded(wall),
            peak_bytes: peak_resident_bytes().unwrap_or(0),
        };
        if self.json {
            console::data(serde_json::json!(report));
            return Ok(());
        }
        console::data(format_args!(
            "fold of {} updates of {} parameters: {:.2} s of processor, {:.2} s of time, {} peak",
            report.updates,
            grouped(report.parameters),
            report.cpu_seconds,
            report.wall_seconds,
            ByteCount(report.peak_bytes),
        ));
        Ok(())
    }
}
