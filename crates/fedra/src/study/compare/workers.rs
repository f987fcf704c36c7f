//! Who carries out the runs of a comparison: this process one after another, or others side by side.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use fedra_client::Observer;

use super::process_pool::{Ending, Job, News, ProcessPool};

use crate::listener::{Event, Listener, Rounds};
use crate::process::forget_peak;
use crate::run::federate;
use crate::run::start::{Machine, Resumed, resume};
use crate::text::headline::round_line;

/// Who carries out the runs. Either way they come to the same bytes.
#[derive(Clone, Copy)]
pub enum Workers<'a> {
    /// This process, one run after another.
    Here,
    /// Processes of their own: memory is given back after each, its peak is the run's alone, and a run
    /// that breaks down takes no other with it.
    Processes(ProcessPool<'a>),
}

impl Workers<'_> {
    /// Runs that are on at a time.
    pub const fn at_a_time(&self) -> usize {
        match self {
            Self::Here => 1,
            Self::Processes(pool) => pool.jobs,
        }
    }

    /// Carries out the jobs in order and passes on what they tell, with their place in the list.
    /// Says whether all were begun and none was interrupted.
    pub fn run(
        &self,
        jobs: &[&Job],
        stops: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(usize, News),
    ) -> bool {
        match self {
            Self::Here => here(jobs, stops, tell),
            Self::Processes(pool) => pool.run(jobs, stops, tell),
        }
    }
}

fn here(jobs: &[&Job], stops: &dyn Fn() -> bool, tell: &mut dyn FnMut(usize, News)) -> bool {
    let tell = RefCell::new(tell);
    for (place, job) in jobs.iter().enumerate() {
        forget_peak();
        let round = |told: String| (tell.borrow_mut())(place, News::Round(told));
        let listener = OneOf { stops, round: &round, rounds: Cell::new(0) };
        let machine = Machine { threads: job.experiment.raw.threads, ..Machine::default() };
        let ending = match resume(&job.folder, &machine, &listener) {
            Ok(Resumed::WasComplete(_) | Resumed::WentOn(federate::Ending::Complete(_))) => {
                Ending::Complete
            }
            Ok(Resumed::WentOn(federate::Ending::Interrupted { .. })) => Ending::Interrupted,
            Err(error) if error.is_stopped_preparation() => Ending::Interrupted,
            // The words that a process of its own would leave.
            Err(error) => {
                let kept =
                    error.breakdown().map_or(String::new(), |kept| format!("\nhint: {kept}"));
                Ending::Failed(error.in_words() + &kept)
            }
        };
        let interrupted = ending == Ending::Interrupted;
        (tell.borrow_mut())(place, News::Over(ending));
        if interrupted {
            return false;
        }
    }
    true
}

/// Listens to one run on behalf of the comparison.
struct OneOf<'a> {
    stops: &'a dyn Fn() -> bool,
    round: &'a dyn Fn(String),
    rounds: Cell<u32>,
}

impl Listener for OneOf<'_> {
    /// What is worth a note was told when all runs were checked.
    fn hear(&self, event: Event<'_>) {
        if let Event::Round(report) = event {
            (self.round)(round_line(report, self.rounds.get()));
        }
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        self.rounds.set(rounds.rounds);
        Arc::new(fedra_client::Silent)
    }

    fn stops(&self) -> bool {
        (self.stops)()
    }
}
