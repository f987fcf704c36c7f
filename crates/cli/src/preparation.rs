//! What a person sees while rows are read and tokenised: a live line on a terminal. Elsewhere nothing,
//! unless it takes long, and then one line for each part of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fedra::folder::summary::duration;
use fedra::text::grid::grouped;
use fedra_data::{Preparing, Stage};
use fedra_plan::ByteCount;

use crate::console;
use crate::live::fitted;
use crate::screen::{self, Line, locked};

/// What lasts longer than this is worth a line where none is live.
const LONG: Duration = Duration::from_secs(5);
/// Rows, and bytes of files, below which nothing is said, however slow the machine is at the moment.
const MANY_ROWS: u64 = 50_000;
const MANY_BYTES: u64 = 10_000_000;

/// Follows one preparation.
pub struct Preparation {
    state: Arc<Mutex<StageProgress>>,
    pub line: Line,
    began: Instant,
    said: BTreeSet<Stage>,
}

/// How far a part of it is, and since when.
#[derive(Clone, Copy)]
struct StageProgress {
    at: Preparing,
    since: Instant,
}

impl Preparation {
    /// A live line that begins here.
    pub fn new(step: Preparing) -> Self {
        let began = Instant::now();
        let state = Arc::new(Mutex::new(StageProgress { at: step, since: began }));
        let line =
            Line::new(true, &state, |step: &StageProgress, width| step.line(Instant::now(), width));
        Self { state, line, began, said: BTreeSet::new() }
    }

    /// It is further on.
    pub fn step(&mut self, at: Preparing) {
        let now = Instant::now();
        {
            let mut state = locked(&self.state);
            let since = if state.at.stage == at.stage { state.since } else { now };
            *state = StageProgress { at, since };
        }
        let least = match at.stage {
            Stage::Reading => MANY_BYTES,
            Stage::GrowingVocabulary | Stage::Tokenising => MANY_ROWS,
        };
        let is_worth_a_line = at.total >= least && now.duration_since(self.began) >= LONG;
        if !screen::is_live() && is_worth_a_line && self.said.insert(at.stage) {
            console::say(format_args!("{} {}", name(at.stage), amount(at.stage, at.total)));
        }
    }
}

impl StageProgress {
    fn line(&self, now: Instant, width: usize) -> String {
        let Preparing { stage, done, total } = self.at;
        let share = (done as f64 / total.max(1) as f64).min(1.0);
        let spent = now.saturating_duration_since(self.since).as_secs_f64();
        let left = (share > 0.0 && spent > 1.0).then(|| spent / share - spent);
        let parts = [
            (1, Some(name(stage).to_owned())),
            (0, Some(format!("{:.0} %", (share * 100.0).floor()))),
            (2, Some(format!("of {}", amount(stage, total)))),
            (3, left.map(|left| format!("{} left", duration(left)))),
        ];
        fitted(&parts, share, width)
    }
}

const fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Reading => "reading",
        Stage::GrowingVocabulary => "building a vocabulary from",
        Stage::Tokenising => "tokenising",
    }
}

fn amount(stage: Stage, amount: u64) -> String {
    match stage {
        Stage::Reading => ByteCount(amount).to_string(),
        Stage::GrowingVocabulary | Stage::Tokenising => format!("{} rows", grouped(amount)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_the_part_its_share_and_the_time_left() {
        let since = Instant::now();
        let at = Preparing { stage: Stage::Tokenising, done: 250_000, total: 1_000_000 };
        let line = StageProgress { at, since }.line(since + Duration::from_secs(3), 100);
        for part in ["tokenising", "25 %", "of 1,000,000 rows", "9.0 s left", "\u{2501}"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let at = Preparing { stage: Stage::Reading, done: 0, total: 0 };
        assert!(StageProgress { at, since }.line(since, 12).contains("0 %"));
    }
}
