//! Recipes that make no sense, alone or with this model and these clients.

use std::collections::BTreeSet;

use fedra_plan::{Layout, Rule};
use fedra_wire::{Encoding, ServerRule};

use crate::aggregate::adapter_mean::AdapterMean;
use crate::aggregate::max_norm::KEY;
use crate::aggregate::server;
use crate::cohort::conditions::check_names;
use crate::error::{EngineError, first, refuse};
use crate::recipe::{Population, Recipe, StepNormalisation};
use crate::split::SplitMode;
use crate::work::LocalRule;
use crate::work::objective::MomentsLife;

/// Who needs more than these has another problem than bad luck.
const MOST_RETRIES: u32 = 1000;

impl Recipe {
    /// Refuses choices that a model of this layout cannot follow.
    pub fn fits(&self, layout: &Layout) -> Result<(), EngineError> {
        self.learns.check(layout)?;
        self.personal.check(layout)?;
        if !self.learns.needs_choice() && self.learns.select(layout)?.is_empty() {
            return refuse("learns", "nothing", "a part of the model");
        }
        self.stage.as_ref().map_or(Ok(()), |stage| stage.check(&self.learns, layout))
    }

    /// Refuses choices that make no sense, alone or for so many clients.
    pub fn check(&self, clients: usize) -> Result<(), EngineError> {
        self.work.check()?;
        server::check(self.server)?;
        self.sampler.check(clients)?;
        self.conditions.check(self.sampler.most(clients))?;
        self.min_arrivals.check((self.sampler, clients), self.conditions.close_with)?;
        if self.retries > MOST_RETRIES {
            return refuse("federation.retries", self.retries, "from 0 to 1000");
        }
        self.selection.check(&self.learns)?;
        self.check_depths()?;
        self.check_ranks()?;
        self.check_split()?;
        self.check_privacy(clients)?;
        self.check_adapters()?;
        self.check_max_norm()?;
        if self.population == Population::Pooled && clients != 1 {
            let expected = "1 client with all rows: the method is centralised";
            return refuse("federation.clients", clients, expected);
        }
        Ok(())
    }

    /// Refuses choices that make no sense for this model and these clients.
    pub fn check_model(&self, layout: &Layout, names: &[&str]) -> Result<(), EngineError> {
        let blocks = layout.blocks();
        let names: BTreeSet<&str> = names.iter().copied().collect();
        if let Some(split) = &self.split {
            split.check_model(blocks)?;
            check_names("split.clients", ("a cut for", split.clients.keys()), &names)?;
        }
        self.check_private_ends(layout)?;
        self.selection.check_model(&self.learns, blocks, &names)?;
        let away = self.conditions.away.keys();
        check_names("conditions.away", ("rounds of", away), &names)?;
        self.check_ranks_of(layout, &names)?;
        check_names("federation.depths", ("a depth for", self.depths.keys()), &names)?;
        for (name, depth) in &self.depths {
            let (key, found) =
                ("federation.depths", format!("{depth} of {blocks} blocks for {name:?}"));
            if !(1..=blocks).contains(depth) {
                let expected = "at least 1 block and no more than the shared model has";
                return refuse(key, found, expected);
            }
            if self.selection.criterion.among(*depth) == Some(0) {
                return refuse(key, found, "a depth that reaches a block of method.selector");
            }
        }
        Ok(())
    }

    /// Refuses what a cut model cannot do: where a step needs more of the other side than hidden
    /// states and gradients.
    fn check_split(&self) -> Result<(), EngineError> {
        let Some(split) = &self.split else { return Ok(()) };
        split.check()?;
        let joined = split.mode != SplitMode::Replicated;
        let batched = split.mode == SplitMode::Batched;
        let reason = first([
            (
                self.work.local.keeps_correction(),
                "clients store a correction for parameters that they do not have",
            ),
            (!self.depths.is_empty(), "some clients lack blocks"),
            (self.adapt.is_some(), "clients adapt before they are scored"),
            (self.population == Population::Pooled, "there are no clients"),
            (
                self.personal == Rule::Everything,
                "every client has its own model, and the server would share a part of it",
            ),
            (self.work.head_probe.is_some(), "heads are chosen by attention"),
            (self.evaluation.attention, "evaluate.attention measures blocks of both sides"),
            (
                joined && self.pace == StepNormalisation::Normalised,
                "updates are divided by their steps, and the server has one copy for all clients",
            ),
            (
                batched && self.work.clip.is_some(),
                "work.clip needs each client's own gradient of the server's blocks",
            ),
            (
                batched && self.work.accumulate > 1,
                "work.accumulate sums batches of one client, and the server steps with all clients at once",
            ),
            (
                batched && self.work.dropout > 0.0,
                "work.dropout is drawn for each client, and the server steps with all clients at once",
            ),
            (
                self.work.moments == MomentsLife::Kept,
                "work.moments = \"kept\" is client state, and the server's blocks have none",
            ),
        ]);
        let Some(reason) = reason else { return Ok(()) };
        let expected = "a method whose steps need only hidden states and gradients";
        refuse("split", format!("a cut with {}, where {reason}", self.method), expected)
    }

