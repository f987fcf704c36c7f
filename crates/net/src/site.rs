//! A site: one client at work, its state on its own disk, and the answers that it gives.
//!
//! A site never decides what counts. It answers one request at a time, has the state behind an answer
//! on disk before it sends it, and takes the server's word for which of its answers to go on from. An
//! answer that got lost on the way is sent again, not worked out again.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fedra_client::{Client, ClientError};
use fedra_engine::{
    AttentionRequest, ClientState, EvaluationRequest, Evidence, ProbeRequest, Verdict,
};
use fedra_plan::Digest;
use fedra_seed::Seed;
use fedra_wire::{ClientId, Measured, ParamValues};

use crate::error::NetError;
use crate::frame::Message;
use crate::link::from_meta;
use crate::listener::rest;
use crate::protocol::{
    Answer, Asked, ConfigFingerprint, Counts, DataDigest, Forget, HeldModel, Hello, PROTOCOL,
    Request, RoundStage, StateVersion, Welcome, read_training,
};
use crate::site_state::{SiteState, StoredState};

/// How long a client waits before it goes again to the server's half of a cut model.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// How often it is tried again; each wait is twice the one before.
const AGAIN: u32 = 6;

/// One client of a federation, on its own machine.
pub struct ClientNode {
    /// The client.
    pub client: Client,
    agreement: ConfigFingerprint,
    data: DataDigest,
    state: SiteState,
    /// The answer whose state the client has.
    label: Option<StateVersion>,
    /// The answer that waits for a verdict.
    waiting: Option<StateVersion>,
    /// Orders to forget that are carried out.
    forgets: u64,
    model: HeldModel,
    session: Option<u64>,
    pub(crate) process: u64,
    /// What a person may want to hear about the last request.
    pub news: Option<String>,
    /// Why this site cannot go on: its own disk, which no other request would mend.
    pub(crate) broken: Option<NetError>,
    /// The last answer, in case it got lost on the way.
    last: Option<Message>,
}

impl ClientNode {
    /// A client that keeps its state in a folder; what it kept there is taken up again when the server
    /// has named it.
    pub fn new(
        client: Client,
        agreement: ConfigFingerprint,
        folder: &Path,
    ) -> Result<Self, NetError> {
        let state = SiteState::open(folder, &client.info.name, &agreement)?;
        let secret = state.data_secret()?;
        let data =
            DataDigest { secret: Digest::of(&secret), examples: client.shard.digest(&secret) };
        Ok(Self {
            client,
            agreement,
            data,
            state,
            label: None,
            waiting: None,
            forgets: 0,
            model: HeldModel::First,
            session: None,
            process: fresh_number(),
            news: None,
            broken: None,
            last: None,
        })
    }

    /// What it says when it joins.
    pub fn hello(&self) -> Hello {
        let shard = &self.client.shard;
        let tokens = shard.train.encoded().iter().map(|example| example.ids.len() as u64).sum();
        Hello {
            protocol: PROTOCOL,
            client: self.client.info.name.clone(),
            agreement: self.agreement.clone(),
            counts: Counts {
                train: shard.train.len() as u64,
                validation: shard.validation.len() as u64,
                test: shard.test.len() as u64,
                tokens,
            },
            data: self.data,
            model: self.model,
            run: self.state.about.run,
            kept: self.state.labels.clone(),
            process: self.process,
        }
    }

    /// Takes the server's word for where it stands; tells what was lost, if anything was.
    pub fn welcomed(&mut self, welcome: Welcome) -> Result<Option<String>, NetError> {
        let Welcome { run, session, client, label, forgets } = welcome;
        if client != self.client.info.id {
            let own = self.client.info.id;
            let found = format!("found the number {client} for this client, expected {own}");
            return Err(NetError::Refused(format!("a welcome: {found}")));
        }
        self.state.begin(run)?;
        if self.session != Some(session) {
            // Numbers of requests begin anew, and a model of another session is out of date.
            (self.session, self.last) = (Some(session), None);
        }
        let lost = self.stand_at(label)?;
        for forget in &forgets {
            self.forget(forget);
        }
        Ok(lost)
    }

