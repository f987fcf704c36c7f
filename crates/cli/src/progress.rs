//! What a person sees while rounds go by: a bar on a terminal, a line a round elsewhere.

use std::collections::{BTreeSet, VecDeque};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra::headline::round_line;
use fedra::listener::Rounds;
use fedra::summary::duration;
use fedra_client::Observer;
use fedra_engine::{Arrival, ClientInfo, RoundReport, WarningKind};
use fedra_plan::Round;
use indicatif::{ProgressBar, ProgressStyle};

use crate::console;

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
    label: String,
    rounds: u32,
    pace: Pace,
    lines: bool,
    voice: Voice,
    /// Warnings that have been said: once is enough, the log has them all.
    said: BTreeSet<WarningKind>,
}

impl Progress {
    /// A bar over all rounds of a run, of which some may be done.
    pub fn new(about: &Rounds<'_>, voice: Voice) -> Self {
        let Rounds { label, title, done, rounds, clients } = *about;
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
        let (label, pace, lines) = (label.to_owned(), Pace::new(), lively && !terminal);
        // Where rounds are lines, nothing else says which of several stretches they belong to.
        if let (Some(title), true) = (title, lines) {
            console::say(title);
        }
        Self { bar, label, rounds, pace, lines, voice, said: BTreeSet::new() }
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

    /// A round is complete.
    pub fn round(&mut self, report: &RoundReport) {
        let (round, rounds) = (report.round.0 + 1, self.rounds);
        let line = round_line(report, rounds);
        let left = match self.pace.left(Instant::now(), rounds.saturating_sub(round)) {
            Some(left) => format!(", about {} left", duration(left.as_secs_f64())),
            None => String::new(),
        };
        if self.lines {
            console::say(format_args!("{} {line}  {:.1} s{left}", self.label, report.seconds));
        }
        let line = format!("{line}{left}");
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
    }
}

/// How long rounds take, by the last few of them: they differ, and the first is often the slowest.
struct Pace {
    ends: VecDeque<Instant>,
}

/// Rounds that the time left is reckoned by.
const RECENT: usize = 8;

impl Pace {
    fn new() -> Self {
        Self { ends: [Instant::now()].into() }
    }

    /// The time that so many more rounds will take; `None` for none. Whatever happens between two
    /// rounds counts too.
    fn left(&mut self, now: Instant, rounds: u32) -> Option<Duration> {
        self.ends.push_back(now);
        if self.ends.len() > RECENT + 1 {
            self.ends.pop_front();
        }
        let spent = now.duration_since(*self.ends.front()?);
        let each = spent.as_secs_f64() / (self.ends.len() - 1) as f64;
        let left = Duration::try_from_secs_f64(each * f64::from(rounds)).ok();
        left.filter(|_| rounds > 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_last_rounds() {
        let mut pace = Pace::new();
        let begun = pace.ends[0];
        let seconds = Duration::from_secs;
        // A slow first round, then one a second.
        assert_eq!(pace.left(begun + seconds(11), 9), Some(seconds(99)));
        assert_eq!(pace.left(begun + seconds(12), 8), Some(seconds(48)));
        for round in 3..=10 {
            pace.left(begun + seconds(10 + round), 1);
        }
        assert_eq!(pace.left(begun + seconds(21), 5), Some(seconds(5)));
        assert_eq!(pace.left(begun + seconds(22), 0), None);
    }
}
