//! Bringing clients up to date, before a round and before they score the model.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Scope};
use fedra_wire::{ClientId, Kind, narrowed};

use crate::error::EngineError;
use crate::protocol::fleet::{ClientInfo, Download, SharedPayload, Unsynced};
use crate::round::downloads::Downloads;
use crate::state::State;

impl State {
    /// What each of these clients lacks, encoded; who lacks the same shares the bytes.
    pub(super) fn downloads(&self, clients: &[ClientInfo]) -> Result<Vec<Download>, EngineError> {
        let (round, encoding) = (self.round, self.recipe.work.download);
        // Who has adapters of another rank gets other bytes of them.
        let mut values: BTreeMap<Option<u16>, Downloads> = BTreeMap::new();
        // What a client lacks follows from what it holds and how deep it is: a few cases, however
        // many clients there are.
        let mut payloads: BTreeMap<_, SharedPayload> = BTreeMap::new();
        let mut downloads = Vec::with_capacity(clients.len());
        for client in clients {
            let depth = self.recipe.depths.get(&client.name).copied();
            let rank = self.recipe.ranks.get(&client.name).copied();
            let split = self.recipe.split.as_ref();
            let ends = split.map(|split| {
                (split.ends_of(&client.name, round), split.clients.contains_key(&client.name))
            });
            let case = (self.versions.held(client.id), depth, rank, ends);
            let payload = if let Some(payload) = payloads.get(&case) {
                payload.clone()
            } else {
                let plan = self.recipe.plan((&client.name, round), Scope::empty(), &self.layout)?;
                let cut_in = |round| self.recipe.cut(&client.name, round, &self.layout);
                let lacks = self.versions.lacks(client.id, &plan, &cut_in)?;
                let own = self.recipe.layout_of(&client.name, &self.layout);
                let known =
                    values.entry(rank).or_insert_with(|| Downloads::new(Kind::Values, encoding));
                let payload = match &own {
                    Cow::Borrowed(layout) => known.get((layout, round), &self.model, lacks)?,
                    Cow::Owned(own) => {
                        let part = narrowed(self.model.subset(&lacks), (&self.layout, own));
                        known.get((own, round), &part, lacks)?
                    }
                };
                payloads.entry(case).or_insert(payload).clone()
            };
            downloads.push(Download { client: client.id, round, encoding, payload });
        }
        Ok(downloads)
    }
}

/// How many of the downloads were sent, and their bytes.
pub(super) fn sent_bytes(downloads: &[Download], unsynced: &[Unsynced]) -> (u64, ByteCount) {
    let unsent = unsynced.iter().filter(|it| !it.sent).map(|it| it.absence.client);
    let unsent: BTreeSet<ClientId> = unsent.collect();
    let sent = downloads.iter().filter(|download| !unsent.contains(&download.client));
    sent.fold((0, ByteCount(0)), |(count, bytes), download| {
        (count + 1, bytes + ByteCount(download.payload.len() as u64))
    })
}
