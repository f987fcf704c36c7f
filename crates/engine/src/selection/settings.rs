//! Which blocks learn, as a recipe says it.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Probe, Round, Rule};
use serde::{Deserialize, Serialize};

use super::order::{Criterion, Look};
use crate::error::{EngineError, refuse};
use crate::settings::settings;

settings! {
    /// Where the ranking of blocks comes from, and who takes how many.
    #[derive(Eq)]
    pub struct Selection {
        /// How many blocks a client takes, unless it has a number of its own.
        pub k: u16 = 1,
        /// What clients measure; absent, the server orders blocks by place, by turn or by lot.
        pub probe: Option<Probe> = None,
        /// What comes first.
        pub criterion: Criterion = Criterion::default(),
        /// How many of the blocks that a client takes are drawn by lot.
        pub explore: u16 = 0,
        /// Clients measure in every so many rounds; in between, the last scores count.
        pub profile_every: u32 = 1,
        /// Clients stop measuring after so many measurements, and the choice stands still.
        pub settle: Option<u32> = None,
        /// Most examples that a client looks at to measure.
        pub profile_examples: u32 = 32,
        /// How many blocks these clients take, by name.
        pub counts: BTreeMap<String, u16> = BTreeMap::new(),
        /// Memory of a client from which the number of blocks is still to be derived.
        pub budget: Option<ByteCount> = None,
    }
}

impl Selection {
    /// Refuses what makes no sense for any model.
    pub(crate) fn check(&self, rule: &Rule) -> Result<(), EngineError> {
        if self.profile_every == 0 {
            return refuse("method.profile_every", 0, "at least 1");
        }
        if self.settle == Some(0) {
            return refuse("method.settle", 0, "at least 1 measurement");
        }
        if self.profile_examples == 0 {
            return refuse("method.profile_examples", 0, "at least 1");
        }
        if !rule.needs_choice() {
            return Ok(());
        }
        let all = self.counts.values().copied().chain(self.budget.is_none().then_some(self.k));
        for count in all {
            if count == 0 {
                return refuse("method.k", 0, "at least 1 block");
            }
            if self.explore >= count {
                let found = format!("{} of {count} blocks", self.explore);
                return refuse("method.explore", found, "less than k");
            }
        }
        Ok(())
    }

    /// Whether clients are to measure in a round, after so many measurements before it.
    pub fn is_due(&self, round: Round, measurements: u32) -> bool {
        let open = self.settle.is_none_or(|settle| measurements < settle);
        open && (measurements == 0 || round.0.is_multiple_of(self.profile_every.max(1)))
    }

    /// Rounds in which clients measure, of so many in each of which somebody takes part.
    pub fn due_within(&self, rounds: u32) -> u32 {
        let due = rounds.div_ceil(self.profile_every.max(1));
        self.settle.map_or(due, |settle| due.min(settle))
    }

    /// Whether a choice ranks by the mean of all measurements so far. A change since earlier ones
    /// is no quantity to average: there the last measurement stands.
    pub(crate) fn averages(&self) -> bool {
        self.settle.is_some() && self.criterion.looks() != Some(Look::Change)
    }

    /// Refuses what makes no sense for a model of so many blocks and clients of these names.
    pub(crate) fn check_model(
        &self,
        rule: &Rule,
        blocks: u16,
        names: &BTreeSet<&str>,
    ) -> Result<(), EngineError> {
        if !rule.needs_choice() {
            return Ok(());
        }
        let key = "method.k";
        if let Some(budget) = self.budget {
            let found = format!("{{ memory = \"{budget}\" }}");
            return refuse(key, found, "a budget from which K was computed");
        }
        if let Criterion::Named(named) = &self.criterion
            && let Some(block) = named.iter().find(|block| **block >= blocks)
        {
            let found = format!("block {block} of {blocks} blocks");
            let expected = "blocks of the model, of which the first is 0";
            return refuse("method.selector", found, expected);
        }
        for count in self.counts.values().copied().chain([self.k]) {
            if count > blocks {
                let several = if blocks == 1 { "" } else { "s" };
                let found = format!("{count} of {blocks} block{several}");
                return refuse(key, found, "no more blocks than the model has");
            }
        }
        match self.counts.keys().find(|name| !names.contains(name.as_str())) {
            None => Ok(()),
            Some(stranger) => refuse(
                key,
                format!("a number for {stranger:?}"),
                "`default` or the name of a client; `fedra data` lists them",
            ),
        }
    }
}

/// Whose evidence a selection rule looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Masks {
    /// The mean of all: every client trains the same part.
    #[default]
    Consensus,
    /// Its own: each client trains the part it chose.
    PerClient,
}
