//! What a server and a site say to each other over a join stream.
//!
//! ```text
//! site                                   server
//!   Hello   who, what was agreed, what it kept  ->   checked, named what differs if anything does
//!           <-  Welcome  which of its states counts, what it is to forget
//!           <-  Request  one at a time                 Answer ->
//! ```
//!
//! Requests are JSON beside binary payloads: work, encodings and seeds already have a written form that
//! experiment files use, so there is one and not two; parameters, masks and scores have an encoding of
//! their own, whose lengths are the bytes that a report counts.

use std::collections::BTreeMap;
use std::fmt::Display;

use bytes::Bytes;
use fedra_engine::{
    Adaptation, AttentionShift, Download, EvaluationSet, NoiseMultiplier, Scored, SplitConfig,
    StepNoise, TrainRequest, Work,
};
use fedra_plan::{ByteCount, Cut, Digest, Layout, Plan, Probe, Round, Scope};
use fedra_seed::Seed;
use fedra_wire::{ClientId, Encoding, Mask, payload_length};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::error::NetError;
use crate::frame::{Limits, Message};

/// The version of what is said here; both sides have to speak the same.
pub const PROTOCOL: u32 = 3;

/// The method under which a site joins.
pub const JOIN: &str = "/fedra.v1.Fedra/Join";

/// What both sides have to have alike, by name: the seed, the settings of the method, digests of first
/// weights, labels and tokenizer.
pub type ConfigFingerprint = BTreeMap<String, String>;

/// What a message may weigh where a model of this layout is trained: an update with its correction, in
/// the widest encoding.
pub fn limits(layout: &Layout) -> Limits {
    let whole = payload_length(layout, &Scope::everything(layout), Encoding::F32) as u64;
    Limits::of_bytes(4 * whole + (64 << 10))
}

/// The first thing that a site says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The name under which it takes part.
    pub client: String,
    /// What it believes the experiment to be.
    pub agreement: ConfigFingerprint,
    /// What it has.
    pub counts: Counts,
    /// Which examples these are.
    pub data: DataDigest,
    /// Which shared model it holds.
    pub model: HeldModel,
    /// The states that it kept, and of which run.
    pub run: Option<u64>,
    /// Their labels.
    pub kept: Vec<StateVersion>,
    /// A number that is this process's alone.
    pub process: u64,
}

/// How much a site has; the server plans and reports by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Training examples.
    pub train: u64,
    /// Examples put aside to decide on.
    pub validation: u64,
    /// Examples put aside to report on.
    pub test: u64,
    /// Tokens of the training examples.
    pub tokens: u64,
}

/// Which examples a site has, so that the server can tell whether they are those of before and nothing
/// else: a secret that stays in the site's state folder is mixed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataDigest {
    /// The digest of the secret: digests under two secrets cannot be compared.
    pub secret: Digest,
    /// The digest of the examples under it.
    pub examples: Digest,
}

/// The shared model that a site holds in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HeldModel {
    /// The one that all start from.
    First,
    /// One that a session of a server brought up to date.
    Of {
        /// That session.
        session: u64,
    },
}

/// Which answer of a client a state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateVersion {
    /// The round.
    pub round: Round,
    /// What was answered in it.
    pub step: RoundStage,
}

/// The answers that change what a client keeps, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundStage {
    /// It compared attention.
    Looked,
    /// It trained.
    Trained,
}

/// A part whose corrections and residuals every client is to forget once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Which one it is, counted from 1.
    pub number: u64,
    /// The part.
    pub part: Scope,
}

/// What the server says to a site that it lets in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The run, from its first round to its last, whatever becomes of the process.
    pub run: u64,
    /// The process that serves it now.
    pub session: u64,
    /// The site's number.
    pub client: ClientId,
    /// The last answer of the site that counts; its state is the one to go on from.
    pub label: Option<StateVersion>,
    /// All that was ever to be forgotten.
    pub forgets: Vec<Forget>,
}

/// A request, and the state of the client that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The client's last answer that counts; its state is the one to go on from. It is said every time,
    /// so that no verdict can get lost: what the site keeps is what the server says, whatever the site
    /// heard or did not hear before.
    pub base: Option<StateVersion>,
    /// What is asked.
    pub request: Request,
}

