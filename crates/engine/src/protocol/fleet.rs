//! The clients as the engine sees them: requests go out, answers come in.
//!
//! Two kinds of fleet stand behind this trait, threads in this process and machines on a network,
//! and a run gives the same model with either. Everything that would travel is already encoded
//! here, near or far, so the reported bytes are the lengths of real payloads.
//!
//! ```text
//! engine                             fleet
//!   sync      Download, one each  ->   write it on the client's copy of the shared model
//!   probe     ProbeRequest        ->   measure blocks, or attention; Evidence
//!   train     TrainRequest        ->   train, encode the change; Arrival, in any order of clients
//!                     Verdict     <-   Taken: the client's new state holds; else it is forgotten
//!   evaluate  EvaluationRequest   ->   score; Scored
//!   forget    a part              ->   what clients remember about it is gone
//!   revoke    clients             ->   their last answers do not count: they go back by one
//!   await     absent clients      ->   before an attempt is repeated: those who are away may come back
//! ```
//!
//! Every answer is about the model **as the client received it**: through the encoding of downloads,
//! with what is the client's own in its place. The server's exact numbers are scored on the central
//! set alone, which is the server's.
//!
//! # What a client holds
//! * Its copy of the **shared model**. A download brings the parameters that the client lacks.
//!   Whatever it does not bring, the client holds at its newest version, the same bits as every other
//!   client that does. A fleet of threads therefore needs one copy, on which it writes each download.
//! * Its **state** ([`ClientState`]): personal parameters, its correction and its residual. It stays
//!   with the client and changes only by an answer that was [`Verdict::Taken`]. A client that failed,
//!   was late or was refused is as if it had not been asked. The server never reads it; where a whole
//!   federation runs in one process, its checkpoint holds it ([`Fleet::states`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use fedra_plan::{BlockScores, ByteCount, Plan, Probe, Round, Scope};
use fedra_privacy::NoiseMultiplier;
use fedra_seed::Seed;
use fedra_wire::{ClientId, Encoding, ParamValues};
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::number::sums;
use crate::privacy::private_steps::StepNoise;
use crate::split::SplitConfig;
use crate::storage::client_state::ClientState;
use crate::storage::state_store::StateHandle;
use crate::work::Work;

/// A payload that several receive: clones share its memory.
pub type SharedPayload = bytes::Bytes;

/// All clients, however they are reached.
pub trait Fleet {
    /// Every client there is, in ascending order of id.
    fn clients(&self) -> &[ClientInfo];

    /// Brings clients up to date, in ascending order; tells who could not be, why, and whether the
    /// download was sent all the same.
    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError>;

    /// Measures the blocks of the model at the given clients, in their order.
    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError>;

    /// Lets the given clients compare the attention of the model, on a fixed sample of their own
    /// training examples, with what they remember of it, and remember it anew. In their order.
    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError>;

    /// Carries out the requests, which come in ascending order of client, and delivers exactly one
    /// arrival for each, as soon as it is there and in any order.
    ///
    /// The engine folds in client order; what arrives before its turn waits, and beyond a few updates
    /// it waits on disk. When `arrive` returns an error the round has ended: forget all unsettled state
    /// and return that error.
    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError>;

    /// Scores the model. A central set gives one [`Scored`] without a client; the others give one
    /// for each client that has such examples, in client order, scored with the client's own
    /// personal parameters in place of the shared ones. Leaves all state as it is.
    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError>;

    /// Who has examples of a set, in ascending order: a model goes to them before they score it, and to
    /// nobody else.
    fn scorers(&self, on: EvaluationSet) -> Vec<ClientId>;

    /// Orders all clients to forget what they remember about a part: corrections and residuals.
    fn forget(&mut self, part: &Scope) -> Result<(), EngineError>;

    /// Takes back what the given clients answered last to a request that could be revoked: their
    /// states become what they were before it.
    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError>;

