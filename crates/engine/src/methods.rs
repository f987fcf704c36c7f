//! The methods, one file each, with its paper on top.
//!
//! A method is its settings; its recipe is the base recipe with some choices replaced. Whatever a
//! method does not replace (sampling, encoding, the part that learns) is the experiment's to choose.

#![expect(clippy::doc_markdown, reason = "citations name people and venues")]

mod base_method;
mod centralised;
mod fedadagrad;
mod fedadam;
mod fedavg;
mod fedavgm;
mod fedbabu;
mod feddyn;
mod fedfrozen;
mod fednova;
mod fedper;
mod fedprox;
mod fedyogi;
mod local_only;
mod safl;
mod scaffold;
mod warmup;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::EngineError;
use crate::recipe::Recipe;

pub use base_method::BaseMethod;
pub use centralised::Centralised;
pub use fedadagrad::FedAdagrad;
pub use fedadam::FedAdam;
pub use fedavg::FedAvg;
pub use fedavgm::FedAvgM;
pub use fedbabu::FedBabu;
pub use feddyn::FedDyn;
pub use fedfrozen::{FedFrozen, Freeze, Stage2};
pub use fednova::FedNova;
pub use fedper::FedPer;
pub use fedprox::FedProx;
pub use fedyogi::FedYogi;
pub use local_only::LocalOnly;
pub use safl::{BlockCount, BlockSelector, Embeddings, Pruning, Safl};
pub use scaffold::Scaffold;
pub use warmup::Warmup;

/// A method and its settings, as `[method]` in an experiment file: `{ name = "fedprox", mu = 0.1 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name")]
pub enum Method {
    /// See [`Centralised`].
    #[serde(rename = "centralised")]
    Centralised(Centralised),
    /// See [`LocalOnly`].
    #[serde(rename = "local-only")]
    LocalOnly(LocalOnly),
    /// See [`FedAvg`].
    #[serde(rename = "fedavg")]
    FedAvg(FedAvg),
    /// See [`FedProx`].
    #[serde(rename = "fedprox")]
    FedProx(FedProx),
    /// See [`FedAvgM`].
    #[serde(rename = "fedavgm")]
    FedAvgM(FedAvgM),
    /// See [`FedAdam`].
    #[serde(rename = "fedadam")]
    FedAdam(FedAdam),
    /// See [`FedYogi`].
    #[serde(rename = "fedyogi")]
    FedYogi(FedYogi),
    /// See [`FedAdagrad`].
    #[serde(rename = "fedadagrad")]
    FedAdagrad(FedAdagrad),
    /// See [`Scaffold`].
    #[serde(rename = "scaffold")]
    Scaffold(Scaffold),
    /// See [`FedNova`].
    #[serde(rename = "fednova")]
    FedNova(FedNova),
    /// See [`FedDyn`].
    #[serde(rename = "feddyn")]
    FedDyn(FedDyn),
    /// See [`FedPer`].
    #[serde(rename = "fedper")]
    FedPer(FedPer),
    /// See [`FedBabu`].
    #[serde(rename = "fedbabu")]
    FedBabu(FedBabu),
    /// See [`FedFrozen`].
    #[serde(rename = "fedfrozen")]
    FedFrozen(FedFrozen),
    /// See [`Safl`].
    #[serde(rename = "safl")]
    Safl(Safl),
}

impl Method {
    /// The names there are.
    pub const NAMES: [&'static str; 15] = [
        "centralised",
        "local-only",
        "fedavg",
        "fedprox",
        "fedavgm",
        "fedadam",
        "fedyogi",
        "fedadagrad",
        "scaffold",
        "fednova",
        "feddyn",
        "fedper",
        "fedbabu",
        "fedfrozen",
        "safl",
    ];

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

    /// The same with the reader's own error, and unchecked; `None` if no method has the name.
    pub fn read<'de, D: Deserializer<'de>>(
        name: &str,
        settings: D,
    ) -> Option<Result<Self, D::Error>> {
        Some(match name {
            "centralised" => Deserialize::deserialize(settings).map(Self::Centralised),
            "local-only" => Deserialize::deserialize(settings).map(Self::LocalOnly),
            "fedavg" => Deserialize::deserialize(settings).map(Self::FedAvg),
            "fedprox" => Deserialize::deserialize(settings).map(Self::FedProx),
            "fedavgm" => Deserialize::deserialize(settings).map(Self::FedAvgM),
            "fedadam" => Deserialize::deserialize(settings).map(Self::FedAdam),
            "fedyogi" => Deserialize::deserialize(settings).map(Self::FedYogi),
            "fedadagrad" => Deserialize::deserialize(settings).map(Self::FedAdagrad),
            "scaffold" => Deserialize::deserialize(settings).map(Self::Scaffold),
            "fednova" => Deserialize::deserialize(settings).map(Self::FedNova),
            "feddyn" => Deserialize::deserialize(settings).map(Self::FedDyn),
            "fedper" => Deserialize::deserialize(settings).map(Self::FedPer),
            "fedbabu" => Deserialize::deserialize(settings).map(Self::FedBabu),
            "fedfrozen" => Deserialize::deserialize(settings).map(Self::FedFrozen),
            "safl" => Deserialize::deserialize(settings).map(Self::Safl),
            _ => return None,
        })
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
            return base.method_mut().safl_mut();
        }
        if let Self::Safl(safl) = self { Some(safl) } else { None }
    }

    /// The same method for so many rounds: whatever is a share of them becomes a number.
    pub fn over(self, rounds: u32) -> Self {
        if let Self::FedFrozen(method) = self {
            return Self::FedFrozen(method.over(rounds));
        }
        if let Self::Safl(method) = self {
            return Self::Safl(method.over(rounds));
        }
        self
    }

    /// The name in an experiment file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Centralised(_) => "centralised",
            Self::LocalOnly(_) => "local-only",
            Self::FedAvg(_) => "fedavg",
            Self::FedProx(_) => "fedprox",
            Self::FedAvgM(_) => "fedavgm",
            Self::FedAdam(_) => "fedadam",
            Self::FedYogi(_) => "fedyogi",
            Self::FedAdagrad(_) => "fedadagrad",
            Self::Scaffold(_) => "scaffold",
            Self::FedNova(_) => "fednova",
            Self::FedDyn(_) => "feddyn",
            Self::FedPer(_) => "fedper",
            Self::FedBabu(_) => "fedbabu",
            Self::FedFrozen(_) => "fedfrozen",
            Self::Safl(_) => "safl",
        }
    }

    /// The base recipe with this method's choices.
    pub fn recipe(self, base: Recipe) -> Recipe {
        let base = Recipe { method: self.name().to_owned(), ..base };
        match self {
            Self::Centralised(Centralised {}) => Centralised::recipe(base),
            Self::LocalOnly(LocalOnly {}) => LocalOnly::recipe(base),
            Self::FedAvg(method) => method.recipe(base),
            Self::FedProx(method) => method.recipe(base),
            Self::FedAvgM(method) => method.recipe(base),
            Self::FedAdam(method) => method.recipe(base),
            Self::FedYogi(method) => method.recipe(base),
            Self::FedAdagrad(method) => method.recipe(base),
            Self::Scaffold(method) => method.recipe(base),
            Self::FedNova(FedNova {}) => FedNova::recipe(base),
            Self::FedDyn(method) => method.recipe(base),
            Self::FedPer(FedPer {}) => FedPer::recipe(base),
            Self::FedBabu(method) => method.recipe(base),
            Self::FedFrozen(method) => method.recipe(base),
            Self::Safl(method) => method.recipe(base),
        }
    }
}
