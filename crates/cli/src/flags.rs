//! Flags that several commands have.

use std::fmt::Display;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fedra_compute::ThreadPool;
use fedra_data::Missing;

use crate::console;

/// `--quiet`.
#[derive(Args, Clone, Copy, Debug)]
pub struct Quiet {
    /// Print results and errors only
    #[arg(long, short)]
    quiet: bool,
}

impl Quiet {
    /// How much is said.
    pub fn voice(self) -> Verbosity {
        if self.quiet { Verbosity::Quiet } else { Verbosity::Lively }
    }
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// Live lines and lines.
    Lively,
    /// Nothing.
    Quiet,
}

impl Verbosity {
    /// Says a line on stderr, unless it is to be quiet.
    pub fn say(self, line: impl Display) {
        if self == Self::Lively {
            console::say(line);
        }
    }
}

/// `--threads`.
#[derive(Args, Clone, Copy, Debug)]
pub struct Threads {
    /// Threads [default: as many as the machine has cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Threads {
    /// How many. Asking the thread pool instead would start one that stays awake beside this one.
    pub fn count(self) -> usize {
        self.threads.unwrap_or_else(cores)
    }

    /// A pool of them.
    pub fn pool(self) -> Result<ThreadPool> {
        let threads = self.count();
        if !(1..=ThreadPool::MOST).contains(&threads) {
            bail!("--threads: found {threads}, expected 1 to {}", ThreadPool::MOST);
        }
        ThreadPool::new(threads).context("--threads: cannot start them")
    }
}

/// As many threads as the machine has.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Takes one of these words for its value; help and errors list the words.
pub fn one_of<T, const N: usize>(words: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let names = words.each_ref().map(|(name, _)| *name);
    PossibleValuesParser::new(names).map(move |name| {
        let found = words.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone()).expect("clap lets no other word through")
    })
}

/// Takes a whole number from one to another, or without an upper bound of its own.
pub fn whole<T>(
    fewest: u64,
    most: Option<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64>,
{
    move |text| {
        let read = text.trim().parse::<u64>().ok();
        let legal =
            read.filter(|number| *number >= fewest && most.is_none_or(|most| *number <= most));
        legal.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match most {
            // A number that no counter holds is none that anybody means.
            None => format!("expected a whole number, at least {fewest}"),
            Some(most) => format!("expected a whole number from {fewest} to {most}"),
        })
    }
}

/// A seed.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number, 0 or more".to_owned())
}

/// What becomes of rows that lack something, by its name in an experiment file.
pub const MISSING: [(&str, Missing); 2] = [("refuse", Missing::Refuse), ("drop", Missing::Drop)];