    /// An attempt at a round brought too few updates and is about to be repeated for the `again`-th time:
    /// those of the given clients that are away get a chance to come back. How long is the fleet's affair;
    /// clients of this process are never away. Returns at once when `stop` says so.
    fn await_return(
        &mut self,
        absent: &[ClientId],
        again: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError>;

    /// What the clients of this process keep between rounds, in client order, for a checkpoint or a
    /// branch; clients that keep nothing are absent, and so are clients on other machines, which keep
    /// it themselves. Handles: nothing is copied or read before somebody asks one for its state.
    fn states(&self) -> Vec<StateHandle>;

    /// Makes the clients what they were when [`Fleet::states`] was asked, and their shared model the
    /// one given. Clients that are absent keep nothing. States come one after another, so that there
    /// need not be a moment at which all are in memory; after an error the fleet is of no more use.
    fn restore(
        &mut self,
        shared: &ParamValues,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError>;
}

/// A client as it signed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Its number.
    pub id: ClientId,
    /// Its name for people.
    pub name: String,
    /// How many training examples it holds; an update may claim no more.
    pub examples: u64,
}

/// The place of a client in a fleet's list, in which clients stand by their numbers.
pub fn place_of(clients: &[ClientInfo], client: ClientId) -> Result<usize, EngineError> {
    let place = client.0 as usize;
    if place < clients.len() {
        return Ok(place);
    }
    let reason = format!("found the number {client}, expected one below {}", clients.len());
    Err(EngineError::Fleet { doing: "find a client", reason })
}

/// What brings one client up to date.
#[derive(Clone, Debug)]
pub struct Download {
    /// Whom.
    pub client: ClientId,
    /// The round that it is for.
    pub round: Round,
    /// How the values are written.
    pub encoding: Encoding,
    /// [`Kind::Values`](fedra_wire::Kind::Values) of the parameters that the client lacks. Clients
    /// that lack the same share one allocation. A personal parameter comes until an answer was taken,
    /// as the value to start from; a client that has one of its own keeps its own.
    pub payload: SharedPayload,
}

impl Download {
    /// The round, the encoding and the payload.
    pub fn parts(&self) -> (Round, Encoding, &[u8]) {
        (self.round, self.encoding, &self.payload)
    }
}

/// One client's task for one round; it has been brought up to date.
#[derive(Clone, Debug)]
pub struct TrainRequest {
    /// Who is to do it.
    pub client: ClientId,
    /// The round.
    pub round: Round,
    /// Where this client's draws of this round start.
    pub seed: Seed,
    /// The server's correction over [`TrainRequest::uploads`], such as a control variate
    /// ([`Kind::Variate`](fedra_wire::Kind::Variate), f32), for local rules that ask for one.
    pub correction: Option<SharedPayload>,
    /// What the client has, what of it trains (all else stays identical to the bit) and what it keeps
    /// in its state and never sends up.
    pub plan: Plan,
    /// How it trains.
    pub work: Work,
    /// Whether the answer may be revoked after it was taken, so that the state before it must still
    /// be there.
    pub revocable: bool,
    /// How rows cross the cut, where the plan has one.
    pub split: Option<Arc<SplitConfig>>,
}

/// A client that is not in the model, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// The client.
    pub client: ClientId,
    /// Why.
    pub reason: String,
    /// Whether its numbers have left the finite ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diverged: bool,
}

impl Absence {
    /// The client by its name, and why it is absent; clients begin some reasons with their own name.
    pub fn in_words(&self, clients: &[ClientInfo]) -> String {
        let info = clients.iter().find(|info| info.id == self.client);
        let name = info.map_or_else(|| format!("client {}", self.client), |info| info.name.clone());
        match self.reason.strip_prefix(&name).and_then(|rest| rest.strip_prefix(": ")) {
            Some(_) => self.reason.clone(),
            None => format!("{name}: {}", self.reason),
        }
    }
}

/// A client that a download did not bring up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsynced {
    /// The client, and why.
    pub absence: Absence,
    /// Whether the download went out: bytes to somebody who is not there are not spent.
    pub sent: bool,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The client it was made to.
    pub client: ClientId,
    /// What became of it.
    pub outcome: Outcome,
}

/// Whether a client came back with an update.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It did.
    Finished(Reply),
    /// It did not.
    Failed(Failure),
}

/// Why a client came back without an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In words.
    pub reason: String,
    /// Whether its numbers have left the finite ones: the same request would end in the same way again.
    pub diverged: bool,
}

impl Failure {
    /// The client's absence.
    pub(crate) fn of(self, client: ClientId) -> Absence {
        let Self { reason, diverged } = self;
        Absence { client, reason, diverged }
    }
}

/// Any other reason.
impl<Reason: Into<String>> From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self { reason: reason.into(), diverged: false }
    }
}

/// A client's answer.
///
/// Updates are changes, not new values. A change is small, so coarse encodings lose little of it;
/// an absent parameter means "no change" and never "zero"; a server optimiser takes it as it is;
/// and its norm is what privacy has to bound. The price is one rounding when it is added again.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// [`Kind::Change`](fedra_wire::Kind::Change) over [`TrainRequest::uploads`] in [`Work::encoding`].
    /// Its header carries the training loss, examples (1 to [`ClientInfo::examples`]) and steps
    /// (1 to `epochs * examples`, or `max_steps`); other claims are refused.
    pub payload: Vec<u8>,
    /// The change of the client's variate over [`TrainRequest::uploads`], as
    /// [`Kind::Variate`](fedra_wire::Kind::Variate) in f32, when the request brought one.
    pub correction: Option<Vec<u8>>,
    /// How long it worked.
    pub seconds: f64,
    /// The most tensor memory that it has held so far, where it has a process of its own.
    pub memory: Option<ByteCount>,
    /// Signal and noise of its steps, where they were private.
    pub noise: Option<StepNoise>,
}

