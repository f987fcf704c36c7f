//! The live line of a run: what it says, and how it fits the terminal.
//!
//! A line that wraps cannot be drawn over, and the width may change while a run is on. So the line is put
//! together anew for every drawing out of parts with a rank: what does not fit is left out, the least
//! needed first, and what room is left becomes a bar.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use fedra::folder::summary::duration;
use fedra::text::headline::headline;
use fedra_data::printable;
use fedra_engine::{Activity, RoundProgress, RoundReport};
use fedra_plan::ByteCount;
use fedra_privacy::shown;

/// What is known of a run while it is on.
#[derive(Clone, Debug)]
pub struct RunState {
    /// What it is called, in a word.
    pub label: String,
    /// Rounds that are complete.
    pub done: u32,
    /// Number of rounds.
    pub rounds: u32,
    /// Clients of a round, as far as it is known.
    pub cohort: u64,
    /// Clients at work, by name, and since when.
    pub working: BTreeMap<String, Instant>,
    /// Clients that have ended in this round.
    pub ended: BTreeSet<String>,
    /// The last score, in words.
    pub score: Option<String>,
    /// The last loss.
    pub loss: Option<f64>,
    /// Bytes both ways so far.
    pub bytes: ByteCount,
    /// What a private run has spent.
    pub epsilon: Option<f64>,
    /// How fast it goes.
    pub timer: RoundTimer,
    /// How far the work inside the round is.
    pub within: Option<RoundProgress>,
    /// When something was last said, where no line is drawn.
    pub said: Instant,
}

/// A round that takes longer is heard of once in a while, where no line is drawn.
pub const A_WHILE: Duration = Duration::from_mins(1);

impl RunState {
    /// A round is complete.
    pub fn complete(&mut self, report: &RoundReport, now: Instant) {
        self.done = report.round.0 + 1;
        self.cohort = report.cohort.len() as u64;
        self.working.clear();
        self.ended.clear();
        self.loss = report.loss;
        if let Some((name, value, _)) = headline(&report.scores) {
            self.score = Some(format!("{name} {value:.3}"));
        }
        self.bytes += report.bytes.up;
        self.bytes += report.bytes.down;
        let privacy = report.privacy.as_ref();
        self.epsilon = privacy.map(|privacy| privacy.epsilon).or(self.epsilon);
        self.timer.end(now);
        (self.within, self.said) = (None, now);
    }

    /// The line, on so many columns.
    pub fn line(&self, now: Instant, width: usize) -> String {
        // In the order in which they are read; a small rank stays longest.
        let parts = [
            (7, Some(printable(&self.label).into_owned())),
            (0, Some(format!("round {}/{}", (self.done + 1).min(self.rounds), self.rounds))),
            (1, self.score.clone()),
            (8, self.loss.map(|loss| format!("loss {loss:.3}"))),
            (3, Some(format!("{}/{} clients", self.ended.len(), self.cohort))),
            (4, self.within.as_ref().and_then(RoundProgress::counted)),
            (6, (self.bytes.0 > 0).then(|| self.bytes.to_string())),
            (2, self.epsilon.map(|epsilon| format!("epsilon {}", shown::up(epsilon, 2)))),
            (5, self.left(now)),
            (9, self.late(now)),
        ];
        let share = f64::from(self.done) / f64::from(self.rounds.max(1));
        let within = self.share_of_round();
        let share = share + within.min(1.0) / f64::from(self.rounds.max(1));
        fitted(&parts, share.min(1.0), width)
    }

    /// How long it will take: all rounds, or before one has ended, what the round is at.
    fn left(&self, now: Instant) -> Option<String> {
        let rounds = self.timer.left(now, self.rounds.saturating_sub(self.done));
        if let Some(left) = rounds {
            return Some(format!("{} left", duration(left.as_secs_f64())));
        }
        let within = self.within.as_ref()?;
        let (left, activity) = (within.left()?.as_secs_f64(), within.activity.name());
        Some(format!("about {} left of {activity}", duration(left)))
    }

    /// How much of the round is done: its steps, or where nobody counts them, its clients.
    fn share_of_round(&self) -> f64 {
        let clients = self.ended.len() as f64 / self.cohort.max(1) as f64;
        self.within.as_ref().map_or(clients, |within| match within.activity {
            Activity::Probing => 0.0,
            Activity::Training if within.steps > 0 => {
                within.steps_done as f64 / within.steps as f64
            }
            Activity::Training => clients,
            Activity::Evaluating => 1.0,
        })
    }

