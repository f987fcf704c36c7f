//! Who holds which version of which parameter, so that a client downloads exactly what it lacks.
//!
//! A version is the number of rounds that were complete when the parameter last changed. A client
//! that sat out some rounds lacks whatever any of them changed, and nothing else.

use std::collections::BTreeMap;

use fedra_plan::{Layout, ParamId, Round, Scope};
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::recipe::Start;

/// The server's versions and what it knows of the clients'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Versions {
    start: Start,
    /// Parameters that never changed are at version 0 and absent.
    newest: BTreeMap<ParamId, u32>,
    held: BTreeMap<ClientId, BTreeMap<ParamId, u32>>,
}

impl Versions {
    pub(crate) const fn new(start: Start) -> Self {
        Self { start, newest: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// The newest version of a parameter.
    fn newest(&self, id: ParamId) -> u32 {
        self.newest.get(&id).copied().unwrap_or(0)
    }

    /// What a client lacks. A personal parameter is lacking only until it came once.
    pub(crate) fn lacks(&self, client: ClientId, layout: &Layout, personal: &Scope) -> Scope {
        let held = self.held.get(&client);
        let lacking = |id: &ParamId| {
            let own = held.and_then(|held| held.get(id).copied()).or(match self.start {
                Start::Sent => None,
                Start::Shared => Some(0),
            });
            match own {
                None => true,
                Some(own) => own != self.newest(*id) && !personal.contains(*id),
            }
        };
        layout.ids().filter(lacking).collect()
    }

    /// Notes that a client now holds these parameters at their newest version.
    pub(crate) fn received(&mut self, client: ClientId, scope: &Scope) {
        let newest: Vec<(ParamId, u32)> = scope.iter().map(|id| (id, self.newest(id))).collect();
        self.held.entry(client).or_default().extend(newest);
    }

    /// Notes that a round changed these parameters.
    pub(crate) fn changed(&mut self, scope: &Scope, round: Round) {
        self.newest.extend(scope.iter().map(|id| (id, round.next().0)));
    }

    /// Parameters that clients hold without their ever having been encoded.
    pub(crate) fn never_sent(&self, layout: &Layout) -> Scope {
        match self.start {
            Start::Sent => Scope::empty(),
            Start::Shared => layout.ids().filter(|id| self.newest(*id) == 0).collect(),
        }
    }
}
