//! Who holds which version of which parameter, so that a client downloads exactly what it lacks.
//!
//! A version is the number of rounds that were complete when the parameter last changed. A client
//! that sat out some rounds lacks whatever any of them changed, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// Clients that hold the same share one list.
    #[serde(with = "by_value")]
    held: BTreeMap<ClientId, Arc<Held>>,
}

/// The versions that a client holds.
type Held = BTreeMap<ParamId, u32>;

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
        let mut held = self.held.get(&client).map_or_else(Held::new, |held| Held::clone(held));
        held.extend(scope.iter().map(|id| (id, self.newest(id))));
        // Clients come in their order, and mostly a neighbour holds the same by now.
        let same = |other: &Arc<Held>| **other == held;
        let neighbours = self.held.range(..client).next_back().map(|(_, held)| held);
        let shared = neighbours.filter(|other| same(other)).map(Arc::clone);
        self.held.insert(client, shared.unwrap_or_else(|| Arc::new(held)));
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

/// In a file everybody's list stands whole; what is alike is shared again when it is read.
mod by_value {
    use super::{Arc, BTreeMap, ClientId, Held};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        held: &BTreeMap<ClientId, Arc<Held>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(held.iter().map(|(client, held)| (client, &**held)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<ClientId, Arc<Held>>, D::Error> {
        let mut last = Arc::new(Held::new());
        let whole = BTreeMap::<ClientId, Held>::deserialize(deserializer)?;
        let shared = whole.into_iter().map(|(client, held)| {
            if *last != held {
                last = Arc::new(held);
            }
            (client, Arc::clone(&last))
        });
        Ok(shared.collect())
    }
}

#[cfg(test)]
mod tests {
    use fedra_plan::{Part, Role, Site};

    use super::*;

    #[test]
    fn clients_that_hold_the_same_share_one_list_and_the_file_stays_as_it_was() {
        let [query, key] =
            [Role::Query, Role::Key].map(|role| ParamId::new(Site::Block(0), role, Part::Weight));
        let both = Scope::from_iter([query, key]);
        let mut versions = Versions::new(Start::Sent);
        for client in 0..3 {
            versions.received(ClientId(client), &both);
        }
        versions.changed(&both, Round(0));
        versions.received(ClientId(1), &Scope::from_iter([key]));
        versions.received(ClientId(2), &Scope::from_iter([key]));
        let shares = |versions: &Versions, a: u32, b: u32| {
            Arc::ptr_eq(&versions.held[&ClientId(a)], &versions.held[&ClientId(b)])
        };
        assert!(shares(&versions, 1, 2) && !shares(&versions, 0, 1));
        let text = serde_json::to_string(&versions).unwrap();
        let list = r#""1":{"block.0.query.weight":0,"block.0.key.weight":1}"#;
        assert!(text.contains(list), "{text}");
        let again: Versions = serde_json::from_str(&text).unwrap();
        assert_eq!(again, versions);
        assert!(shares(&again, 1, 2));
    }
}