/// What a site is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// To write values on its copy of the shared model: one payload.
    Sync {
        /// The round that it is for.
        round: Round,
        /// How they are written.
        encoding: Encoding,
    },
    /// To measure blocks.
    Probe {
        /// What.
        probe: Probe,
        /// The round.
        round: Round,
        /// Where draws start.
        seed: u64,
        /// Most examples to look at.
        examples: u32,
        /// Noise on the scores, over the most that one example can change them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noise: Option<NoiseMultiplier>,
        /// How rows cross the cut, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        split: Option<SplitConfig>,
    },
    /// To compare attention with what it remembers.
    CompareAttention {
        /// The round.
        round: Round,
        /// Where the draw of its sample starts.
        seed: u64,
    },
    /// To train: masks of what learns, of what it has and of what it keeps, and the correction if there
    /// is one.
    Train {
        /// The round.
        round: Round,
        /// Where draws start.
        seed: u64,
        /// How.
        work: Work,
        /// The blocks at the server.
        cut: Option<(u16, u16)>,
        /// How rows cross it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        split: Option<SplitConfig>,
    },
    /// To stand where the server says: its last answer was taken, or refused, or revoked. Not answered.
    Settle,
    /// To score the model.
    Evaluate {
        /// On which examples.
        on: EvaluationSet,
        /// What adapts first.
        adapt: Option<Adaptation>,
        /// The rounds that are complete.
        round: Round,
        /// Where draws start.
        seed: u64,
        /// How the model is cut, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        split: Option<SplitConfig>,
    },
    /// To forget a part. Not answered.
    Forget(Forget),
    /// To go home: the run has finished. Not answered.
    End {
        /// How it ended.
        how: RunEnd,
        /// Why, for people.
        reason: String,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// All rounds are complete.
    Complete,
    /// The server could not go on.
    GaveUp,
}

/// What a site answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The values are written.
    Synced,
    /// What was measured: one payload of scores.
    Evidence,
    /// How attention has moved.
    Attention(AttentionShift),
    /// It looked for the first time.
    FirstLook,
    /// An update, and the change of the correction if one was sent.
    Trained {
        /// How long it worked.
        seconds: f64,
        /// The most tensor memory that it has held so far.
        #[serde(default)]
        memory: Option<ByteCount>,
        /// Signal and noise of private steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noise: Option<StepNoise>,
    },
    /// How good the model is; `None` without such examples.
    Scored {
        /// The scores.
        scored: Option<Scored>,
    },
    /// It could not.
    Failed {
        /// Why.
        reason: String,
        /// Whether its numbers have left the finite ones.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        diverged: bool,
    },
}

impl Asked {
    /// The message; refuses a request that would not be read as it is, to the bit.
    pub fn message(&self, id: u64, payloads: Vec<Bytes>) -> Result<Message, NetError> {
        let message = Message { payloads, ..Message::of(id, self) };
        let wrong = |reason: &dyn Display| NetError::meaning("writing a request", reason);
        let back: Self = serde_json::from_slice(&message.meta).map_err(|error| wrong(&error))?;
        if back == *self { Ok(message) } else { Err(wrong(&"it would be read as another one")) }
    }
}

impl Request {
    /// A download.
    pub fn of_download(download: &Download) -> (Self, Vec<Bytes>) {
        let Download { client: _, round, encoding, payload } = download;
        let request = Self::Sync { round: *round, encoding: *encoding };
        (request, vec![payload.clone()])
    }

    /// Training.
    pub fn of_training(
        request: &TrainRequest,
        layout: &Layout,
    ) -> Result<(Self, Vec<Bytes>), NetError> {
        let TrainRequest { client, round, seed, correction, plan, work, revocable: _, split } =
            request;
        let mask = |part: &Scope| {
            let mask = Mask { round: *round, client: *client, learns: part.clone() };
            let written = mask.encode(layout).map(Bytes::from);
            written.map_err(|error| NetError::meaning("writing a plan", error))
        };
        let mut payloads = vec![mask(plan.learns())?, mask(plan.has())?, mask(plan.keeps())?];
        payloads.extend(correction.clone());
        let cut = plan.cut().server_blocks().map(|blocks| (blocks.start, blocks.end));
        let split = split.as_deref().cloned();
        let asked = Self::Train { round: *round, seed: seed.0, work: work.clone(), cut, split };
        Ok((asked, payloads))
    }
}

