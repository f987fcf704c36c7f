//! The methods, a file for each paper, with its citation on top.
//!
//! A method is its settings; its recipe is the base recipe with some choices replaced. Whatever a
//! method does not replace (sampling, encoding, the part that learns) is the experiment's to choose.
//!
//! `base = { name = "fedadam", rate = 0.01 }` puts one method on top of another: the one beneath makes its
//! recipe first and the one on top restricts it. They combine wherever they replace different choices;
//! the one on top says what it cannot stand on.

#![expect(clippy::doc_markdown, reason = "citations name people and venues")]

mod beneath;
mod centralised;
mod fedavg;
mod fedavgm;
mod fedbabu;
mod feddyn;
mod fedfrozen;
mod fednova;
mod fedopt;
mod fedper;
mod fedprox;
mod local_only;
mod safl;
mod scaffold;
mod warmup;

use serde::{Deserialize, Deserializer, Serialize};

use self::beneath::Beneath;
use crate::error::{EngineError, refuse};
use crate::recipe::Recipe;

pub use centralised::Centralised;
pub use fedavg::FedAvg;
pub use fedavgm::FedAvgM;
pub use fedbabu::FedBabu;
pub use feddyn::FedDyn;
pub use fedfrozen::{Freeze, Stage2};
pub use fednova::FedNova;
pub use fedopt::{FedAdagrad, FedAdam, FedYogi};
pub use fedper::FedPer;
pub use fedprox::FedProx;
pub use local_only::LocalOnly;
pub use safl::{BlockCount, BlockSelector, Embeddings, Pruning};
pub use scaffold::Scaffold;
pub use warmup::Warmup;

/// `FedFrozen` on any method.
pub type FedFrozen = fedfrozen::FedFrozen<Method>;
/// SAFL on any method.
pub type Safl = safl::Safl<Method>;

/// Lists the methods: the type of their settings and their name in an experiment file.
macro_rules! methods {
    ($($method:ident = $name:literal,)+) => {
        /// A method and its settings, as `[method]` in an experiment file: `{ name = "fedprox", mu = 0.1 }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum Method {
            $(
                #[doc = concat!("See [`", stringify!($method), "`].")]
                #[serde(rename = $name)]
                $method($method),
            )+
        }

        impl Method {
            /// The names there are.
            pub const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];

            /// The name in an experiment file.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$method(_) => $name,)+
                }
            }

            /// The method with the given name and settings, with the reader's own error and unchecked; `None` if no
            /// method has the name.
            pub fn read<'de, D: Deserializer<'de>>(
                name: &str,
                settings: D,
            ) -> Option<Result<Self, D::Error>> {
                match name {
                    $($name => Some(Deserialize::deserialize(settings).map(Self::$method)),)+
                    _ => None,
                }
            }

            /// The base recipe with this method's choices.
            pub fn recipe(self, base: Recipe) -> Recipe {
                let base = Recipe { method: self.name().to_owned(), ..base };
                match self {
                    $(Self::$method(method) => method.recipe(base),)+
                }
            }
        }
    };
}

methods! {
    Centralised = "centralised",
    LocalOnly = "local-only",
    FedAvg = "fedavg",
    FedProx = "fedprox",
    FedAvgM = "fedavgm",
    FedAdam = "fedadam",
    FedYogi = "fedyogi",
    FedAdagrad = "fedadagrad",
    Scaffold = "scaffold",
    FedNova = "fednova",
    FedDyn = "feddyn",
    FedPer = "fedper",
    FedBabu = "fedbabu",
    FedFrozen = "fedfrozen",
    Safl = "safl",
}

impl Default for Method {
    fn default() -> Self {
        Self::FedAvg(FedAvg::default())
    }
}

impl Method {
    /// The method with the given name and settings; an empty map of settings takes the usual ones.
    pub fn by_name<'de, D: Deserializer<'de>>(
        name: &str,
        settings: D,
    ) -> Result<Self, EngineError> {
        let read = Self::read(name, settings).ok_or_else(|| EngineError::UnknownMethod {
            found: name.to_owned(),
            expected: Self::NAMES.join(", "),
        })?;
        let method = read.map_err(|error| EngineError::MethodSettings {
            method: name.to_owned(),
            reason: error.to_string(),
        })?;
        method.check()?;
        Ok(method)
    }

    /// Refuses settings that contradict each other, and a method beneath that makes no sense there.
    pub fn check(&self) -> Result<(), EngineError> {
        if let Self::FedFrozen(method) = self {
            return method.check();
        }
        if let Self::Safl(method) = self { method.check() } else { Ok(()) }
    }

    /// SAFL's settings, if it is this method or lies beneath it.
    pub fn safl_mut(&mut self) -> Option<&mut Safl> {
        if let Self::FedFrozen(FedFrozen { base, .. }) = self {
            return base.safl_mut();
        }
        if let Self::Safl(safl) = self { Some(safl) } else { None }
    }

    /// The same method for so many rounds: whatever is a share of them becomes a number.
    pub fn over(mut self, rounds: u32) -> Self {
        if let Self::FedFrozen(method) = &mut self {
            method.warmup = method.warmup.over(rounds);
        }
        self
    }
}

impl Beneath for Method {
    fn recipe_beneath(self, base: Recipe) -> Recipe {
        let method = base.method.clone();
        Recipe { method, ..self.recipe(base) }
    }

    fn check_beneath(&self, unfit: &[(&str, &'static str)]) -> Result<(), EngineError> {
        match unfit.iter().find(|(name, _)| *name == self.name()) {
            Some((name, expected)) => refuse("method.base", format!("\"{name}\""), expected),
            None => self.check(),
        }
    }
}
