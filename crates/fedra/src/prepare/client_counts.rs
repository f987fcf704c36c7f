//! How much each client has: what a run plans, chooses its test sets and reports by.
//!
//! In one process it is counted on everybody's examples; over a network it is what sites tell when they
//! join, and all that the server ever learns about their rows beside the updates.

use fedra_client::{Shard, Shards};

/// All clients, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Each of them.
    pub clients: Vec<CountsOfClient>,
}

/// One client's examples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsOfClient {
    /// Its name.
    pub name: String,
    /// To learn from.
    pub train: u64,
    /// To decide on.
    pub validation: u64,
    /// To report on.
    pub test: u64,
    /// Tokens of those to learn from.
    pub tokens: u64,
}

impl ClientCounts {
    /// Counts.
    pub fn of(shards: &Shards) -> Self {
        let counts = |shard: &Shard| CountsOfClient {
            name: shard.name.clone(),
            train: shard.train.len() as u64,
            validation: shard.validation.len() as u64,
            test: shard.test.len() as u64,
            tokens: shard.train.encoded().iter().map(|example| example.ids.len() as u64).sum(),
        };
        Self { clients: shards.clients.iter().map(counts).collect() }
    }

    /// Training examples of all clients.
    pub fn examples(&self) -> u64 {
        self.clients.iter().map(|client| client.train).sum()
    }

    /// Tokens of a training example, in the mean over all clients.
    pub fn mean_tokens(&self) -> f64 {
        let tokens: u64 = self.clients.iter().map(|client| client.tokens).sum();
        tokens as f64 / self.examples().max(1) as f64
    }
}
