//! A second stage: from some round on, one part of the model is treated differently.
//!
//! The moment has one representation, [`Stage::treated`]: the part that is in its second stage in a
//! round. When the round is known beforehand it follows from the recipe alone. When evidence decides,
//! the round is found out on the way and belongs to the server's state: it is in every checkpoint.
//!
//! ```text
//! gather -> drift of query and key -> note_drift: is it time?  -> state: since round t + 1
//! turn (before each round): what enters its second stage now loses moments, variates, residuals
//! ```

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{Layout, Round, Rule};
use serde::{Deserialize, Serialize};

use crate::aggregate::drift::{DriftReport, RoleDrift, RoleGroup};
use crate::error::{EngineError, refuse};
use crate::number::Exact;

/// What a second stage is about, when it begins and what it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// When it begins.
    pub begins: Begins,
    /// The part it is about.
    pub part: Rule,
    /// What becomes of that part.
    pub treatment: Treatment,
}

/// When a second stage begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begins {
    /// In this round.
    At(Round),
    /// After this share of the rounds; to be turned into a round before anything runs.
    Share(f64),
    /// When the evidence about query and key says so.
    Evidence(Criteria),
    /// Block by block, each on the evidence about its own query and key; what lies in no block
    /// follows the last block.
    ByBlock(Criteria),
}

/// When evidence suffices: either criterion is enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criteria {
    /// The norm of the mean change has changed by less than this share of itself from one round to
    /// the next ...
    pub plateau: f64,
    /// ... so many times in a row.
    pub patience: u32,
    /// The disagreement of the clients is above this.
    pub disagreement: f64,
}

/// What becomes of a part in its second stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// It learns no more.
    Frozen,
    /// It learns on, at its rate times this.
    Damped(f32),
    /// It learns on; whatever optimisers remember, of it and of all else, is forgotten once.
    Reset,
}

/// How far the second stage has come; absent rounds have not come yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageReport {
    /// The first round in which the whole part is in its second stage.
    pub since: Option<Round>,
    /// The same for single blocks, where blocks decide for themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<u16, Round>,
}

/// What the server has to remember of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StageState {
    pub(crate) since: StageReport,
    whole: Trend,
    blocks: BTreeMap<u16, Trend>,
}

/// The last norm of a mean change, and how many times in a row it has hardly changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Trend {
    last: Option<Exact>,
    calm: u32,
}

impl Stage {
    /// Whether what clients measured decides when it begins.
    pub(crate) const fn needs_evidence(&self) -> bool {
        matches!(self.begins, Begins::Evidence(_) | Begins::ByBlock(_))
    }

    /// Refuses a stage that leaves nothing to learn, or that is about nothing that learns.
    pub(crate) fn check(&self, learns: &Rule, layout: &Layout) -> Result<(), EngineError> {
        self.part.check(layout)?;
        let key = "method.freeze";
        if let Begins::Share(share) = self.begins {
            let expected = "a number of rounds: Method::over converts a share";
            return refuse("method.warmup", share, expected);
        }
        if learns.needs_choice() {
            return Ok(());
        }
        let (learns, part) = (learns.select(layout)?, self.part.select(layout)?);
        if self.treatment != Treatment::Reset && (&learns & &part).is_empty() {
            let expected = "a part that learns (with LoRA, add its roles to model.lora.roles)";
            return refuse(key, "a part without learning parameters", expected);
        }
        if self.treatment == Treatment::Frozen && (learns - part).is_empty() {
            return refuse(key, "everything that learns", "at least one part that still learns");
        }
        Ok(())
    }

    /// The part that is in its second stage in a round.
    pub(crate) fn treated(&self, state: &StageState, round: Round) -> Rule {
        let StageReport { since, blocks } = &state.since;
        let begun = |at: &Round| *at <= round;
        let whole = match self.begins {
            Begins::At(at) => begun(&at),
            Begins::Share(_) => false,
            Begins::Evidence(_) | Begins::ByBlock(_) => since.as_ref().is_some_and(begun),
        };
        if whole {
            return self.part.clone();
        }
        let begun: BTreeSet<u16> =
            blocks.iter().filter(|(_, at)| begun(at)).map(|(block, _)| *block).collect();
        if begun.is_empty() { Rule::Nothing } else { self.part.clone() & Rule::Blocks(begun) }
    }
}

impl Criteria {
    /// Takes note of a round and says whether it suffices.
    fn met(self, trend: &mut Trend, seen: &RoleDrift) -> bool {
        let now = seen.mean_norm;
        let is_calm =
            trend.last.is_some_and(|Exact(last)| (now - last).abs() < self.plateau * last.abs());
        trend.calm = if is_calm { trend.calm + 1 } else { 0 };
        trend.last = Some(Exact(now));
        trend.calm >= self.patience || seen.disagreement > self.disagreement
    }
}

impl StageState {
    /// Looks at the evidence of a round; what has seen enough begins its second stage in the next.
    pub(crate) fn note_drift(&mut self, begins: Begins, round: Round, drift: &DriftReport) {
        if self.since.since.is_some() {
            return;
        }
        match begins {
            Begins::At(_) | Begins::Share(_) => {}
            Begins::Evidence(criteria) => {
                let seen = drift.roles.get(&RoleGroup::QueryKey);
                if seen.is_some_and(|seen| criteria.met(&mut self.whole, seen)) {
                    self.since.since = Some(round.next());
                }
            }
            Begins::ByBlock(criteria) => {
                for (block, seen) in &drift.query_key_blocks {
                    let trend = self.blocks.entry(*block).or_default();
                    if criteria.met(trend, seen) {
                        self.since.blocks.entry(*block).or_insert(round.next());
                    }
                }
            }
        }
    }
}