    /// Makes the state behind an answer the current one, whatever it heard before.
    fn stand_at(&mut self, label: Option<StateVersion>) -> Result<Option<String>, NetError> {
        let waiting = self.waiting.take();
        if waiting.is_some() && label == waiting && self.client.pending().is_some() {
            self.client.settle(Verdict::Taken);
            self.label = label;
        }
        self.client.settle(Verdict::Refused);
        if label == self.label {
            return Ok(None);
        }
        let id = self.client.info.id;
        let kept = match label {
            None => Some(first(id)),
            Some(label) => self.state.get(label, &self.client.layout)?,
        };
        self.label = label;
        let found = kept.is_some();
        let StoredState { state, forgets } = kept.unwrap_or_else(|| first(id));
        self.client.set_state(state.into_owned());
        self.forgets = forgets;
        Ok((!found).then(|| {
            let round = label.map_or(0, |label| label.round.0 + 1);
            format!(
                "the client state after round {round} is lost: this client continues without corrections and \
                 personal parameters, and the server cannot tell whether its examples have changed"
            )
        }))
    }

    /// Requests with these numbers are on their way, and their payloads take memory: an answer that none of
    /// them asks for again is let go.
    pub fn expect(&mut self, requests: &[u64]) {
        let is_over =
            |last: &Message| requests.iter().any(|id| *id != 0) && !requests.contains(&last.id);
        self.last = self.last.take().filter(|last| !is_over(last));
    }

    /// Answers a request; `None` where none is due.
    pub fn answer(&mut self, message: &Message) -> Result<Option<Message>, NetError> {
        let id = message.id;
        if let Some(last) = self.last.as_ref().filter(|last| last.id == id && id != 0) {
            // It got lost on its way. What counts is said with whatever comes next.
            return Ok(Some(last.clone()));
        }
        let Asked { base, request } = from_meta("a request", message)?;
        if id != 0 {
            // The server has the last answer, or does not want it any more.
            self.last = None;
        }
        self.news = self.stand_at(base)?.map(|lost| format!("warning: {lost}"));
        let (answer, payloads) = match self.carry_out(request, &message.payloads) {
            Ok(Some(answered)) => answered,
            Ok(None) => return Ok(None),
            Err(error @ (NetError::Meaning { .. } | NetError::Stopped)) => return Err(error),
            Err(error) => {
                let diverged = matches!(&error, NetError::Work(work) if work.is_divergence());
                let is_device = matches!(&error, NetError::Work(work) if work.is_device_failure());
                let answer = Answer::Failed { reason: error.to_string(), diverged };
                if is_device || matches!(error, NetError::System { .. }) {
                    self.broken = Some(error);
                }
                (answer, Vec::new())
            }
        };
        if id == 0 {
            // Nobody waits for the answer, and without the values nothing else can be answered.
            if let Answer::Failed { reason, .. } = answer {
                return Err(NetError::meaning("values to synchronise", reason));
            }
            return Ok(None);
        }
        let message = Message { payloads, ..Message::of(id, &answer) };
        self.last = Some(message.clone());
        Ok(Some(message))
    }

