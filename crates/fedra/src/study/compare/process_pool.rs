//! Runs in processes of their own, several at a time.
//!
//! A process a run, because then its memory is its own (and given back), its peak means something,
//! and a run that breaks down takes no other with it. Each child holds one end of a pipe on its
//! standard input; when this process lets go of the other end, on Ctrl-C or by dying in whatever
//! way, the child ends after the step that is on, with the checkpoint of the round before.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::config::Experiment;
use crate::error::{Context, Result};
use crate::process::locked;

/// A run to be carried out: its folder holds the experiment.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name for people.
    pub name: String,
    /// The folder, made already.
    pub folder: PathBuf,
    /// What it runs; threads are those it asks for, had it the machine to itself.
    pub experiment: Experiment,
}

/// What a run tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A round is complete: `round 3/20` and how it went.
    Round(String),
    /// How far the round is that is on: `in round 3/20: step 120/400`.
    Within(String),
    /// It has ended.
    Over(Ending),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Complete.
    Complete,
    /// Stopped; its complete rounds are kept.
    Interrupted,
    /// Broken down, in its own words.
    Failed(String),
}

/// How many at a time, on how many threads.
#[derive(Clone, Copy)]
pub struct ProcessPool<'a> {
    /// Runs at a time.
    pub jobs: usize,
    /// Threads of all together, where a run does not ask for its own number.
    pub threads: usize,
    /// The process that continues with the run in a folder with so many threads. It says what it has to
    /// say on its standard error, ends after its step once its standard input ends, and then with the
    /// status [`INTERRUPTED`].
    pub command: &'a (dyn Fn(&Path, usize) -> io::Result<Command> + Sync),
}

/// The status of a process that was told to stop.
pub const INTERRUPTED: u8 = 130;

/// The pipe to each child at work, by its place; none once the comparison stops.
type Leashes = Mutex<Option<BTreeMap<usize, ChildStdin>>>;

/// How often Ctrl-C is looked for.
const GLANCE: Duration = Duration::from_millis(50);

impl ProcessPool<'_> {
    /// Carries out the jobs in order and passes on what they tell, with their place in the list.
    /// Says whether all were begun and none was interrupted.
    pub fn run(
        self,
        jobs: &[&Job],
        stops: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(usize, News),
    ) -> bool {
        let next = Mutex::new(0..jobs.len());
        let leashes: Leashes = Mutex::new(Some(BTreeMap::new()));
        let (sender, news) = channel();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(jobs.len()) {
                let (sender, next, leashes) = (sender.clone(), &next, &leashes);
                scope.spawn(move || {
                    loop {
                        let Some(place) = locked(next).next() else { break };
                        let ending = self.one((place, jobs[place]), leashes, &|line| {
                            let told = |told: &str| told.to_owned();
                            let news = round_of(&line).map(told).map(News::Round);
                            let news = news.or(within_of(&line).map(told).map(News::Within));
                            if let Some(news) = news {
                                // Nobody listens once the comparison has ended.
                                let _unheard = sender.send((place, news));
                            }
                        });
                        let ending =
                            ending.unwrap_or_else(|error| Ending::Failed(error.in_words()));
                        let _unheard = sender.send((place, News::Over(ending)));
                    }
                });
            }
            drop(sender);
            follow(&news, &leashes, (stops, tell))
        })
    }

    fn one(
        self,
        (place, job): (usize, &Job),
        leashes: &Leashes,
        line: &dyn Fn(String),
    ) -> Result<Ending> {
        let mut child = {
            let mut held = locked(leashes);
            let Some(held) = held.as_mut() else { return Ok(Ending::Interrupted) };
            let mut child = self.start(job)?;
            held.extend(child.stdin.take().map(|leash| (place, leash)));
            child
        };
        let said = child.stderr.take().map(|stderr| listen(stderr, line)).unwrap_or_default();
        let status = child.wait().context("waiting for a run")?;
        if let Some(held) = locked(leashes).as_mut() {
            held.remove(&place);
        }
        Ok(match status.code() {
            Some(0) => Ending::Complete,
            Some(code) if code == i32::from(INTERRUPTED) => Ending::Interrupted,
            Some(_) if !said.is_empty() => Ending::Failed(said),
            Some(_) | None => Ending::Failed(format!("its process ended with {status}")),
        })
    }

    fn start(self, job: &Job) -> Result<Child> {
        let threads = (job.experiment.raw.threads.unwrap_or(self.threads) / self.jobs).max(1);
        let mut command =
            (self.command)(&job.folder, threads).context("finding the program itself")?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C in a terminal reaches every process of the group: this one is to pass it on.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().with_context(|| format!("starting the run in {}", job.folder.display()))
    }
}

/// Passes on all news until everyone is done; lets go of the leashes on Ctrl-C.
fn follow(
    news: &Receiver<(usize, News)>,
    leashes: &Leashes,
    (stops, tell): (&dyn Fn() -> bool, &mut dyn FnMut(usize, News)),
) -> bool {
    let mut undisturbed = true;
    loop {
        if stops() {
            drop(locked(leashes).take());
            undisturbed = false;
        }
        match news.recv_timeout(GLANCE) {
            Ok((place, news)) => {
                undisturbed &= news != News::Over(Ending::Interrupted);
                tell(place, news);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return undisturbed,
        }
    }
}

/// Passes on lines; returns the error among them.
fn listen(stderr: ChildStderr, line: &dyn Fn(String)) -> String {
    let mut error = String::new();
    let mut reader = BufReader::new(stderr);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        if let Some(said) = text.strip_prefix("error: ") {
            said.clone_into(&mut error);
            // Hints and causes follow.
            let mut rest = String::new();
            if reader.read_to_string(&mut rest).is_ok() && !rest.trim().is_empty() {
                error = format!("{error}\n{}", rest.trim_end());
            }
            return error;
        }
        line(text);
    }
    error
}

/// What a run's line tells of a round, if it does: `METHOD round 3/20 ...`, and not `warning: ...`.
fn round_of(line: &str) -> Option<&str> {
    let (method, rest) = line.split_once(' ')?;
    (!method.ends_with(':') && rest.starts_with("round ")).then_some(rest)
}

/// What a run's line tells of the round that is on, if it does: `METHOD: in round 3/20: ...`.
fn within_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(": ")?;
    rest.starts_with("in round ").then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_round_is_told_from_a_warning_about_one() {
        assert_eq!(round_of("fedavg round 3/20  loss 0.5"), Some("round 3/20  loss 0.5"));
        for line in ["warning: round 3: client 1: late", "note: rounds", "round", ""] {
            assert_eq!(round_of(line), None, "{line}");
            assert_eq!(within_of(line), None, "{line}");
        }
        let line = "fedavg: in round 3/20: step 7/40, 1/3 clients";
        assert_eq!((round_of(line), within_of(line)), (None, Some(&line[8..])));
    }
}