    /// The work inside the round in a line, if nothing has been said for a while.
    pub fn said_in_a_while(&mut self, now: Instant, a_while: Duration) -> Option<String> {
        if now.saturating_duration_since(self.said) < a_while {
            return None;
        }
        let within = self.within?;
        self.said = now;
        let round = (self.done + 1).min(self.rounds);
        let clients = (within.clients > 0)
            .then(|| format!("{}/{} clients", within.clients_done, within.clients));
        let parts = [
            Some(within.counted().unwrap_or_else(|| within.activity.name().to_owned())),
            clients,
            self.left(now),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        // Whoever reads these lines tells them by their colon from those of complete rounds.
        Some(format!("{}: in round {round}/{}: {}", self.label, self.rounds, parts.join(", ")))
    }

    /// Who is still at work once others have ended, the longest first.
    fn late(&self, now: Instant) -> Option<String> {
        if self.ended.is_empty() || self.working.is_empty() {
            return None;
        }
        let mut late: Vec<(&Instant, &String)> =
            self.working.iter().map(|(name, since)| (since, name)).collect();
        late.sort();
        let names: Vec<String> =
            late.iter().take(2).map(|(_, name)| printable(name).into_owned()).collect();
        let more = match late.len().saturating_sub(2) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let since =
            late.first().map_or(0.0, |(since, _)| now.duration_since(**since).as_secs_f64());
        let since = if since >= 10.0 { format!(" ({})", duration(since)) } else { String::new() };
        Some(format!("waiting for {}{more}{since}", names.join(", ")))
    }
}

/// Blanks between two parts.
const GAP: usize = 2;
/// Columns at the end of a line that stay free: some terminals go to the next line behind the last, and
/// one that echoes `^C` behind the line must not either.
const MARGIN: usize = 3;
/// Columns from which on a bar says something.
const SHORTEST_BAR: usize = 8;
/// Columns of a bar at most.
const LONGEST_BAR: usize = 24;

/// As many parts as fit, and a bar where there is room for one.
pub fn fitted(parts: &[(u8, Option<String>)], share: f64, width: usize) -> String {
    let room = width.saturating_sub(MARGIN);
    let mut ranked: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].1.is_some()).collect();
    ranked.sort_by_key(|&at| parts[at].0);
    let length = |at: usize| parts[at].1.as_ref().map_or(0, |text| text.chars().count());
    let mut kept: Vec<usize> = Vec::new();
    let mut used = 0;
    for at in ranked {
        let more = length(at) + if kept.is_empty() { 0 } else { GAP };
        if used + more <= room {
            used += more;
            kept.push(at);
        }
    }
    if kept.is_empty() {
        let first = parts.iter().min_by_key(|(rank, _)| rank).and_then(|(_, text)| text.as_ref());
        return first.map_or(String::new(), |text| cut(text, room));
    }
    kept.sort_unstable();
    let texts: Vec<&str> = kept.iter().filter_map(|&at| parts[at].1.as_deref()).collect();
    let spare = room.saturating_sub(used + GAP).min(LONGEST_BAR);
    if spare < SHORTEST_BAR {
        return texts.join("  ");
    }
    // The bar stands behind the label, where there is one.
    let (label, rest) = if kept[0] == 0 { texts.split_at(1) } else { texts.split_at(0) };
    let bar = bar(share, spare);
    [label, &[bar.as_str()], rest].concat().join("  ")
}

fn bar(share: f64, width: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * width as f64).floor() as usize).min(width);
    format!("{}{}", "\u{2501}".repeat(full), "\u{2500}".repeat(width - full))
}

/// The start of a text, with two dots where it continues.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let start: String = text.chars().take(width.saturating_sub(2)).collect();
    if width < 2 { start } else { format!("{start}..") }
}

/// How long rounds take, by the last few of them: they differ, and the first is often the slowest.
#[derive(Clone, Debug)]
pub struct RoundTimer {
    ends: VecDeque<Instant>,
}

/// Rounds that the time left is reckoned by.
const RECENT: usize = 8;

impl RoundTimer {
    /// Rounds begin now.
    pub fn new(now: Instant) -> Self {
        Self { ends: [now].into() }
    }

    /// A round has ended.
    pub fn end(&mut self, now: Instant) {
        self.ends.push_back(now);
        if self.ends.len() > RECENT + 1 {
            self.ends.pop_front();
        }
    }

