//! Differential privacy as data.
//!
//! Mechanisms emit [`Event`]s. A [`Ledger`] keeps them, chained so that none can be edited, moved or
//! lost, and refuses a round before it would pass the budget. Two accountants read the same events:
//! privacy loss distributions, whose epsilon is reported, and Rényi divergences, which check it.
//! Neither ever uses the central limit theorem: it understates epsilon.
//!
//! ```
//! use fedra_privacy::{Composition, Delta, NoiseMultiplier, Relation, Release, Sampling, SamplingRate};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let release = Release::SampledGaussian {
//!     sampling: Sampling::Poisson { rate: SamplingRate::new(0.01)? },
//!     noise: NoiseMultiplier::new(1.0)?,
//!     steps: 1000.try_into()?,
//! };
//! let spent = Composition::of(Relation::AddRemove, [&release])?.spent(Delta::new(1e-5)?);
//! assert!(spent.pld > 1.828 && spent.pld < 1.829 && spent.pld < spent.rdp);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod calibration;
pub mod composition;
pub mod error;
pub mod event;
pub mod gaussian;

pub mod guarantee;
pub mod ledger;
pub mod mechanism;
pub mod numbers;
pub mod rdp;
pub mod shown;
mod statement;

pub mod binomial;
pub mod normal;
mod pair;
mod phase;
mod pld;

pub use composition::{Composition, Spent};
pub use error::PrivacyError;
pub use event::{Event, Release, Sampling};

pub use guarantee::{Guarantee, Relation, Unit};
pub use ledger::{Head, Ledger, Replayed};
pub use numbers::{Budget, Delta, NoiseMultiplier, SamplingRate};
pub use statement::NO_PROTECTION;
