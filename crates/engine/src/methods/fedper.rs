//! `FedPer`: the head is each client's own, the rest is everybody's.
//!
//! Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers. 2019,
//! arXiv 1912.00818, algorithm 1.
//!
//! ```text
//! client  (body, head_k) <- (body, head_k) - rate g,   keeps head_k, sends the body
//! server  body as FedAvg
//! ```
//!
//! The global model's head stays the initial one: score the clients' own sets.

use fedra_plan::{Layer, Rule};
use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;

/// The method; it has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedPer {}

impl FedPer {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self {} = self;
        Recipe { personal: Rule::Layers([Layer::Head].into()), ..base }
    }
}
