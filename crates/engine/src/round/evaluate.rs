//! Scoring the model where that is due.

use std::collections::BTreeSet;

use fedra_plan::ByteCount;
use fedra_wire::ClientId;

use crate::error::EngineError;
use crate::protocol::bytes::CrossingBytes;
use crate::protocol::fleet::{
    Absence, Adaptation, ClientInfo, EvaluationRequest, EvaluationSet, Fleet,
};
use crate::protocol::server_segment::SegmentHost;
use crate::recipe::Population;
use crate::report::SetScores;
use crate::round::sync::sent_bytes;
use crate::state::State;
use crate::work::schedule::Schedule;
use crate::work::{LocalRule, Work};

impl State {
    /// Scores the model if it is time to.
    pub(super) fn evaluate(
        &mut self,
        fleet: &mut dyn Fleet,
        is_last: bool,
    ) -> Result<(Vec<SetScores>, ByteCount), EngineError> {
        let evaluation = &self.recipe.evaluation;
        if !is_last && !self.round.0.is_multiple_of(evaluation.every.max(1)) {
            return Ok((Vec::new(), ByteCount(0)));
        }
        let sets = evaluation.on.clone();
        if sets.iter().any(|on| *on != EvaluationSet::CentralTest) {
            self.announce_client_scores()?;
        }
        let (mut scores, bytes) = self.score(fleet, &sets)?;
        self.history.note_scores(&mut scores);
        Ok((scores, bytes))
    }

    /// Takes note of whose loss is a number: of clients that trained, and of sets that were scored. An answer that
    /// is refused says nothing about the model.
    pub(super) fn note_losses(
        &mut self,
        clients: &[ClientInfo],
        (arrived, failed): (&[ClientId], &[Absence]),
        scores: &[SetScores],
    ) {
        let words = |id: ClientId| {
            let client = clients.binary_search_by_key(&id, |client| client.id);
            client.map_or_else(|_| format!("client {id}"), |place| clients[place].name.clone())
        };
        // Whom a guarantee hides, it hides here too: how a run ends would tell that a client came.
        let hidden = self.recipe.client_privacy().is_some();
        let (arrived, failed) = if hidden { (&[][..], &[][..]) } else { (arrived, failed) };
        let arrived = arrived.iter().map(|id| (words(*id), true));
        let diverged = failed.iter().filter(|absence| absence.diverged);
        let diverged = diverged.map(|absence| (words(absence.client), false));
        let scored = scores.iter().map(|set| (in_words(set.on).to_owned(), set.loss.is_finite()));
        self.history.note_losses(self.round.0, arrived.chain(diverged).chain(scored));
    }

    /// Scores the model as it is now on those of the sets that have examples; tells what clients
    /// had to receive for it. They are not taken to hold it afterwards: a round sends what it would
    /// have sent without it, so that a run does not depend on how often it is scored.
    pub(crate) fn score(
        &self,
        fleet: &mut dyn Fleet,
        sets: &[EvaluationSet],
    ) -> Result<(Vec<SetScores>, ByteCount), EngineError> {
        let at_clients = sets.iter().filter(|on| **on != EvaluationSet::CentralTest);
        let scorers: BTreeSet<ClientId> = at_clients.flat_map(|on| fleet.scorers(*on)).collect();
        let scores_some = |client: &&ClientInfo| scorers.contains(&client.id);
        let clients: Vec<ClientInfo> =
            fleet.clients().iter().filter(scores_some).cloned().collect();
        let downloads = self.downloads(&clients)?;
        // Who cannot be reached scores nothing.
        let unsynced = if downloads.is_empty() { Vec::new() } else { fleet.sync(&downloads)? };
        let (_, sent) = sent_bytes(&downloads, &unsynced);
        let adapt = match &self.recipe.adapt {
            None => None,
            Some(adapt) => {
                // A copy that is thrown away takes part in no schedule: at its end the rate would be 0.
                let mut work = Work { schedule: Schedule::default(), ..self.recipe.work.clone() };
                (work.epochs, work.local) = (adapt.epochs, LocalRule::Plain);
                Some(Adaptation { learns: adapt.learns.select(&self.layout)?, work })
            }
        };
        if let Some(middle) = self.middle()? {
            middle.host(&self.model)?;
        }
        let mut scores = Vec::new();
        for on in sets {
            let each = fleet.evaluate(&EvaluationRequest {
                on: *on,
                model: &self.model,
                adapt: adapt.as_ref(),
                round: self.round,
                seed: self.seed.of("adapt").with(u64::from(self.round.0)),
                split: self.recipe.split.as_ref(),
            })?;
            let examples: u64 = each.iter().map(|one| one.examples).sum();
            scores.extend((examples > 0).then(|| SetScores::new(*on, each)));
        }
        let bytes = match self.recipe.population {
            Population::Federated => sent,
            Population::Pooled => ByteCount(0),
        };
        let crossed = self.middle()?.map_or(CrossingBytes::default(), SegmentHost::crossed);
        Ok((scores, bytes + crossed.up() + crossed.down()))
    }
}

fn in_words(on: EvaluationSet) -> &'static str {
    match on {
        EvaluationSet::CentralTest => "the central test set",
        EvaluationSet::ClientValidation => "the clients' validation examples",
        EvaluationSet::ClientTest => "the clients' test examples",
    }
}
