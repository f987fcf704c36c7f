//! Experiments: TOML as written ([`Draft`]) and as checked ([`Experiment`]).
//!
//! ```text
//! file, --set, --seed, ${VARIABLES} --layers--> Table --reading--> Draft --check--> Experiment
//! ```
//!
//! Whatever can be refused without opening a data file is refused here, before anything is
//! written; a refusal is one [`Complaint`] that names the key. A program may start in the middle,
//! with a draft of its own ([`Experiment::new`]), and put its own rows or its own method in place of
//! those that a file can name ([`Experiment::of_rows`], [`Experiment::with_recipe`]).

mod checked;
pub mod complaint;
pub mod draft;
mod privacy_table;
pub mod split_table;

mod catalogue;
mod check;
mod layers;
mod reading;

mod idle;
mod kind;
mod opening;
mod origin;
mod overrides;
mod own;
#[cfg(test)]
mod reference;

pub use check::{of_engine as complaint_of, prompt as prompt_of};
pub use checked::{DataFile, Experiment, ModelSource, Source, Vocabulary};
pub use complaint::{Complaint, Found, Problem};
pub use draft::{CompareTable, Draft, HeadChoice, Keep, NamedVariant};
pub use idle::{idle, safl_table};
pub use kind::read_setting;
pub use layers::value_of as read_value;
pub use opening::Party;
pub use origin::Origin;
pub use overrides::Overrides;
