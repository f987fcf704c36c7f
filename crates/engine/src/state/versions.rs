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
    newest: Versions,
    /// How many rounds were complete when a client was last brought up to date.
    held: BTreeMap<ClientId, Round>,
}

impl ClientVersions {
    /// Before the first round.
    pub fn new(start: Start) -> Self {
        Self { start, newest: Versions::default(), held: BTreeMap::new() }
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
        let stale = plan.downloads(&self.newest, self.held(client));
        let Some(last) = self.held.get(&client) else { return Ok(stale) };
        let before = cut_in(*last)?;
        if before == *plan.cut() {
            return Ok(stale);
        }
        let is_new = |id: ParamId| {
            let known = self.start == Start::Shared && self.newest.is_initial(id);
            before.side(id.layer) == Side::Server && !known
        };
        Ok(stale | plan.held_by(Side::Client).filter(is_new))
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
