//! A fleet that writes down every call and what came of it.
//!
//! Two implementations of the trait are alike when the engine cannot tell them apart: so what it was
//! answered is compared, not only what it made of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedra_engine::{
    Arrival, AttentionRequest, ClientAttention, ClientInfo, ClientState, Download, EngineError,
    EvaluationRequest, EvaluationSet, Evidence, Fleet, Outcome, ProbeRequest, Scored, StateHandle,
    StepNoise, TrainRequest, Unsynced, Verdict,
};
use fedra_plan::{Digest, Scope};
use fedra_wire::{ClientId, ParamValues};

/// A call of the trait and its answer, without what clocks and memories say.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// The payload for each, and who did not get it.
    Sync(Vec<(ClientId, Digest)>, Vec<Unsynced>),
    /// As f32, which is how scores travel and what the engine reads of them.
    Probe(Vec<(ClientId, Vec<f32>)>),
    CompareAttention(Vec<ClientAttention>),
    /// By client: in which order they arrive is nobody's business.
    Train(BTreeMap<ClientId, Trained>),
    Evaluate(EvaluationSet, Vec<Scored>),
    Forget(Scope),
    Revoke(Vec<ClientId>),
}

impl Call {
    /// What became of requests to train, if it was about that.
    pub fn trained(&self) -> Option<&BTreeMap<ClientId, Trained>> {
        if let Self::Train(trained) = self { Some(trained) } else { None }
    }
}

/// What became of a request to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub uploads: Scope,
    pub answer: Result<TrainAnswer, String>,
    pub verdict: Verdict,
}

/// An update, its correction and its noise.
pub type TrainAnswer = (Digest, Option<Digest>, Option<StepNoise>);

/// Forwards everything.
pub struct Noted<'f> {
    fleet: &'f mut dyn Fleet,
    calls: &'f mut Vec<Call>,
}

impl<'f> Noted<'f> {
    pub fn new(fleet: &'f mut dyn Fleet, calls: &'f mut Vec<Call>) -> Self {
        Self { fleet, calls }
    }
}

impl Fleet for Noted<'_> {
    fn clients(&self) -> &[ClientInfo] {
        self.fleet.clients()
    }

    fn scorers(&self, on: EvaluationSet) -> Vec<ClientId> {
        self.fleet.scorers(on)
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        let absent = self.fleet.sync(downloads)?;
        let sent = downloads.iter().map(|one| (one.client, Digest::of(&one.payload))).collect();
        self.calls.push(Call::Sync(sent, absent.clone()));
        Ok(absent)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let evidence = self.fleet.probe(request)?;
        let scores = |one: &Evidence| {
            let scores = one.scores.as_slice().iter().map(|score| *score as f32).collect();
            (one.client, scores)
        };
        self.calls.push(Call::Probe(evidence.iter().map(scores).collect()));
        Ok(evidence)
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let compared = self.fleet.compare_attention(request)?;
        self.calls.push(Call::CompareAttention(compared.clone()));
        Ok(compared)
    }

    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        let uploads: BTreeMap<ClientId, Scope> =
            requests.iter().map(|request| (request.client, request.plan.uploads())).collect();
        let mut trained = BTreeMap::new();
        self.fleet.train(requests, &mut |arrival| {
            let client = arrival.client;
            let answer = match &arrival.outcome {
                Outcome::Finished(reply) => Ok((
                    Digest::of(&reply.payload),
                    reply.correction.as_deref().map(Digest::of),
                    reply.noise.clone(),
                )),
                Outcome::Failed(failure) => Err(failure.reason.clone()),
            };
            let verdict = arrive(arrival)?;
            let uploads = uploads.get(&client).cloned().unwrap_or_default();
            let before = trained.insert(client, Trained { uploads, answer, verdict });
            assert!(before.is_none(), "client {client} arrived twice");
            Ok(verdict)
        })?;
        assert_eq!(trained.len(), uploads.len(), "one arrival for each request");
        self.calls.push(Call::Train(trained));
        Ok(())
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let scored = self.fleet.evaluate(request)?;
        self.calls.push(Call::Evaluate(request.on, scored.clone()));
        Ok(scored)
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        self.calls.push(Call::Forget(part.clone()));
        self.fleet.forget(part)
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        self.calls.push(Call::Revoke(clients.to_vec()));
        self.fleet.revoke(clients)
    }

    fn await_return(
        &mut self,
        absent: &[ClientId],
        again: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.fleet.await_return(absent, again, stop)
    }

    fn states(&self) -> Vec<StateHandle> {
        self.fleet.states()
    }

    fn restore(
        &mut self,
        shared: &ParamValues,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        self.fleet.restore(shared, states)
    }
}
