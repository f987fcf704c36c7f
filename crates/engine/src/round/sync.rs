//! Bringing clients up to date, before a round and before they score the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fedra_plan::{ByteCount, Scope};
use fedra_wire::{ClientId, Kind};

use crate::downloads::Downloads;
use crate::error::EngineError;
use crate::fleet::{ClientInfo, Download, Unsynced};
use crate::state::State;

impl State {
    /// What each of these clients lacks, encoded; who lacks the same shares the bytes.
    pub(super) fn downloads(&self, clients: &[ClientInfo]) -> Result<Vec<Download>, EngineError> {
        let (round, encoding) = (self.round, self.recipe.work.download);
        let mut values = Downloads::new(Kind::Values, encoding);
        // What a client lacks follows from what it holds and how deep it is: a few cases, however
        // many clients there are.
        let mut payloads: BTreeMap<_, Arc<[u8]>> = BTreeMap::new();
        let mut downloads = Vec::with_capacity(clients.len());
        for client in clients {
            let depth = self.recipe.depths.get(&client.name).copied();
            let split = self.recipe.split.as_ref();
            let ends = split.map(|split| {
                (split.ends_of(&client.name, round), split.clients.contains_key(&client.name))
            });
            let case = (self.versions.held(client.id), depth, ends);
            let payload = if let Some(payload) = payloads.get(&case) {
                payload.clone()
            } else {
                let plan = self.recipe.plan((&client.name, round), Scope::empty(), &self.layout)?;
                let cut_in = |round| self.recipe.cut(&client.name, round, &self.layout);
                let lacks = self.versions.lacks(client.id, &plan, &cut_in)?;
                let payload = values.get((&self.layout, round), &self.model, lacks)?;
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
