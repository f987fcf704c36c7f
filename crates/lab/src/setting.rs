//! The settings of the laboratory, and the checks that keep them meaningful.

use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::network::{Network, Sizes};
use crate::phi::Phi;
use crate::world::World;

/// Everything that decides the numbers of `fedra lab frozen`, but for the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Sizes of tokens, keys and outputs.
    pub sizes: Sizes,
    /// The feature map of teachers and students.
    pub phi: Phi,
    /// Clients.
    pub clients: usize,
    /// Samples of each.
    pub samples: usize,
    /// Standard deviation of the noise on targets, whose clean mean square is 1.
    pub noise: f64,
    /// `lam`.
    pub ridge: f64,
    /// Rounds of every run.
    pub rounds: u32,
    /// Size of a gradient step, `eta`.
    pub rate: f64,
    /// Local steps where they are not swept, `E`.
    pub local_steps: u32,
    /// Warm-up rounds where they are not swept, `W`.
    pub warmup: u32,
    /// Clients in a round where not all take part.
    pub cohort: usize,
    /// Values of `h_kernel = h_value`, rising.
    pub heterogeneities: Vec<f64>,
    /// Local steps to sweep, rising; the sweep runs at the first and the last heterogeneity.
    pub local_step_sweep: Vec<u32>,
    /// Warm-ups to sweep, rising.
    pub warmup_sweep: Vec<u32>,
    /// Worlds drawn for each curve.
    pub seeds: u32,
    /// Worlds drawn for the sweep over warm-ups with heterogeneity, where everyone takes part: the U
    /// shape is the claim, so it gets more of them. At least `seeds`, at most 11.
    pub sweep_seeds: u32,
}

impl Setting {
    /// The default: d 12, key width 6, 12 tokens, 2 outputs, 16 clients of 100 samples, 200 rounds.
    pub fn standard() -> Self {
        Self {
            sizes: Sizes { width: 12, key_width: 6, tokens: 12, outputs: 2 },
            phi: Phi::Identity,
            clients: 16,
            samples: 100,
            noise: 0.1,
            ridge: 0.05,
            rounds: 200,
            rate: 0.1,
            local_steps: 5,
            warmup: 60,
            cohort: 4,
            heterogeneities: vec![0.0, 0.25, 0.5, 1.0],
            local_step_sweep: vec![1, 2, 5, 12],
            warmup_sweep: vec![0, 5, 10, 20, 40, 60, 80, 100, 120, 140, 160, 180, 190, 200],
            seeds: 2,
            sweep_seeds: 5,
        }
    }

    /// A look in a few seconds: less data, fewer rounds. Shapes may differ from the standard setting's.
    pub fn quick() -> Self {
        Self {
            clients: 8,
            samples: 25,
            cohort: 2,
            rounds: 40,
            warmup: 15,
            heterogeneities: vec![0.0, 0.5, 1.0],
            local_step_sweep: vec![1, 5, 10],
            warmup_sweep: vec![0, 5, 10, 15, 20, 30, 35, 40],
            ..Self::standard()
        }
    }

    /// The student.
    pub fn network(&self) -> Network {
        Network { attention: Attention::Linear(self.phi), mlp: 0, ridge: self.ridge }
    }

    /// The data at a heterogeneity.
    pub fn world(&self, heterogeneity: f64) -> World {
        World {
            sizes: self.sizes,
            teacher: Attention::Linear(self.phi),
            clients: self.clients,
            samples: self.samples,
            kernel_shift: heterogeneity,
            value_shift: heterogeneity,
            noise: self.noise,
        }
    }
}