    /// The time that so many more rounds will take; `None` for none, and before the first has ended.
    /// Whatever happens between two rounds counts too.
    pub fn left(&self, now: Instant, rounds: u32) -> Option<Duration> {
        let (first, last) = (self.ends.front()?, self.ends.back()?);
        if rounds == 0 || self.ends.len() < 2 {
            return None;
        }
        let each = last.duration_since(*first).as_secs_f64() / (self.ends.len() - 1) as f64;
        let since = now.saturating_duration_since(*last).as_secs_f64().min(each);
        Duration::try_from_secs_f64((each * f64::from(rounds) - since).max(0.0)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_last_rounds_and_counts_down() {
        let begun = Instant::now();
        let seconds = Duration::from_secs;
        let mut timer = RoundTimer::new(begun);
        assert_eq!(timer.left(begun, 9), None);
        // A slow first round, then one a second.
        timer.end(begun + seconds(11));
        assert_eq!(timer.left(begun + seconds(11), 9), Some(seconds(99)));
        assert_eq!(timer.left(begun + seconds(13), 9), Some(seconds(97)));
        timer.end(begun + seconds(12));
        assert_eq!(timer.left(begun + seconds(12), 8), Some(seconds(48)));
        for round in 3..=11 {
            timer.end(begun + seconds(10 + round));
        }
        assert_eq!(timer.left(begun + seconds(21), 5), Some(seconds(5)));
        assert_eq!(timer.left(begun + seconds(99), 0), None);
    }

    fn state() -> RunState {
        let now = Instant::now();
        RunState {
            label: "fedavg".to_owned(),
            done: 2,
            rounds: 20,
            cohort: 8,
            working: [("north".to_owned(), now)].into(),
            ended: ["south".to_owned()].into(),
            score: Some("macro_f1 0.812".to_owned()),
            loss: Some(0.5),
            bytes: ByteCount(12_300_000),
            epsilon: Some(2.304),
            timer: RoundTimer::new(now),
            within: None,
            said: now,
        }
    }

    #[test]
    fn the_line_never_passes_the_width_and_says_the_round_first() {
        let (state, now) = (state(), Instant::now());
        for width in 0..200 {
            let line = state.line(now, width);
            assert!(line.chars().count() + MARGIN <= width.max(MARGIN), "{width}: {line}");
            if width > 14 {
                assert!(line.contains("round 3/20"), "{width}: {line}");
            }
        }
        assert_eq!(state.line(now, 43), "round 3/20  macro_f1 0.812  epsilon 2.31");
        let wide = state.line(now, 160);
        for part in
            ["fedavg", "loss 0.500", "1/8 clients", "12.3 MB", "waiting for north", "\u{2501}"]
        {
            assert!(wide.contains(part), "{part}: {wide}");
        }
    }

    #[test]
    fn the_work_inside_a_round_is_in_the_line_and_said_once_a_minute_elsewhere() {
        let (mut state, begun) = (state(), Instant::now());
        let training = RoundProgress {
            activity: Activity::Training,
            clients_done: 1,
            clients: 8,
            steps_done: 120,
            steps: 400,
            seconds: 60.0,
        };
        state.within = Some(training);
        let wide = state.line(begun, 160);
        for part in ["round 3/20", "1/8 clients", "step 120/400", "about 2.3 min left of training"]
        {
            assert!(wide.contains(part), "{part}: {wide}");
        }
        let seconds = |seconds| begun + Duration::from_secs(seconds);
        state.said = begun;
        assert_eq!(state.said_in_a_while(seconds(59), A_WHILE), None);
        let said = state.said_in_a_while(seconds(61), A_WHILE).unwrap();
        let expected =
            "fedavg: in round 3/20: step 120/400, 1/8 clients, about 2.3 min left of training";
        assert_eq!(said, expected);
        assert_eq!(state.said_in_a_while(seconds(100), A_WHILE), None);
        let steps = 90;
        state.within = Some(RoundProgress {
            activity: Activity::Evaluating,
            steps_done: 1,
            steps,
            ..training
        });
        let said = state.said_in_a_while(seconds(200), A_WHILE).unwrap();
        assert_eq!(said, "fedavg: in round 3/20: evaluating 1/90 examples, 1/8 clients");
    }

    #[test]
    fn a_giant_name_is_cut_or_left_out() {
        let mut state = state();
        state.label = "x".repeat(5000);
        assert!(state.line(Instant::now(), 80).contains("round 3/20"));
        assert_eq!(cut("abcdef", 4), "ab..");
        assert_eq!(cut("abc", 4), "abc");
    }
}
