//! `FedBABU`: the body learns under a fixed, random head; heads are fitted only to be scored.
//!
//! Oh, Kim, Yun: FedBABU: Toward Enhanced Representation for Federated Image Classification. ICLR
//! 2022, arXiv 2106.06042, algorithm 1.
//!
//! ```text
//! client  body <- body - rate g,   the head stays as it was initialised
//! server  body as FedAvg
//! scores  each client first trains the head (or all) on its own examples, on a copy
//! ```

use fedra_plan::{Layer, Rule};

use crate::recipe::{Adapt, Recipe};
use crate::settings::settings;

settings! {
    /// The method's settings.
    pub struct FedBabu {
        /// Epochs of adaptation before a client scores the model; 0 scores it as it is.
        pub adapt_epochs: u32 = 1,
        /// Whether the adaptation trains the whole model or the head alone.
        pub adapt_all: bool = false,
    }
}

impl FedBabu {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let head = Rule::Layers([Layer::Head].into());
        let learns = if self.adapt_all { Rule::Everything } else { head.clone() };
        let adapt = Adapt { learns, epochs: self.adapt_epochs };
        Recipe {
            learns: base.learns.clone() - head,
            adapt: (self.adapt_epochs > 0).then_some(adapt),
            ..base
        }
    }
}
