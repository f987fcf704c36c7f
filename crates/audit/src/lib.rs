//! Attacks on what leaves a client, and what a defence against them costs.
//!
//! An attack that fails is no proof of privacy, and a weak one that fails says nothing at all. So these
//! are the strongest at hand, and where there is a claim to hold them against, it is held against them.
//!
//! **A cut decoder.** A server that holds the middle of a cut decoder sees the state of every token
//! behind the client's first blocks, with noise, and tries to read the text.
//!
//! ```text
//! Decoder --states--> Observation (noise of the client) --> Search, Inverter --> Recovery
//!    \-- FineTuning: the client's own weights    PublicText: what is known anyway
//! Study: all of it over a grid of cuts and noises, with the loss at each --> Finding, Verdict
//! ```
//!
//! **A released model.** Whoever has it tries to tell which rows it learnt from.
//!
//! ```text
//! Observed (losses of models on halves of the rows) --> MembershipAttack --> Roc --> MembershipFinding
//! most_found: what a guarantee allows any attack      OneRun: an epsilon that guesses refute
//! ```
//!
//! **A privacy guarantee.** Rows that are there by a coin are looked for in everything that is released.
//!
//! ```text
//! CanaryEvidence (noised sums, canaries' gradients) --> CanaryFinding (guesses) --> OneRun: a bound
//! ```
//!
//! Reading order: [`Study`] and [`Finding`]; then [`Search`] and [`Inverter`]. [`MembershipAttack`], then
//! [`Roc`]. [`CanaryEvidence`], then [`OneRun`].

#![forbid(unsafe_code)]

mod finding;
mod study;

mod inverter;
mod search;

mod observation;
mod public_text;
mod recovery;

mod membership;
mod roc;

mod canary;
mod lower_bound;
mod trade_off;

mod decoder;
mod fine_tuning;
mod product;

mod error;

pub use canary::{CanaryEvidence, CanaryFinding};
pub use decoder::Decoder;
pub use error::{AuditError, Result};
pub use finding::{Attack, Finding, Knowledge, NoiseLevel, Setting, Verdict};
pub use fine_tuning::FineTuning;
pub use inverter::{Inverter, StateStatistics, Target};
pub use lower_bound::{Confidence, OneRun};
pub use membership::{
    FALSE_ALARMS, FoundAt, MembershipAttack, MembershipFinding, Observed, confidence,
};
pub use observation::Observation;
pub use public_text::PublicText;
pub use recovery::{Rates, Reading, Recovery};
pub use roc::{Estimate, Roc, ScoredRow};
pub use search::{Search, Shortlists};
pub use study::{Grid, Study};
pub use trade_off::most_found;
