//! What is dropped in training, where, and by whose seeds.

use fedra_plan::Layer;
use fedra_seed::Seed;

/// What a tape drops.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// The chance of an activation to be dropped, from 0 to below 1; others are divided by the rest.
    pub rate: f32,
    /// A seed for each sequence.
    pub seeds: Vec<Seed>,
    /// Blocks, and the embedding in front of them, in which nothing is dropped because nothing there or
    /// before learns; `None` where the embedding learns.
    pub frozen: Option<u16>,
}

/// Where in a layer activations are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropoutPlace {
    /// Behind the embedding.
    Embedding = 0,
    /// Behind attention, before the residual is added.
    Attention = 1,
    /// Behind the MLP, before the residual is added.
    Mlp = 2,
    /// In front of a classifier.
    Classifier = 3,
}

impl Dropout {
    /// Whether anything is dropped in a layer.
    pub(crate) fn reaches(&self, layer: Layer) -> bool {
        match (self.frozen, layer) {
            (None, _) | (Some(_), Layer::Head) => true,
            (Some(_), Layer::Embedding) => false,
            (Some(frozen), Layer::Block(block)) => block >= frozen,
        }
    }
}
