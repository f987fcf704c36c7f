//! Stage 2 of a student with an MLP: attention has become a constant.
//!
//! With query and key frozen, the features `Z = A H` of a client never change again, so they are computed once and
//! stage 2 never attends. The value block is folded into the two blocks that read it, which leaves two narrow
//! products over the data forwards and two backwards:
//!
//! ```text
//! f     = Z (V O) + T D           T = tanh(Z (V U))
//! dO    = V^T (Z^T M)             M = (f - Y) / rows
//! dU    = V^T (Z^T N)             N = M D^T (1 - T^2)
//! dV    = (Z^T N) U^T + (Z^T M) O^T
//! dD    = T^T M
//! ```

use crate::federation::Federation;
use crate::matrix::Matrix;
use crate::network::{Weights, tanh};

/// A federation of students with an MLP whose kernel is frozen.
pub struct FrozenAttention<'f> {
    federation: &'f Federation,
    /// `Z` of each client.
    features: Vec<Matrix>,
}

impl<'f> FrozenAttention<'f> {
    /// Freezes the kernel of some weights; none where the student has no MLP (its stage 2 is
    /// [`crate::Frozen`], which needs second moments alone).
    pub fn at(federation: &'f Federation, weights: &Weights) -> Option<Self> {
        let features = |client| federation.network.features(weights, client);
        (weights.rest.len() == 3).then(|| Self {
            federation,
            features: federation.clients.iter().map(features).collect(),
        })
    }

    /// The weights after the rounds `first .. last`; none where the numbers left the finite ones.
    pub fn train(&self, start: Weights, first: u32, last: u32) -> Option<Weights> {
        // A mean of equal numbers may differ from them in the last bit; frozen is frozen.
        let (query, key) = (start.query.clone(), start.key.clone());
        let step = |local: &mut Weights, client| self.step(local, client);
        let mut path = self.federation.average(start, first..last, step);
        let end = path.pop().filter(|_| path.len() == (last - first) as usize)?;
        Some(Weights { query, key, ..end })
    }

    /// One local gradient step on everything but query and key.
    fn step(&self, weights: &mut Weights, client: usize) {
        let [straight, up, down] = weights.rest.as_slice() else { return };
        let (value, features) = (&weights.value, &self.features[client]);
        let hidden = features.times(&value.times(up)).map(tanh);
        let mut missed = features.times(&value.times(straight));
        missed.add_scaled(1.0, &hidden.times(down));
        missed.add_scaled(-1.0, &self.federation.clients[client].targets);
        let missed = missed.scaled(1.0 / features.rows() as f64);
        let mut inner = missed.times(&down.transposed());
        for (slot, tanh) in inner.values_mut().iter_mut().zip(hidden.values()) {
            *slot *= 1.0 - tanh * tanh;
        }
        let (inner, outer) =
            (features.transposed_times(&inner), features.transposed_times(&missed));
        let mut pull = inner.times(&up.transposed());
        pull.add_scaled(1.0, &outer.times(&straight.transposed()));
        let rest = [
            value.transposed_times(&outer),
            value.transposed_times(&inner),
            hidden.transposed_times(&missed),
        ];
        let (rate, ridge) = (self.federation.work.rate, self.federation.network.ridge);
        let descend = |block: &mut Matrix, mut gradient: Matrix| {
            gradient.add_scaled(ridge, block);
            block.add_scaled(-rate, &gradient);
        };
        descend(&mut weights.value, pull);
        for (block, gradient) in weights.rest.iter_mut().zip(rest) {
            descend(block, gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    use fedra_seed::Seed;

    use super::*;
    use crate::attention::Attention;
    use crate::federation::Work;
    use crate::network::{Blocks as _, Network, Sizes};
    use crate::world::World;

    #[test]
    fn stage_two_without_attending_is_stage_two_with_it() {
        let sizes = Sizes { width: 5, key_width: 3, tokens: 4, outputs: 2 };
        let data = World {
            sizes,
            teacher: Attention::Softmax,
            clients: 4,
            samples: 6,
            kernel_shift: 1.0,
            value_shift: 1.0,
            noise: 0.1,
        };
        let seed = Seed(7);
        let network = Network { attention: Attention::Softmax, mlp: 3, ridge: 0.02 };
        let work = Work { local_steps: 3, rate: 0.3, cohort: 2 };
        let federation = Federation { clients: data.clients(seed), network, work, seed };
        let start = network.start(sizes, seed.of("student"));
        let path = federation.train(start, 4);
        let slow = federation.average(path[4].clone(), 4..12, |local, client| {
            let gradient = network.gradient(local, &federation.clients[client]);
            let (query, key) = (local.query.clone(), local.key.clone());
            local.add_scaled(-work.rate, &gradient);
            (local.query, local.key) = (query, key);
        });
        let frozen = FrozenAttention::at(&federation, &path[4]).unwrap();
        let fast = frozen.train(path[4].clone(), 4, 12).unwrap();
        assert_eq!((&fast.query, &fast.key), (&path[4].query, &path[4].key), "frozen to the bit");
        for (fast, slow) in fast.parts().zip(slow[8].parts()) {
            assert!(fast.minus(slow).norm() < 1e-12 * slow.norm());
        }
        assert_ne!(fast.value, path[4].value, "stage 2 learns");
        let without = Network { mlp: 0, ..network }.start(sizes, seed);
        assert!(FrozenAttention::at(&federation, &without).is_none());
    }
}
