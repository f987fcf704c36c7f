//! What a person sees while rounds go by: a live line on a terminal, a line a round elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fedra::folder::summary::duration;
use fedra::listener::{Finishes, Rounds};
use fedra::text::grid::counted;
use fedra::text::headline::round_line;
use fedra_client::Observer;
use fedra_data::printable;
use fedra_engine::{Arrival, ClientInfo, RoundProgress, RoundReport, WarningKind};
use fedra_plan::{ByteCount, Round};

use crate::console;
use crate::flags::Verbosity;
use crate::interrupt;
use crate::live::{A_WHILE, RoundTimer, RunState};
use crate::screen::{self, Line, locked};

/// How often a comparison hears how far a round of its run is.
const OFTEN: Duration = Duration::from_secs(2);

/// Follows one run.
pub struct Progress {
    state: Arc<Mutex<RunState>>,
    line: Line,
    voice: Verbosity,
    clients: Vec<ClientInfo>,
    /// Warnings that have been said: once is enough, the log has them all.
    said: BTreeSet<WarningKind>,
    /// The last round in words, as long as no line has said it.
    last: Option<String>,
}

impl Progress {
    /// A live line over all rounds of a run, of which some may be done.
    pub fn new(about: &Rounds<'_>, voice: Verbosity) -> Self {
        let Rounds { label, title, done, rounds, clients, cohort, finishes, layout: _ } = *about;
        if finishes == Finishes::Round {
            interrupt::within("round, which would spend privacy twice if it were repeated");
        }
        let state = Arc::new(Mutex::new(RunState {
            label: label.to_owned(),
            done,
            rounds,
            cohort,
            working: BTreeMap::new(),
            ended: BTreeSet::new(),
            score: None,
            loss: None,
            bytes: ByteCount(0),
            epsilon: None,
            timer: RoundTimer::new(Instant::now()),
            within: None,
            said: Instant::now(),
        }));
        // Where rounds are lines, nothing else says which of several stretches they belong to.
        if let (Some(title), Verbosity::Lively, false) = (title, voice, screen::is_live()) {
            console::say(title);
        }
        let line = Line::new(voice == Verbosity::Lively, &state, |state: &RunState, width| {
            state.line(Instant::now(), width)
        });
        let clients = clients.to_vec();
        Self { state, line, voice, clients, said: BTreeSet::new(), last: None }
    }

    /// What the fleet tells about its clients.
    pub fn observer(&self) -> Arc<dyn Observer> {
        let (state, line) = (Arc::clone(&self.state), self.line.clone());
        Arc::new(Clients { state, line, voice: self.voice })
    }

    /// Takes the live line away and leaves the last round.
    pub fn finish(&self) {
        self.line.remove();
        if let (Some(last), Verbosity::Lively, true) = (&self.last, self.voice, screen::was_live())
        {
            console::say(last);
        }
    }

    /// A round is complete.
    pub fn round(&mut self, report: &RoundReport) {
        let now = Instant::now();
        let (label, rounds, left) = {
            let mut state = locked(&self.state);
            state.complete(report, now);
            let left = state.timer.left(now, state.rounds.saturating_sub(state.done));
            (state.label.clone(), state.rounds, left)
        };
        let round = report.round.0 + 1;
        let line = round_line(report, rounds);
        self.last = Some(format!("{label} {line}"));
        if self.voice == Verbosity::Quiet {
            return;
        }
        if !screen::is_live() {
            let left = left.map_or(String::new(), |left| {
                format!(", about {} left", duration(left.as_secs_f64()))
            });
            console::say(format_args!("{label} {line}  {:.1} s{left}", report.seconds));
            // Live lines may have ended on the way: then this was the round that they left.
            self.last = None;
        }
        self.line.draw();
        for failed in &report.failed_attempts {
            let (arrived, needed) = (failed.arrived.len(), failed.needed);
            let cohort = counted(failed.cohort.len() as u64, "client");
            let mut absent = failed.failed.iter().chain(&failed.refused);
            let first = absent.next().map_or(String::new(), |absence| {
                let more = match absent.count() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!(" ({}{more})", printable(&absence.in_words(&self.clients)))
            });
            console::say(format_args!(
                "warning: round {round}: repeated, because only {arrived} of {cohort} sent an update{first}, \
                 expected at least {needed}"
            ));
        }
        for absence in report.failed.iter().chain(&report.refused) {
            let told = absence.in_words(&self.clients);
            console::say(format_args!("warning: round {round}: {}", printable(&told)));
        }
        let name = |id| {
            let client = self.clients.iter().find(|client| client.id == id);
            client.map_or_else(String::new, |client| printable(&client.name).into_owned())
        };
        for far in report.norms.iter().flat_map(|norms| norms.in_words(name)) {
            console::say(format_args!("warning: round {round}: {far}"));
        }
        for warning in report.selection.iter().flat_map(|selection| &selection.warnings) {
            if self.said.insert(warning.kind) {
                console::say(format_args!("warning: round {round}: {}", warning.text));
            }
        }
    }
}

struct Clients {
    state: Arc<Mutex<RunState>>,
    line: Line,
    voice: Verbosity,
}

impl Observer for Clients {
    fn started(&self, client: &ClientInfo, _round: Round) {
        locked(&self.state).working.insert(client.name.clone(), Instant::now());
        self.line.draw();
    }

    fn finished(&self, client: &ClientInfo, _round: Round, _arrival: &Arrival) {
        {
            let mut state = locked(&self.state);
            state.working.remove(&client.name);
            state.ended.insert(client.name.clone());
        }
        self.line.draw();
    }

    /// The line is drawn every now and then anyway.
    fn progressed(&self, progress: &RoundProgress) {
        let said = {
            let mut state = locked(&self.state);
            state.within = Some(*progress);
            let is_heard = self.voice == Verbosity::Lively && !screen::was_live();
            // Whoever holds the leash draws a line for this run.
            let a_while = if interrupt::is_on_leash() { OFTEN } else { A_WHILE };
            if is_heard { state.said_in_a_while(Instant::now(), a_while) } else { None }
        };
        if let Some(said) = said {
            console::say(said);
        }
    }

    fn stops(&self) -> bool {
        interrupt::interrupted()
    }
}

/// Shows nothing of clients at work, and stops them on Ctrl-C.
pub struct Stopping;

impl Observer for Stopping {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, _progress: &RoundProgress) {}

    fn stops(&self) -> bool {
        interrupt::interrupted()
    }
}