    fn carry_out(
        &mut self,
        request: Request,
        payloads: &[Bytes],
    ) -> Result<Option<(Answer, Vec<Bytes>)>, NetError> {
        let client = self.client.info.id;
        let answer = match request {
            Request::Sync { round, encoding } => {
                let [payload] = payloads else {
                    let reason = format!("found {} payloads, expected 1", payloads.len());
                    return Err(NetError::meaning("a download", reason));
                };
                self.client.sync((round, encoding, payload))?;
                if let Some(session) = self.session {
                    self.model = HeldModel::Of { session };
                }
                Answer::Synced
            }
            Request::Probe { probe, round, seed, examples, noise, split } => {
                let (clients, seed, split) = (&[client][..], Seed(seed), split.as_ref());
                let request = ProbeRequest { probe, clients, round, seed, examples, noise, split };
                let Evidence { client, scores } = self.client.probe(&request)?;
                let scores = scores.as_slice().iter().map(|score| *score as f32).collect();
                let measured = Measured { round, client, scores }.encode();
                let measured = measured.map_err(ClientError::from)?;
                return Ok(Some((Answer::Evidence, vec![measured.into()])));
            }
            Request::CompareAttention { round, seed } => {
                let (clients, seed) = (&[client][..], Seed(seed));
                let request = AttentionRequest { clients, revocable: false, seed };
                let answer = self.client.compare_attention(&request)?;
                let label = StateVersion { round, step: RoundStage::Looked };
                self.put(label)?;
                self.label = Some(label);
                answer.moved.map_or(Answer::FirstLook, Answer::Attention)
            }
            Request::Train { round, seed, work, cut, split } => {
                let place = (client, &self.client.layout);
                let request = read_training((round, seed, work, cut, split), payloads, place)?;
                return self.train(&request).map(Some);
            }
            Request::Evaluate { on, adapt, round, seed, split } => {
                let (adapt, nothing) = (adapt.as_ref(), ParamValues::new());
                let (seed, split) = (Seed(seed), split.as_ref());
                let request = EvaluationRequest { on, model: &nothing, adapt, round, seed, split };
                let scored = again(&mut self.client, |client| client.evaluate(&request))?;
                Answer::Scored { scored }
            }
            Request::Forget(forget) => {
                self.forget(&forget);
                return Ok(None);
            }
            // It stands where it should by now; who carries messages looks for the end.
            Request::Settle | Request::End { .. } => return Ok(None),
        };
        Ok(Some((answer, Vec::new())))
    }

    fn train(
        &mut self,
        request: &fedra_engine::TrainRequest,
    ) -> Result<(Answer, Vec<Bytes>), NetError> {
        let reply = again(&mut self.client, |client| client.train(request))?;
        let label = StateVersion { round: request.round, step: RoundStage::Trained };
        self.put(label)?;
        self.waiting = Some(label);
        let (round, seconds) = (request.round.0 + 1, reply.seconds);
        self.news = Some(format!("round {round}: trained in {seconds:.1} s"));
        let payloads = [Some(reply.payload), reply.correction];
        let payloads = payloads.into_iter().flatten().map(Bytes::from).collect();
        let (seconds, memory, noise) = (reply.seconds, reply.memory, reply.noise);
        Ok((Answer::Trained { seconds, memory, noise }, payloads))
    }

    /// Writes the state behind an answer: the one that waits for a verdict, or where none does, the present one.
    fn put(&mut self, label: StateVersion) -> Result<(), NetError> {
        let state = self.client.pending().unwrap_or(&self.client.state);
        let kept = StoredState { state: Cow::Borrowed(state), forgets: self.forgets };
        self.state.put((self.label, label), &kept, &self.client.layout)
    }

    fn forget(&mut self, forget: &Forget) {
        if forget.number > self.forgets {
            self.client.forget(&forget.part);
            self.forgets = forget.number;
        }
    }
}

/// What a client has that was never asked.
fn first(id: ClientId) -> StoredState<'static> {
    StoredState { state: Cow::Owned(ClientState::empty(id)), forgets: 0 }
}

/// Works on a cut model, and begins again where the way to its other half was lost: until an answer is
/// settled the client keeps nothing, so the numbers are the same.
fn again<T>(
    client: &mut Client,
    mut work: impl FnMut(&mut Client) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut waits = (0..AGAIN).map(|number| AGAIN_AFTER * (1 << number));
    loop {
        match (work(client), waits.next()) {
            (Err(ClientError::Unreachable(_)), Some(wait)) => {
                if !rest(wait, || client.observer.stops()) {
                    return Err(ClientError::Stopped);
                }
            }
            (done, _) => return done,
        }
    }
}

/// A number that no other process has: it names processes and runs and decides nothing else, so it is
/// the one thing here that is not drawn from a seed.
pub(crate) fn fresh_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    // Fifty-three bits: any reader of JSON keeps them.
    RandomState::new().hash_one((std::process::id(), now)) >> 11
}
