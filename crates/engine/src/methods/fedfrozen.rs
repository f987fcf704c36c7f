//! `FedFrozen`: everything learns for W rounds, then query and key are frozen and the rest continues.
//!
//! FedFrozen, arXiv 2605.06446: two-stage federated training of Transformers. With clients that
//! differ, the attention kernel (query and key) is where drift does harm; the longer it learns, the
//! smaller its bias and the larger its drift.
//!
//! ```text
//! stage 1   rounds 0 .. W     the base method trains everything and aggregates everything
//! stage 2   rounds W ..       query and key keep their bits: no gradient, no byte, no moment
//!                             loose      all the rest learns
//!                             attention  value, output, the blocks' norms and the head learn
//!                             strict     value and the head learn
//! W         a number or a share of rounds; or, found on the way, the first round after
//!             | |d_t| - |d_t-1| |  <  plateau |d_t-1|     patience times in a row, or
//!             1 - |d_t| / mean_k |d_tk|  >  disagreement  d: the change of query and key
//!           adaptive looks at all blocks together, per_block at each alone
//! ```
//!
//! Controls: `freeze` takes V, a random set of the same size, or nothing but what optimisers
//! remember; `qk_rate` lowers the rate of query and key instead of freezing them. Whatever is
//! frozen, it is the evidence about query and key that decides when.

use std::fmt::Debug;

use fedra_plan::{Layer, Role, Round, Rule};
use serde::{Deserialize, Serialize};

use super::beneath::Beneath;
use super::warmup::Warmup;
use crate::error::{EngineError, refuse};
use crate::recipe::Recipe;
use crate::recipe::stage::{Begins, Criteria, Stage, Treatment};

/// The method's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FedFrozen<Base> {
    /// W: rounds, a share of the rounds, `adaptive` or `per_block`.
    pub warmup: Warmup,
    /// What learns in stage 2.
    pub stage2: Stage2,
    /// What is frozen.
    pub freeze: Freeze,
    /// Lowers the rate of query and key to this share in stage 2 instead of freezing them.
    pub qk_rate: Option<f32>,
    /// Which random set `freeze = "random"` takes.
    pub draw: Option<u64>,
    /// For evidence: how little the norm of the change may change; 0.1 unless given.
    pub plateau: Option<f64>,
    /// For evidence: how many times in a row; 2 unless given.
    pub patience: Option<u32>,
    /// For evidence: the disagreement that is too much; 0.5 unless given.
    pub disagreement: Option<f64>,
    /// The method beneath.
    pub base: Box<Base>,
}

/// What learns in stage 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage2 {
    /// All but query and key.
    #[default]
    Loose,
    /// Value, output, the blocks' norms and the head.
    Attention,
    /// Value and the head.
    Strict,
}

/// What is frozen in stage 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freeze {
    /// Query and key, adapters on them included.
    #[default]
    Qk,
    /// Value instead.
    V,
    /// A random set of the blocks' other parameters, as large as query and key.
    Random,
    /// Nothing; what optimisers remember is forgotten once.
    None,
}

impl<Base: Beneath + Clone> FedFrozen<Base> {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let trainable = base.learns.clone();
        let base = self.base.clone().recipe_beneath(base);

