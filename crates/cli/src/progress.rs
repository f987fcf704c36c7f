//! What a person sees while rounds go by: a bar on a terminal, a line a round elsewhere.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Arc;

use fedra_client::Observer;
use fedra_engine::{Arrival, ClientInfo, EngineError, RoundReport, Sink, WarningKind};
use fedra_plan::Round;
use indicatif::{ProgressBar, ProgressStyle};

use crate::console;
use crate::summary::headline;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// Bars and lines.
    Lively,
    /// Nothing.
    Quiet,
}

/// Follows one run.
pub struct Progress {
    bar: ProgressBar,
    rounds: u32,
    lines: bool,
    voice: Voice,
    /// Warnings that have been said: once is enough, the log has them all.
    said: BTreeSet<WarningKind>,
}

impl Progress {
    /// A bar over all rounds of a run, of which some may be done.
    pub fn new(label: &str, (done, rounds): (u32, u32), clients: u64, voice: Voice) -> Self {
        let lively = voice == Voice::Lively;
        let terminal = std::io::stderr().is_terminal();
        let bar = if lively && terminal {
            ProgressBar::new(u64::from(rounds) * clients)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{prefix:<12} {bar:28} {msg}")
            .expect("the template is legal")
            .progress_chars("━╸─");
        bar.set_style(style);
        bar.set_prefix(label.to_owned());
        bar.set_position(u64::from(done) * clients);
        bar.set_message(format!("round {}/{rounds}", done + 1));
        Self { bar, rounds, lines: lively && !terminal, voice, said: BTreeSet::new() }
    }

    /// What the fleet tells about its clients.
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(Clients { bar: self.bar.clone() })
    }

    /// Leaves the last line where it is.
    pub fn finish(&self) {
        self.bar.abandon();
        if !self.bar.is_hidden() {
            console::say("");
        }
    }
}

impl Sink for Progress {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        let (round, rounds) = (report.round.0 + 1, self.rounds);
        let loss = report.loss.map_or(String::new(), |loss| format!("  loss {loss:.3}"));
        let score = match headline(&report.scores) {
            Some((name, value, _)) => format!("  {name} {value:.3}"),
            None => String::new(),
        };
        let line = format!("round {round}/{rounds}{loss}{score}");
        if self.lines {
            console::say(format_args!("{line}  {:.1} s", report.seconds));
        }
        // A sampled cohort is smaller than the bar allows for.
        let cohort = self.bar.length().unwrap_or(0) / u64::from(rounds.max(1));
        self.bar.set_position(u64::from(round) * cohort);
        self.bar.set_message(line);
        for failed in report.failed_attempts.iter().filter(|_| self.voice == Voice::Lively) {
            let (arrived, needed) = (failed.arrived.len(), failed.needed);
            let cohort = failed.cohort.len();
            let warning = format!(
                "warning: round {round}: tried again, for {arrived} of {cohort} clients came back, \
                 expected at least {needed}"
            );
            self.bar.suspend(|| console::say(&warning));
        }
        let absences = report.failed.iter().chain(&report.refused);
        for absence in absences.filter(|_| self.voice == Voice::Lively) {
            let warning =
                format!("warning: round {round}: client {}: {}", absence.client, absence.reason);
            self.bar.suspend(|| console::say(&warning));
        }
        let warnings = report.selection.iter().flat_map(|selection| &selection.warnings);
        for warning in warnings.filter(|_| self.voice == Voice::Lively) {
            if self.said.insert(warning.kind) {
                let text = format!("warning: round {round}: {}", warning.text);
                self.bar.suspend(|| console::say(&text));
            }
        }
        Ok(())
    }
}

struct Clients {
    bar: ProgressBar,
}

impl Observer for Clients {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {
        self.bar.inc(1);
    }
}
