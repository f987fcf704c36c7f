//! `fedra audit`: canaries among the rows of a private run, and the epsilon that they refute.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fedra::forecast::private::PrivacySummary;
use fedra::study::canaries::{CanaryRun, Reading};
use fedra::text::grid::Grid;
use fedra_audit::{CanaryEvidence, CanaryFinding, Confidence};
use fedra_privacy::shown;
use serde_json::json;

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Written;
use crate::flags::Quiet;
use crate::interrupt;
use crate::terminal::Terminal;

pub const HELP: &str = "\
Examples:
  fedra audit experiments/audit.toml
  fedra audit experiments/audit.toml --set privacy.noise=0.5 --canaries 600 --json

The status is 1 if the proven lower bound is above the epsilon that the ledger claims. A bound
below the claim does not prove the claim. docs/audit.md describes the method and what an
experiment needs for it.";

/// The whole command.
#[derive(Args)]
pub struct Audit {
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    device: DeviceFlags,
    /// Number of canaries, over all clients
    #[arg(long, value_name = "M", default_value_t = 1000)]
    canaries: usize,
    /// Confidence of the lower bound
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    /// Folder for the files of the run, removed afterwards [default: runs/audit-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Audit {
    /// Runs the experiment with canaries, guesses, tells.
    pub fn run(&self) -> Result<ExitCode> {
        let voice = self.quiet.voice();
        let experiment = self.written.fetched(self.device, voice)?;
        let usual = || PathBuf::from("runs").join(format!("audit-{}", experiment.name));
        let scratch = self.out.clone().unwrap_or_else(usual);
        if scratch.exists() {
            bail!(
                "--out: {} exists already; the folder has to be new, because it is removed afterwards",
                scratch.display()
            );
        }
        // Refused before the run, not after it.
        Confidence::new(0.0, self.confidence)?;
        let terminal = Terminal::new(voice);
        let Some(run) = CanaryRun::run(&experiment, self.canaries, &scratch, &terminal)? else {
            console::say("stopped; the same command starts the audit again");
            return Ok(ExitCode::from(interrupt::STATUS));
        };
        let trust = Confidence::new(run.privacy.guarantee.delta.get(), self.confidence)?;
        voice.say("computing gradients from updates");
        let finding = found(&run, &run.privacy, trust)?;
        let claim = run.privacy.epsilon;
        let is_broken = claim.is_some_and(|claim| finding.epsilon > claim);
        if self.json {
            let mut object = json!(finding);
            object["status"] = if is_broken { "broken" } else { "not_refuted" }.into();
            // Absent where the ledger has no bound.
            object["claim"] = claim.into();
            (object["noise"], object["clip"]) = (run.privacy.noise.into(), run.privacy.clip.into());
            console::json(object);
        } else {
            tell(finding, claim);
            console::page(if is_broken {
                "\nBROKEN: the measured epsilon exceeds the claim of the ledger"
            } else {
                "\nnot refuted: the bound is below the claim, which is no proof of the claim"
            });
        }
        Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// What the updates of a run prove, read under the noise and clip norm that are claimed for it.
fn found(run: &CanaryRun, claimed: &PrivacySummary, trust: Confidence) -> Result<CanaryFinding> {
    let mut readings = Vec::new();
    for reading in Reading::ALL {
        let mut evidence: Vec<CanaryEvidence> = (run.clients.iter().enumerate())
            .map(|(place, client)| {
                CanaryEvidence::new(client.coins.len(), run.weight(place), claimed.noise)
            })
            .collect();
        let mut refused = None;
        run.sights((reading, claimed.clip), &mut |sight| {
            let seen = evidence[sight.client].see(&sight.released, &sight.gradients);
            refused = refused.take().or(seen.err());
            Ok(())
        })?;
        if let Some(error) = refused {
            return Err(error.into());
        }
        readings.push(evidence);
    }
    let coins: Vec<bool> = run.clients.iter().flat_map(|client| client.coins.clone()).collect();
    Ok(CanaryFinding::of_readings(&readings, &coins, trust)?)
}

fn tell(finding: CanaryFinding, claim: Option<f64>) {
    let CanaryFinding { canaries, guesses, right, epsilon, trust } = finding;
    let mut grid = Grid::new(["", ">"]);
    let mut row = |name: &str, value: String| grid.row([name.to_owned(), value]);
    row("canaries", canaries.to_string());
    row("guessed", format!("{guesses}, {right} of them right"));
    row("epsilon is at least", shown::down(epsilon, 3));
    let claim = claim.map_or_else(|| "no bound".to_owned(), |claim| shown::up(claim, 3));
    row("the ledger claims", claim);
    row("delta", trust.delta.to_string());
    row("confidence", trust.confidence.to_string());
    console::table(&grid);
}
