//! What clients tell of signal and noise in their private steps, as one mean over those who arrived.

use std::collections::BTreeMap;

use fedra_plan::{Layer, Scope};
use fedra_wire::ClientId;

use crate::privacy::CLIP_NORMS;
use crate::privacy::private_steps::{LayerNoise, StepNoise};

/// The reports of a round. They are kept by client, so that their sums do not depend on who came first.
#[derive(Default)]
pub(crate) struct NoiseMean(BTreeMap<ClientId, StepNoise>);

impl NoiseMean {
    /// Takes what a client told; numbers that are none, and layers that it was not asked to train, are as
    /// if it had told nothing of them.
    pub(crate) fn add(&mut self, client: ClientId, (mut told, asked): (StepNoise, &Scope)) {
        let is_number = |value: f64| value.is_finite() && (0.0..1e30).contains(&value);
        let asked: Vec<Layer> = asked.iter().map(|id| id.layer).collect();
        told.layers.retain(|one| {
            is_number(one.released) && is_number(one.noise) && asked.contains(&one.layer)
        });
        told.clip = told.clip.filter(|clip| CLIP_NORMS.contains(clip));
        self.0.insert(client, told);
    }

    /// Means layer by layer, and the geometric mean of norms.
    pub(crate) fn close(&self) -> StepNoise {
        let mut layers: BTreeMap<Layer, (LayerNoise, f64)> = BTreeMap::new();
        for one in self.0.values().flat_map(|told| &told.layers) {
            let none = LayerNoise { layer: one.layer, numbers: 0, released: 0.0, noise: 0.0 };
            let (sum, count) = layers.entry(one.layer).or_insert((none, 0.0));
            sum.numbers = sum.numbers.max(one.numbers);
            sum.released += one.released;
            sum.noise += one.noise;
            *count += 1.0;
        }
        let mean = |(sum, count): (LayerNoise, f64)| LayerNoise {
            released: sum.released / count,
            noise: sum.noise / count,
            ..sum
        };
        let logs: Vec<f64> = self.0.values().filter_map(|told| Some(told.clip?.ln())).collect();
        let clip = (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp());
        StepNoise { layers: layers.into_values().map(mean).collect(), clip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{ParamId, Part, Role};

    #[test]
    fn means_are_over_those_who_told_something_that_is_a_number() {
        let layer =
            |released| LayerNoise { layer: Layer::Block(0), numbers: 4, released, noise: 1.0 };
        let told = |released, clip| StepNoise { layers: vec![layer(released)], clip: Some(clip) };
        let id = ParamId { layer: Layer::Block(0), role: Role::Query, part: Part::Weight };
        let asked: Scope = [id].into_iter().collect();
        let mut mean = NoiseMean::default();
        mean.add(ClientId(1), (told(3.0, 4.0), &asked));
        mean.add(ClientId(0), (told(5.0, 1.0), &asked));
        mean.add(ClientId(2), (told(f64::NAN, -1.0), &asked));
        let stranger = LayerNoise { layer: Layer::Head, ..layer(1.0) };
        mean.add(ClientId(3), (StepNoise { layers: vec![stranger], clip: None }, &asked));
        let found = mean.close();
        assert_eq!((found.layers, found.clip), (vec![layer(4.0)], Some(2.0)));
    }
}
