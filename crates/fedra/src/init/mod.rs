//! From a file with rows to an experiment file, for somebody who starts from nothing.
//!
//! ```text
//! files --look--> Sight --and Wishes--> Proposal --to_toml--> an experiment with comments
//! ```
//!
//! The file itself is asked first: its columns, how many different values they have, how long texts
//! are. Wishes (flags, or answers to questions) are stronger than what is proposed, and a proposal is made
//! anew for every wish, so that the next question starts from it. Each decision has its reason, which
//! becomes a comment. What is written has been read back and its data have been partitioned, so that
//! `fedra data` and `fedra run` take it at once.

mod checking;
mod header;
mod images;
mod models;
mod notes;
mod options;
mod proposal;
mod roles;
mod sight;
mod training;
mod wishes;
mod writing;

pub use self::images::ImageSight;
pub use self::models::{FoundModel, ModelPlaces, ModelShape};
pub use self::options::FoundOptions;
pub use self::proposal::{Proposal, propose};
pub use self::roles::Roles;
pub use self::sight::{Sight, look, without_ending};
pub use self::training::{ModelChoice, Training};
pub use self::wishes::{Chosen, ClientFile, Wishes};