/// Training as it was asked for, out of its message.
pub(crate) fn read_training(
    (round, seed, work, cut, split): (Round, u64, Work, Option<(u16, u16)>, Option<SplitConfig>),
    payloads: &[Bytes],
    (client, layout): (ClientId, &Layout),
) -> Result<TrainRequest, NetError> {
    let wrong = |reason: &dyn Display| NetError::meaning("a request to train", reason);
    let (masks, rest) = payloads.split_first_chunk::<3>().ok_or_else(|| {
        let found = payloads.len();
        wrong(&format!("found {found} payloads, expected 3 masks and a correction"))
    })?;
    let correction = match rest {
        [] => None,
        [correction] => Some(correction.clone()),
        more => return Err(wrong(&format!("found {} payloads after the masks", more.len()))),
    };
    let part = |bytes: &Bytes| {
        let mask = Mask::decode(bytes, layout).map_err(|error| wrong(&error))?;
        if (mask.round, mask.client) != (round, client) {
            return Err(wrong(&"found a mask of another client or round"));
        }
        Ok(mask.learns)
    };
    let [learns, has, keeps] = masks;
    let (learns, has, keeps) = (part(learns)?, part(has)?, part(keeps)?);
    let cut = match cut {
        None => Ok(Cut::none()),
        Some((start, end)) => Cut::server(start..end, layout.blocks()),
    };
    let cut = cut.map_err(|error| wrong(&error))?;
    let plan = Plan::new(layout, learns, cut).map_err(|error| wrong(&error))?;
    let plan = plan.within(&has).keeping(&keeps);
    work.check().map_err(|error| wrong(&error))?;
    let seed = Seed(seed);
    // What it kept before is in its state folder, whether this can be revoked or not.
    let split = split.map(std::sync::Arc::new);
    Ok(TrainRequest { client, round, seed, correction, plan, work, revocable: false, split })
}

/// Refuses whoever speaks another version.
pub(crate) fn check_protocol(found: u32) -> Result<(), Status> {
    if found == PROTOCOL {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "found protocol {found}, expected {PROTOCOL}: client and server are different versions of fedra"
    )))
}

/// The first difference between what was agreed on at two places, in words. A key of the experiment's file
/// comes before what follows from such keys: another seed also means other weights.
pub(crate) fn disagreement(
    (left, here): (&ConfigFingerprint, &str),
    (right, there): (&ConfigFingerprint, &str),
) -> Option<String> {
    let differs = |key: &&String| left.get(*key) != right.get(*key);
    let keys = left.keys().chain(right.keys()).filter(differs);
    let key = keys.min_by_key(|key| (key.contains(' '), *key))?;
    Some(format!("`{key}` is {} {here} and {} {there}", shown(left, key), shown(right, key)))
}

/// A fact, or the settings within it where one side has a word and the other a table.
fn shown(agreement: &ConfigFingerprint, key: &str) -> String {
    if let Some(value) = agreement.get(key) {
        return value.clone();
    }
    let within = |(name, value): (&String, &String)| {
        let name = name.strip_prefix(key)?.strip_prefix('.')?;
        Some(format!("{name} = {value}"))
    };
    let within: Vec<String> = agreement.iter().filter_map(within).collect();
    if within.is_empty() { "not set".to_owned() } else { format!("{{ {} }}", within.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_key_that_a_person_can_change() {
        let facts = |facts: &[(&str, &str)]| -> ConfigFingerprint {
            facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let check = |site: &[(&str, &str)], server: &[(&str, &str)], expected: Option<&str>| {
            let (site, server) = (facts(site), facts(server));
            let found = disagreement((&site, "at the client"), (&server, "at the server"));
            assert_eq!(found.as_deref(), expected);
        };
        check(
            &[("model: its initial weights", "18f9"), ("seed", "4")],
            &[("model: its initial weights", "77aa"), ("seed", "3")],
            Some("`seed` is 4 at the client and 3 at the server"),
        );
        check(
            &[("work.optimiser.name", "sgd")],
            &[("work.optimiser", "adamw")],
            Some("`work.optimiser` is { name = sgd } at the client and adamw at the server"),
        );
        check(
            &[("data.max_test", "5")],
            &[],
            Some("`data.max_test` is 5 at the client and not set at the server"),
        );
        check(&[("seed", "3")], &[("seed", "3")], None);
    }
}
