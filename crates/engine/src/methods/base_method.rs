//! One method on top of another: `base = { name = "fedadam", rate = 0.01 }`.
//!
//! The method beneath makes its recipe first and the one on top restricts it. They combine wherever
//! they replace different choices; the one on top says what it cannot stand on.

use serde::{Deserialize, Serialize};

use super::{FedAvg, Method};
use crate::error::EngineError;
use crate::recipe::Recipe;

/// The method beneath; `FedAvg` unless given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BaseMethod(Box<Method>);

impl Default for BaseMethod {
    fn default() -> Self {
        Self(Box::new(Method::FedAvg(FedAvg::default())))
    }
}

impl BaseMethod {
    /// This method beneath.
    pub fn new(method: Method) -> Self {
        Self(Box::new(method))
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.0
    }

    /// The method, to be filled in.
    pub(super) fn method_mut(&mut self) -> &mut Method {
        &mut self.0
    }

    /// The recipe of the method beneath, under the name of the one on top.
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let method = base.method.clone();
        Recipe { method, ..self.0.recipe(base) }
    }

    /// The same with shares of the rounds turned into rounds.
    pub(super) fn over(self, rounds: u32) -> Self {
        Self(Box::new(self.0.over(rounds)))
    }

    /// Refuses methods that the one on top cannot stand on, and settings the method refuses itself.
    pub(super) fn check(&self, unfit: &[(&str, &'static str)]) -> Result<(), EngineError> {
        let name = self.0.name();
        match unfit.iter().find(|(found, _)| *found == name) {
            Some((found, expected)) => Err(EngineError::Setting {
                key: "method.base",
                found: format!("\"{found}\""),
                expected,
            }),
            None => self.0.check(),
        }
    }
}