/// What the engine thinks of an arrival; decides whether the client's new state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts.
    Taken,
    /// It does not: the client's state stays what it was before the order.
    Refused,
}

/// A question about how good the model is.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationRequest<'round> {
    /// The examples to score it on.
    pub on: EvaluationSet,
    /// The server's exact model, for the central set; clients score what they received.
    pub model: &'round ParamValues,
    /// Work on a throw-away copy before scoring, for methods whose clients adapt first (`FedBABU`).
    /// Meant for the clients' sets; the central set is scored without it.
    pub adapt: Option<&'round Adaptation>,
    /// The rounds that are complete.
    pub round: Round,
    /// Where the draws of the adaptation start; derive one per client from it.
    pub seed: Seed,
    /// How the model is cut, where it is: the middle answers from the server.
    pub split: Option<&'round SplitConfig>,
}

/// What each client trains on its own examples before it is scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptation {
    /// The part that adapts.
    pub learns: Scope,
    /// How.
    pub work: Work,
}

/// Whose examples score a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationSet {
    /// A test set that no client holds.
    CentralTest,
    /// What each client put aside to tune on.
    ClientValidation,
    /// What each client put aside to be tested on.
    ClientTest,
}

/// How good the model was on some examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Whose examples; `None` for a central set.
    pub client: Option<ClientId>,
    /// How many.
    pub examples: u64,
    /// The mean loss.
    #[serde(deserialize_with = "crate::number::one")]
    pub loss: f64,
    /// Scores by name, such as `span_f1`.
    #[serde(deserialize_with = "crate::number::by_name")]
    pub scores: BTreeMap<String, f64>,
    /// The counts behind those scores that are an F1 of counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tallies: BTreeMap<String, F1Counts>,
}

/// What an F1 is made of; tallies of several clients add up, their F1 does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct F1Counts {
    /// Predicted and true.
    pub true_positives: u64,
    /// Predicted, not true.
    pub false_positives: u64,
    /// True, not predicted.
    pub false_negatives: u64,
}

impl F1Counts {
    /// 2 TP / (2 TP + FP + FN); 0 when there is nothing to find and nothing found.
    pub fn f1(self) -> f64 {
        let all = 2 * self.true_positives + self.false_positives + self.false_negatives;
        if all == 0 { 0.0 } else { 2.0 * self.true_positives as f64 / all as f64 }
    }
}

sums!(F1Counts { true_positives, false_positives, false_negatives });

/// Measures blocks of the server's model on text that anybody may have.
pub trait PublicText: std::fmt::Debug + Send + Sync {
    /// The scores of all blocks.
    fn probe(&self, probe: Probe, model: &ParamValues) -> Result<BlockScores, EngineError>;
}

/// A question about the blocks of the model.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'round> {
    /// What to measure.
    pub probe: Probe,
    /// Whom to ask, in ascending order.
    pub clients: &'round [ClientId],
    /// The round that is about to be planned.
    pub round: Round,
    /// Where the draws start; derive one per client from it.
    pub seed: Seed,
    /// Most examples that a client should look at.
    pub examples: u32,
    /// Noise on the answer, over the most that one example can change it; absent: none.
    pub noise: Option<NoiseMultiplier>,
    /// How the model is cut, where it is: the server measures its blocks for a client.
    pub split: Option<&'round SplitConfig>,
}

/// One client's answer to a [`ProbeRequest`].
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Who measured.
    pub client: ClientId,
    /// What was measured, block by block.
    pub scores: BlockScores,
}

/// A question about where the model looks.
#[derive(Clone, Copy, Debug)]
pub struct AttentionRequest<'round> {
    /// Whom to ask, in ascending order.
    pub clients: &'round [ClientId],
    /// Whether the answer may be revoked, so that what they remembered before must still be there.
    pub revocable: bool,
    /// Where the draw of a client's sample starts; the same in every round.
    pub seed: Seed,
}

/// One client's answer to an [`AttentionRequest`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAttention {
    /// Who looked.
    pub client: ClientId,
    /// How far attention has moved; `None` when the client looked for the first time.
    pub moved: Option<AttentionShift>,
}

/// How far attention has moved, block by block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionShift {
    /// Since the client first looked.
    pub since_first: Vec<f64>,
    /// Since it last looked.
    pub since_last: Vec<f64>,
}
