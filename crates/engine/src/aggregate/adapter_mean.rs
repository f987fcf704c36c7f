//! The mean of low-rank adapters as corrections, not as factors.
//!
//! An adapter corrects a projection by `B A`. The mean of the factors is not the mean of the
//! corrections: `mean(B) mean(A) != mean(B A)`. Here the clients' factors of a round are kept, the mean
//! correction is written as one product and factored again into the adapter's rank:
//!
//! ```text
//! P = sum_k w_k B_k A_k
//! ```
//! That is the correction of rank r that is nearest to the mean; it is the mean itself where that has
//! no higher rank, and a round reports the share that was lost. [`nearest_mean`] does the arithmetic.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{Layer, Layout, ParamId, Part, Role};
use fedra_wire::{LowRank, Mean, Opened, ParamValues, nearest_mean};
use serde::{Deserialize, Serialize};

use crate::aggregate::fold::Contribution;

/// How adapters of several clients become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdapterMean {
    /// Each factor by itself.
    #[default]
    Separate,
    /// The mean of the products, factored again.
    Exact,
}

/// What factoring again cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterReport {
    /// How adapters were averaged.
    pub mean: AdapterMean,
    /// The norm of what the rank could not hold, relative to the mean corrections'.
    pub lost: f64,
}

/// The factors of a round's clients.
#[derive(Debug, Default)]
pub(crate) struct Products {
    factors: BTreeMap<(Layer, Role), Vec<LowRank>>,
    /// Whether factors have to stand in the order of their singular values, because some clients have only the first.
    in_order: bool,
}

impl Products {
    /// None yet.
    pub(crate) fn in_order(in_order: bool) -> Self {
        Self { in_order, ..Self::default() }
    }

    /// Adds an update, which changes this model.
    pub(crate) fn add(&mut self, update: &Opened, contribution: Contribution, model: &ParamValues) {
        let changes = update.tensors();
        let adapters =
            changes.iter().filter(|(id, _)| matches!(id.part, Part::LoraA | Part::LoraB));
        let projections: BTreeSet<_> = adapters.map(|(id, _)| (id.layer, id.role)).collect();
        for (layer, role) in projections {
            let factor = |part| {
                let id = ParamId::new(layer, role, part);
                let now = model.get(id)?.to_vec();
                let Some(change) = changes.get(id) else { return Some(now) };
                Some(now.iter().zip(change).map(|(value, change)| value + change).collect())
            };
            if let (Some(a), Some(b)) = (factor(Part::LoraA), factor(Part::LoraB)) {
                let weight = contribution.weight;
                self.factors.entry((layer, role)).or_default().push(LowRank { weight, a, b });
            }
        }
    }

    /// The mean with the adapters' changes in place of those of their factors.
    pub(crate) fn close(
        self,
        mean: &Mean,
        (model, layout): (&ParamValues, &Layout),
    ) -> (Mean, AdapterReport) {
        let mut changes = mean.tensors();
        let (mut lost, mut all) = (0.0, 0.0);
        let in_order = self.in_order;
        for ((layer, role), factors) in self.factors {
            let (a, b) =
                (ParamId::new(layer, role, Part::LoraA), ParamId::new(layer, role, Part::LoraB));
            let (Some(old_a), Some(old_b)) = (model.get(a), model.get(b)) else { continue };
            let Some(rank) = layout.get(a).and_then(|shape| shape.dims().first().copied()) else {
                continue;
            };
            // One client's adapter is its own mean.
            if factors.len() < 2 && !in_order {
                continue;
            }
            let (factors, left_out, whole) = nearest_mean(&factors, rank);
            lost += left_out;
            all += whole;
            for (id, new, old) in [(a, factors.a, old_a), (b, factors.b, old_b)] {
                changes.insert(id, new.iter().zip(old).map(|(new, old)| new - old).collect());
            }
        }
        let share = if all > 0.0 { (lost / all).sqrt() } else { 0.0 };
        (changes.into_iter().collect(), AdapterReport { mean: AdapterMean::Exact, lost: share })
    }
}
