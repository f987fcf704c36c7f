//! A private round: what it releases is announced before it happens, and means are noised before
//! anybody sees them.

use std::collections::BTreeMap;

use fedra_plan::Digest;
use fedra_privacy::{Event, Release};
use fedra_wire::ClientId;
use serde::Serialize;

use crate::error::EngineError;
use crate::privacy::private_steps::StepNoise;
use crate::privacy::{
    BLOCK_SCORES, CLIENT_UPDATES, EXAMPLE_GRADIENTS, Privacy, PrivateSelection, joint_noise,
};
use crate::protocol::fleet::{ClientInfo, TrainRequest};
use crate::round::aggregator::Gathered;
use crate::state::State;

impl State {
    /// Writes down what this round is about to release about whole clients.
    pub(super) fn announce_round(&mut self) -> Result<(), EngineError> {
        let Some(privacy) = self.recipe.client_privacy() else { return Ok(()) };
        let mut release = privacy.release(self.recipe.sampler)?;
        let mut mechanism = CLIENT_UPDATES.to_owned();
        // Scores and updates come from one cohort: together they are one release with less noise.
        if let (PrivateSelection::Gaussian { noise: of_scores }, true) =
            (privacy.selection, self.measures())
            && let Release::SampledGaussian { noise, .. } = &mut release
        {
            *noise = joint_noise(*noise, of_scores)?;
            mechanism = format!("{CLIENT_UPDATES} and {BLOCK_SCORES}");
        }
        // Without a key of its own, which is a simulation, the server draws the same noise again.
        let input = if self.simulated { Some(self.input(&mechanism)?) } else { None };
        let round = self.round;
        self.record(&[Event { round, mechanism, client: None, input, release }])
    }

    /// Writes down what these requests make clients release about their examples: noised gradients, or rows
    /// that cross a cut.
    pub(super) fn announce_training(
        &mut self,
        requests: &[TrainRequest],
        cohort: &[ClientInfo],
    ) -> Result<(), EngineError> {
        let steps = self.recipe.private_steps();
        let rows = self.recipe.rows_at_cut(&self.layout)?;
        let cohort: BTreeMap<ClientId, &ClientInfo> =
            cohort.iter().map(|client| (client.id, client)).collect();
        let mut events = Vec::new();
        for request in requests {
            let TrainRequest { plan, work, .. } = request;
            let Some(info) = cohort.get(&request.client) else { continue };
            let (round, client) = (self.round, Some(info.name.clone()));
            // The norm may have adapted; the guarantee does not depend on it.
            if let Some(steps) = &steps
                && let Some(release) = work.release(steps, info.examples)?
            {
                let asked = (request.client, request.seed.0, plan.learns(), plan.keeps(), work);
                let (mechanism, input) = (EXAMPLE_GRADIENTS.to_owned(), Some(self.input(&asked)?));
                events.push(Event { round, mechanism, client: client.clone(), input, release });
            }
            // What leaves depends on what is answered, so no release is the same as one before.
            let crossing = rows.iter().flat_map(|rows| rows.releases(plan, work, info.examples));
            events.extend(crossing.map(|(mechanism, release)| {
                let (mechanism, client) = (mechanism.to_owned(), client.clone());
                Event { round, mechanism, client, input: None, release }
            }));
        }
        self.record(&events)
    }

    /// Writes down a release of scores that clients measured, by one client or by all.
    pub(super) fn announce_scores(
        &mut self,
        releases: impl IntoIterator<Item = (Option<String>, Release)>,
    ) -> Result<(), EngineError> {
        let (round, mechanism) = (self.round, BLOCK_SCORES.to_owned());
        let input = Some(self.input(&mechanism)?);
        let event = |(client, release)| {
            let mechanism = mechanism.clone();
            Event { round, mechanism, client, input, release }
        };
        let events: Vec<Event> = releases.into_iter().map(event).collect();
        self.record(&events)
    }

    /// Writes down that clients score the model on examples that nothing hides; only whole clients are
    /// guaranteed more than that.
    pub(super) fn announce_client_scores(&mut self) -> Result<(), EngineError> {
        if self.recipe.client_privacy().is_none() {
            return Ok(());
        }
        let what = "scores of the model on clients' own test and validation examples".to_owned();
        let release =
            Release::NonPrivate { what, why: "they are reported without noise".to_owned() };
        let (round, mechanism) = (self.round, "evaluation".to_owned());
        let input = Some(self.input(&mechanism)?);
        self.record(&[Event { round, mechanism, client: None, input, release }])
    }

    fn record(&mut self, events: &[Event]) -> Result<(), EngineError> {
        match &mut self.account {
            Some(account) if !events.is_empty() => account.announce(events),
            Some(_) | None => Ok(()),
        }
    }

    /// What a release of this round is computed from: everything before it, of which the log is the
    /// trace, and what is asked now.
    fn input(&self, asked: &impl Serialize) -> Result<Digest, EngineError> {
        let mut bytes = self.log.digest.as_bytes().to_vec();
        let unwritten =
            |error: serde_json::Error| EngineError::Privacy { reason: error.to_string() };
        bytes.extend(serde_json::to_vec(&(self.round, asked)).map_err(unwritten)?);
        Ok(Digest::of(&bytes))
    }

    /// Whether clients are to measure blocks in this round.
    pub(super) fn measures(&self) -> bool {
        let selection = &self.recipe.selection;
        self.rule().needs_choice()
            && selection.probe.is_some()
            && selection.is_due(self.round, self.memory.measurements)
    }

    /// Makes the mean of clipped updates private; these are all who are registered.
    pub(super) fn protect(
        &self,
        gathered: &mut Gathered,
        clients: &[ClientInfo],
    ) -> Result<(), EngineError> {
        let Some(privacy) = self.recipe.client_privacy() else { return Ok(()) };
        let divisor = Privacy::rate(self.recipe.sampler)? * clients.len() as f64;
        let support = self.support(clients)?;
        let key = self.noise.of(CLIENT_UPDATES).with(u64::from(self.round.0));
        let folded = (&gathered.mean, gathered.private_weight);
        let (mean, layers) = privacy.noised(folded, (&support, &self.layout), (divisor, &key));
        (gathered.mean, gathered.noise) = (mean, StepNoise { layers, clip: None });
        Ok(())
    }

    /// Notes the signal and noise of a complete round: later choices and norms may follow from them.
    pub(super) fn note_noise(&mut self, noise: &StepNoise) {
        if noise.clip.is_some() {
            self.history.clip = noise.clip.map(crate::number::Exact);
        }
        self.memory.note_released(&noise.layers);
    }
}
