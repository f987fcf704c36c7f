//! Which part of a Transformer learns, which part travels, where each part lives.
//!
//! Those three questions have one answer here, a [`Plan`] for each client and round: the [`Scope`]
//! that the client has, the scope that learns, the scope it keeps to itself, and a [`Cut`] that says
//! where blocks live. What travels, the work and the reach of the backward pass are derived from it. A
//! [`Rule`] says which part learns. The crate holds no tensor, file,
//! clock or random number, so both ends of a federation compute the same plan from the same words.
//!
//! The three methods at the heart of Fedra differ only in their rule and their cut:
//!
//! ```
//! use fedra_plan::*;
//!
//! let layout = Layout::new((0..6).flat_map(|number| {
//!     [Role::Query, Role::Key, Role::Value].into_iter().flat_map(move |role| {
//!         let id = |part| ParamId::new(Layer::Block(number), role, part);
//!         [
//!             (id(Part::Weight), Shape::matrix(8, 8)),
//!             (id(Part::LoraA), Shape::matrix(2, 8)),
//!             (id(Part::LoraB), Shape::matrix(8, 2)),
//!         ]
//!     })
//! }))?;
//!
//! // SAFL: the blocks that were chosen by attention, and the head.
//! let safl = Rule::Chosen | Rule::Layers([Layer::Head].into());
//!
//! // FedFrozen, in its second stage: everything but query and key.
//! let fedfrozen = Rule::Everything - Rule::Roles([Role::Query, Role::Key].into());
//!
//! // FedSEA-LLaMA: adapters everywhere; all but the first and last two blocks at the server.
//! let fedsea = Rule::Parts([Part::LoraA, Part::LoraB].into());
//! let cut = Cut::keep(2, 2, layout.blocks())?;
//!
//! for rule in [&safl, &fedfrozen, &fedsea] {
//!     rule.check(&layout)?;
//! }
//! assert_eq!(safl.select_with(&layout, &[2, 3].into())?.blocks(), [2, 3].into());
//! assert_eq!(fedfrozen.select(&layout)?, Scope::of_roles(&layout, [Role::Value]));
//!
//! let plan = Plan::new(&layout, fedsea.select(&layout)?, cut)?;
//! assert_eq!(plan.uploads().blocks(), [0, 1, 4, 5].into());
//! assert_eq!(plan.trained_by(Side::Server).blocks(), [2, 3].into());
//! assert_eq!(plan.gradient_crossings().len(), 2);
//! # Ok::<(), PlanError>(())
//! ```

#![forbid(unsafe_code)]

mod id;
mod role;

mod digest;
mod layout;
mod shape;

mod scope;

mod cut;

mod bytes;
mod memory;
mod plan;
mod versions;
mod work;

mod evidence;
mod round;
mod rule;
mod solver;

mod error;
mod text;

#[cfg(test)]
mod fixture;

pub use bytes::ByteCount;
pub use cut::{Crossing, Cut, Side};
pub use digest::Digest;
pub use error::PlanError;
pub use evidence::{AttentionSide, BlockScores, Probe, RelevantTokens};
pub use id::{Layer, ParamId};
pub use layout::Layout;
pub use memory::ParamMemory;
pub use plan::Plan;
pub use role::{Part, Role};
pub use round::Round;
pub use rule::Rule;
pub use scope::Scope;
pub use shape::{Shape, WrongRank};
pub use solver::{Solver, WrongSetting};
pub use text::Unreadable;
pub use versions::{Held, Versions};
pub use work::Visits;
