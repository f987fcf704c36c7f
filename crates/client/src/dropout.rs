//! Where the dropout of a client's steps comes from.
//!
//! The seed of a sequence follows from the client's seed of the round, the step, and the sequence's place
//! among those of the step. Both sides of a cut know these, so a cut model drops what the whole one does; and
//! a step that is summed from several batches drops what one large batch would.

use std::ops::Range;

use fedra_compute::{Dropout, Tape};
use fedra_engine::Work;
use fedra_plan::Plan;
use fedra_seed::Seed;

/// What one client drops in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundDropout {
    rate: f32,
    seed: Seed,
    frozen: Option<u16>,
}

impl RoundDropout {
    /// That of the work, in what is not in front of everything that learns.
    pub fn new(work: &Work, seed: Seed, plan: &Plan) -> Self {
        let frozen = plan.frozen_prefix();
        Self { rate: work.dropout, seed: seed.of("dropout"), frozen }
    }

    /// Of the sequences at these places of a step.
    pub fn of(&self, step: u32, places: Range<usize>) -> Option<Dropout> {
        let seed = self.seed.with(u64::from(step));
        self.drawn(|| places.map(|place| seed.with(place as u64)).collect())
    }

    /// Of sequences with seeds of their own.
    pub fn drawn(&self, seeds: impl FnOnce() -> Vec<Seed>) -> Option<Dropout> {
        let Self { rate, frozen, .. } = *self;
        (rate > 0.0).then(|| Dropout { rate, seeds: seeds(), frozen })
    }

    /// A tape that drops them.
    pub fn tape(&self, tape: Tape, step: u32, places: Range<usize>) -> Tape {
        tape.with_dropout(self.of(step, places))
    }
}
