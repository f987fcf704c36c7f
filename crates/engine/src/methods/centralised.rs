//! Centralised training: one party holds every example. The ceiling that federations are held to.
//!
//! McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep
//! Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629 (its baseline).
//!
//! ```text
//! one client with everything:  w <- w - rate g   for each batch of the pooled examples
//! ```
//!
//! It is [`FedAvg`](super::FedAvg) over a pooled population, so "one client with everything is
//! centralised training" holds by construction. A round is an epoch and the solver starts afresh in
//! it. Nothing travels, hence no bytes are reported, and there is nobody else to wait for: how many
//! answers a round closes with or needs is a question for federations.

use serde::{Deserialize, Serialize};

use crate::cohort::conditions::Conditions;
use crate::cohort::min_arrivals::MinArrivals;
use crate::cohort::sampler::Sampler;
use crate::recipe::{Population, Recipe};

/// The method; it has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Centralised {}

impl Centralised {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self {} = self;
        Recipe {
            population: Population::Pooled,
            sampler: Sampler::All,
            conditions: Conditions { close_with: None, ..base.conditions },
            min_arrivals: MinArrivals::default(),
            max_norm: None,
            ..base
        }
    }
}
