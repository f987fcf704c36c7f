//! Attacks on what leaves a client, and what a defence against them costs.
//!
//! A server that holds the middle of a cut decoder sees the state of every token behind the client's
//! first blocks, with noise. This crate plays that server with the strongest means at hand, because a
//! weak attack that fails says nothing. An attack that fails is no proof of privacy either.
//!
//! ```text
//! Decoder --states--> Observation (noise of the client) --> Search, Inverter --> Recovery
//!    \-- FineTuning: the client's own weights    PublicText: what is known anyway
//! Study: all of it over a grid of cuts and noises, with the loss at each --> Finding, Verdict
//! ```
//!
//! Reading order: [`Study`] and [`Finding`]; then [`Search`] and [`Inverter`].

mod finding;
mod study;

mod inverter;
mod search;

mod observation;
mod public_text;
mod recovery;

mod decoder;
mod fine_tuning;
mod product;

mod error;

pub use decoder::Decoder;
pub use error::{AuditError, Result};
pub use finding::{Attack, Finding, Knowledge, NoiseLevel, Setting, Verdict};
pub use fine_tuning::FineTuning;
pub use inverter::{Inverter, StateStatistics, Target};
pub use observation::Observation;
pub use public_text::PublicText;
pub use recovery::{Rates, Reading, Recovery};
pub use search::{Prior, Search, Shortlists};
pub use study::{Grid, Study};
