//! Who holds which version of the shared model, so that a client downloads exactly what it lacks.

use std::collections::BTreeMap;

use fedra_plan::{Cut, Held, Layout, ParamId, Plan, PlanError, Round, Scope, Side, Versions};
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::recipe::Start;

/// The server's versions and what it knows of the clients'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientVersions {
    start: Start,
    /// What everybody has, nobody changes and nobody is sent.
    #[serde(default = "Scope::empty", skip_serializing_if = "Scope::is_empty")]
    base: Scope,
    newest: Versions,
    /// How many rounds were complete when a client was last brought up to date.
    held: BTreeMap<ClientId, Round>,
}

impl ClientVersions {
    /// Before the first round.
    pub fn new(start: Start) -> Self {
        Self::over(start, Scope::empty())
    }

    /// The same over a base: parameters that everybody has, that never change and that nobody sends.
    pub fn over(start: Start, base: Scope) -> Self {
        Self { start, base, newest: Versions::default(), held: BTreeMap::new() }
    }

    /// What is never sent.
    pub const fn base(&self) -> &Scope {
        &self.base
    }

    /// What a client holds.
    pub fn held(&self, client: ClientId) -> Held {
        let first = match self.start {
            Start::Sent => Held::Nothing,
            Start::Shared => Held::After(Round(0)),
        };
        self.held.get(&client).map_or(first, |rounds| Held::After(*rounds))
    }

    /// What a client lacks for its plan, given where its model was cut in earlier rounds: what lived
    /// at the server when the client was last brought up to date never reached it.
    pub fn lacks(
        &self,
        client: ClientId,
        plan: &Plan,
        cut_in: &dyn Fn(Round) -> Result<Cut, PlanError>,
    ) -> Result<Scope, PlanError> {
        let stale = plan.downloads(&self.newest, self.held(client)) - &self.base;
        let Some(last) = self.held.get(&client) else { return Ok(stale) };
        let before = cut_in(*last)?;
        if before == *plan.cut() {
            return Ok(stale);
        }
        let is_new = |id: ParamId| {
            let known = self.start == Start::Shared && self.newest.is_initial(id);
            before.side(id.layer) == Side::Server && !known
        };
        Ok((stale | plan.held_by(Side::Client).filter(is_new)) - &self.base)
    }

    /// Notes that a client received in this round all that it lacked.
    pub fn received(&mut self, client: ClientId, round: Round) {
        self.held.insert(client, round);
    }

    /// Notes that a round changed these parameters.
    pub fn changed(&mut self, scope: &Scope, round: Round) {
        self.newest.change(scope, round);
    }

    /// Parameters that clients hold without their ever having been encoded.
    pub(crate) fn never_sent(&self, layout: &Layout) -> Scope {
        match self.start {
            Start::Sent => Scope::empty(),
            Start::Shared => layout.ids().filter(|id| self.newest.is_initial(*id)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{Layer, Part, Role, Shape};

    #[test]
    fn a_base_is_never_lacked_whatever_a_client_holds_and_wherever_the_model_is_cut() {
        let id = |block, part| ParamId::new(Layer::Block(block), Role::Query, part);
        let parts = [Part::Weight, Part::LoraA, Part::LoraB];
        let ids = (0..3).flat_map(|block| parts.map(|part| id(block, part)));
        let layout = Layout::new(ids.map(|id| (id, Shape::matrix(4, 4)))).unwrap();
        let base = Scope::of_parts(&layout, [Part::Weight]);
        let whole = Plan::new(&layout, Scope::empty(), Cut::none()).unwrap();
        let cut = Plan::new(&layout, Scope::empty(), Cut::keep(1, 1, 3).unwrap()).unwrap();
        for start in [Start::Sent, Start::Shared] {
            let mut versions = ClientVersions::over(start, base.clone());
            let lacks = |versions: &ClientVersions, plan, before: &Cut| {
                versions.lacks(ClientId(0), plan, &|_| Ok(before.clone())).unwrap()
            };
            let first = lacks(&versions, &whole, &Cut::none());
            assert_eq!(first.len(), if start == Start::Sent { 6 } else { 0 }, "{first:?}");
            versions.received(ClientId(0), Round(0));
            // Its block has come back from the server, where it was when the client was last sent something.
            let back = lacks(&versions, &whole, cut.cut());
            assert!(back.is_subset(&(Scope::everything(&layout) - &base)), "{back:?}");
            assert_eq!(versions.base(), &base);
        }
        let none = ClientVersions::new(Start::Sent);
        let all = none.lacks(ClientId(0), &whole, &|_| Ok(Cut::none())).unwrap();
        assert_eq!(all, Scope::everything(&layout));
    }
}