        let (begins, part) = (self.begins(), self.part(trainable));
        let treatment = match (self.freeze, self.qk_rate) {
            (Freeze::None, _) => Treatment::Reset,
            (Freeze::Qk | Freeze::V | Freeze::Random, Some(rate)) => Treatment::Damped(rate),
            (Freeze::Qk | Freeze::V | Freeze::Random, None) => Treatment::Frozen,
        };
        let stage = Stage { begins, part, treatment };
        // How far whole clients drift apart is nothing that client-level privacy covers, and a moment that
        // is fixed does not need it.
        let tells = base.client_privacy().is_none() || stage.needs_evidence();
        let mut evaluation = base.evaluation;
        evaluation.drift |= tells;
        Recipe { stage: Some(stage), evaluation, ..base }
    }

    /// What stage 2 is about.
    fn part(&self, trainable: Rule) -> Rule {
        let kernel = Rule::Roles([Role::Query, Role::Key].into());
        let head = Rule::Layers([Layer::Head].into());
        let norms = [Role::AttentionNorm, Role::MlpNorm, Role::FinalNorm];
        match (self.freeze, self.stage2) {
            (Freeze::Qk, Stage2::Loose) | (Freeze::None, _) => kernel,
            (Freeze::Qk, Stage2::Attention) => {
                let attention = Rule::Roles([Role::Value, Role::Output].into());
                Rule::Everything - (attention | Rule::Roles(norms.into()) | head)
            }
            (Freeze::Qk, Stage2::Strict) => {
                Rule::Everything - (Rule::Roles([Role::Value].into()) | head)
            }
            (Freeze::V, _) => Rule::Roles([Role::Value].into()),
            (Freeze::Random, _) => {
                let outside = Rule::Layers([Layer::Embedding, Layer::Head].into());
                Rule::Drawn {
                    from: Box::new(trainable.clone() - outside - kernel.clone()),
                    like: Box::new(trainable & kernel),
                    draw: self.draw.unwrap_or(0),
                }
            }
        }
    }

    fn begins(&self) -> Begins {
        let criteria = Criteria {
            plateau: self.plateau.unwrap_or(0.1),
            patience: self.patience.unwrap_or(2),
            disagreement: self.disagreement.unwrap_or(0.5),
        };
        match self.warmup {
            Warmup::Rounds(rounds) => Begins::At(Round(rounds)),
            Warmup::Share(share) => Begins::Share(share),
            Warmup::Adaptive => Begins::Evidence(criteria),
            Warmup::PerBlock => Begins::ByBlock(criteria),
        }
    }

    /// Refuses settings that contradict each other, and methods that cannot lie beneath.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.base.check_beneath(&[
            ("centralised", "a federated method: centralised training has no drift"),
            (
                "local-only",
                "a method that aggregates: without aggregation there is no drift to reduce",
            ),
            ("fedfrozen", "another method: query and key can be frozen only once"),
        ])?;
        // The words of a file are the names of the variants.
        let word = |found: &dyn Debug| format!("\"{found:?}\"").to_lowercase();
        if let Some(rate) = self.qk_rate {
            if !(rate > 0.0 && rate < 1.0) {
                let expected = "above 0 and below 1: 0 would freeze, 1 would change nothing";
                return refuse("method.qk_rate", rate, expected);
            }
            if self.freeze != Freeze::Qk || self.stage2 != Stage2::Loose {
                let expected = "no such key with freeze or stage2: query and key continue to learn, at a lower rate";
                return refuse("method.qk_rate", rate, expected);
            }
        }
        if self.freeze != Freeze::Qk && self.stage2 != Stage2::Loose {
            let expected = "no such key unless freeze = \"qk\"";
            return refuse("method.stage2", word(&self.stage2), expected);
        }
        if let Some(draw) = self.draw.filter(|_| self.freeze != Freeze::Random) {
            return refuse("method.draw", draw, "no such key unless freeze = \"random\"");
        }
        let by_block = self.warmup == Warmup::PerBlock;
        if by_block && [Freeze::Random, Freeze::None].contains(&self.freeze) {
            let expected = "qk or v: a random set or a reset cannot be applied per block";
            return refuse("method.freeze", word(&self.freeze), expected);
        }
        self.check_evidence()
    }

    fn check_evidence(&self) -> Result<(), EngineError> {
        let is_found_out = matches!(self.warmup, Warmup::Adaptive | Warmup::PerBlock);
        let given = [
            ("method.plateau", self.plateau.map(|found| found.to_string())),
            ("method.patience", self.patience.map(|found| found.to_string())),
            ("method.disagreement", self.disagreement.map(|found| found.to_string())),
        ];
        for (key, found) in given {
            if let Some(found) = found.filter(|_| !is_found_out) {
                let expected = "no such key unless warmup = \"adaptive\" or \"per_block\"";
                return refuse(key, found, expected);
            }
        }
        let share = |key, found: Option<f64>| match found {
            Some(found) if !(0.0..=1.0).contains(&found) => {
                refuse(key, found, "a share from 0 to 1")
            }
            Some(_) | None => Ok(()),
        };
        share("method.plateau", self.plateau)?;
        share("method.disagreement", self.disagreement)?;
        if self.patience == Some(0) {
            return refuse("method.patience", 0, "at least 1");
        }
        Ok(())
    }
}
