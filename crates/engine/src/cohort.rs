//! Which clients a round asks, and which of them answer.
//!
//! All of it is drawn from the experiment's seed, so a run repeats its cohorts.

pub(crate) mod conditions;
pub(crate) mod min_arrivals;
pub(crate) mod sampler;
