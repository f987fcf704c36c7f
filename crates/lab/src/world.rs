//! Clients whose teachers differ: the data of the laboratory.
//!
//! ```text
//! Q_m = (Q_0 + h_kernel N_m) / sqrt(1 + h_kernel^2)     K_m alike, V_m alike with h_value
//! Y   = c Z(H; Q_m, K_m) V_m + noise                    c: clean targets have mean square 1
//! ```
//! The division keeps a teacher's size whatever the knobs say: heterogeneity changes what clients disagree
//! about, never how loud they are. Tokens are standard normal everywhere.

use fedra_seed::{Generator, Seed};
use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::client::Client;
use crate::matrix::Matrix;
use crate::network::{Network, Sizes, Weights};

/// What the data is drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// Sizes of tokens, keys and outputs.
    pub sizes: Sizes,
    /// How teachers attend.
    pub teacher: Attention,
    /// Clients.
    pub clients: usize,
    /// Samples of each.
    pub samples: usize,
    /// How far the clients' teacher kernels lie apart.
    pub kernel_shift: f64,
    /// How far the clients' teacher values lie apart.
    pub value_shift: f64,
    /// Standard deviation of the noise on targets.
    pub noise: f64,
}

impl World {
    /// Draws the clients, equally weighted.
    pub fn clients(&self, seed: Seed) -> Vec<Client> {
        let Sizes { width, key_width, tokens, outputs } = self.sizes;
        let teacher = Network { attention: self.teacher, mlp: 0, ridge: 0.0 };
        let shared = seed.of("teacher");
        let differing = |name: &str, columns: usize, shift: f64, number: u64| {
            let draw = |mut generator: Generator| {
                Matrix::normal(width, columns, 1.0 / (width as f64).sqrt(), &mut generator)
            };
            let mut weight = draw(shared.of(name).generator());
            weight.add_scaled(shift, &draw(seed.with(number).of(name).generator()));
            weight.scaled(1.0 / (1.0 + shift * shift).sqrt())
        };
        let mut clients: Vec<Client> = (0..self.clients as u64)
            .map(|number| {
                let weights = Weights {
                    query: differing("query", key_width, self.kernel_shift, number),
                    key: differing("key", key_width, self.kernel_shift, number),
                    value: differing("value", outputs, self.value_shift, number),
                    rest: Vec::new(),
                };
                let mut draw = seed.with(number).of("tokens").generator();
                let mut client = Client {
                    tokens: Matrix::normal(self.samples * tokens, width, 1.0, &mut draw),
                    targets: Matrix::zeros(0, 0),
                    length: tokens,
                    weight: 1.0 / self.clients as f64,
                };
                client.targets = teacher.features(&weights, &client).times(&weights.value);
                client
            })
            .collect();
        let squares: f64 = clients.iter().map(|client| client.targets.dot(&client.targets)).sum();
        let count: usize = clients.iter().map(|client| client.targets.values().len()).sum();
        let loudness = (squares / count as f64).sqrt();
        for (number, client) in (0..).zip(&mut clients) {
            let mut draw = seed.with(number).of("noise").generator();
            for target in client.targets.values_mut() {
                *target = *target / loudness + self.noise * draw.normal();
            }
        }
        clients
    }
}
