//! Which parameters changed when, so that a client downloads exactly what it lacks.
//!
//! A client that is brought up to date receives all that it lacks, so one number says what it holds:
//! how many rounds were complete at that moment. A million clients therefore cost a million numbers,
//! and a client that sat out some rounds lacks whatever any of them changed and nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::ParamId;
use crate::round::Round;
use crate::scope::Scope;

/// For each parameter, the number of rounds that were complete when it last changed; those that
/// never changed are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Versions {
    newest: BTreeMap<ParamId, Round>,
}

/// What a client holds of the shared model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// Nothing yet.
    Nothing,
    /// The model as it was when this many rounds were complete.
    After(Round),
}

impl Versions {
    /// Notes that a round changed these parameters.
    pub fn change(&mut self, scope: &Scope, round: Round) {
        self.newest.extend(scope.iter().map(|id| (id, round.next())));
    }

    /// Whether a parameter has changed since this many rounds were complete.
    pub fn changed_after(&self, id: ParamId, rounds: Round) -> bool {
        self.newest.get(&id).is_some_and(|newest| *newest > rounds)
    }

    /// Whether a parameter is still what it was before the first round.
    pub fn is_initial(&self, id: ParamId) -> bool {
        !self.newest.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::id;

    #[test]
    fn a_parameter_is_stale_from_the_round_that_changed_it_until_it_is_fetched() {
        let (query, key) = (id("block.0.query.weight"), id("block.0.key.weight"));
        let mut versions = Versions::default();
        assert!(versions.is_initial(query));
        assert!(!versions.changed_after(query, Round(0)));
        versions.change(&Scope::from_iter([query]), Round(2));
        assert!(versions.changed_after(query, Round(2)));
        assert!(!versions.changed_after(query, Round(3)));
        assert!(versions.is_initial(key) && !versions.is_initial(query));
    }
}
