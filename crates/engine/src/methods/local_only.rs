//! Local-only training: every client alone. The floor that federations are held to.
//!
//! McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep
//! Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629 (its baseline).
//!
//! ```text
//! client  w_k <- w_k - rate g_k   and keeps w_k
//! server  nothing
//! ```
//!
//! Everything is personal: after the first download only headers travel, and the global model stays
//! the initial one. Score it on the clients' own sets.

use fedra_plan::Rule;
use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;

/// The method; it has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalOnly {}

impl LocalOnly {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self {} = self;
        Recipe { personal: Rule::Everything, ..base }
    }
}