    /// Refuses an exact mean of adapters where the server makes something else of a mean change.
    fn check_adapters(&self) -> Result<(), EngineError> {
        let plain = matches!(self.server, ServerRule::Average { rate } if rate == 1.0);
        let exact = self.adapters == AdapterMean::Exact;
        if !exact || (plain && self.pace == StepNormalisation::Ignored) {
            return Ok(());
        }
        let expected = "\"separate\" where the server changes the mean";
        refuse("model.lora.mean", format!("\"exact\" with {}", self.method), expected)
    }

    /// Refuses ranks that the model does not have.
    fn check_ranks_of(&self, layout: &Layout, names: &BTreeSet<&str>) -> Result<(), EngineError> {
        let key = "federation.ranks";
        check_names(key, ("a rank for", self.ranks.keys()), names)?;
        let most = layout.rank().unwrap_or(0);
        for (name, rank) in &self.ranks {
            if !(1..=most).contains(&usize::from(*rank)) {
                if most == 0 {
                    let expected = "no such key: the model has no low-rank adapters";
                    return refuse(key, format!("{rank} for {name:?}"), expected);
                }
                let found = format!("{rank} of {most} for {name:?}");
                let expected = "at least 1 and no more than model.lora.rank";
                return refuse(key, found, expected);
            }
        }
        Ok(())
    }

    /// Refuses ranks of clients beside what takes their factors for parts of one matrix.
    fn check_ranks(&self) -> Result<(), EngineError> {
        let key = "federation.ranks";
        if self.ranks.is_empty() {
            return Ok(());
        }
        if self.adapters != AdapterMean::Exact {
            let expected = "model.lora.mean = \"exact\" beside it: factors of different ranks have no mean, their \
                            products have one";
            return refuse(key, "ranks of clients whose factors are averaged", expected);
        }
        if self.work.download != Encoding::F32 {
            let expected = "wire.download = \"f32\" beside it";
            return refuse(
                key,
                format!("ranks with downloads in {}", self.work.download),
                expected,
            );
        }
        let reason = first([
            (self.split.is_some(), "the server has a part of the adapters"),
            (self.work.local.keeps_correction(), "clients store a correction"),
            (self.personal != Rule::Nothing, "clients have personal parameters"),
            (self.adapt.is_some(), "clients adapt before they are scored"),
            (self.population == Population::Pooled, "there are no clients"),
            (
                self.work.moments == MomentsLife::Kept,
                "work.moments = \"kept\" is about factors that are made anew in every round",
            ),
        ]);
        let Some(reason) = reason else { return Ok(()) };
        let found = format!("a table with {}, where {reason}", self.method);
        refuse(key, found, "a method whose clients hold nothing but the shared model")
    }

    fn check_depths(&self) -> Result<(), EngineError> {
        if self.depths.is_empty() {
            return Ok(());
        }
        let reason = first([
            (self.work.local.keeps_correction(), "clients store a correction"),
            (self.personal != Rule::Nothing, "clients have personal parameters"),
            (self.adapt.is_some(), "clients adapt before they are scored"),
            (self.population == Population::Pooled, "there are no clients"),
        ]);
        let Some(reason) = reason else { return Ok(()) };
        let found = format!("a table with {}, where {reason}", self.method);
        let expected = "a method without state per client, such as fedavg, fedprox or safl";
        refuse("federation.depths", found, expected)
    }

    /// Refuses a limit that means nothing, or that does not limit what clients send.
    fn check_max_norm(&self) -> Result<(), EngineError> {
        let Some(limit) = self.max_norm else { return Ok(()) };
        limit.check()?;
        if self.client_privacy().is_some() {
            let expected = "only privacy.clip, which scales every update: a limit that depends on other clients' \
                            updates would not be accounted for";
            return refuse(KEY, "a limit with privacy.unit = \"client\"", expected);
        }
        if self.split.is_some() {
            let expected = "no such key: the server's blocks learn from rows, not from updates";
            return refuse(KEY, "a limit with [split]", expected);
        }
        if self.work.local == LocalRule::ControlVariate {
            let expected = "a method without control variates, which the limit would not bound";
            return refuse(KEY, "a limit with a method that uses control variates", expected);
        }
        Ok(())
    }
}
