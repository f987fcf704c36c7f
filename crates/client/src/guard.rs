//! A client that keeps its own promise: it counts what it is asked to release about its examples, in a
//! ledger of its own, and refuses what would pass its budget or has no noise.
//!
//! A server says how steps are made private, and a client need not believe that it says so every time. So
//! the noise of each request is accounted as it came, with the client's own number of examples, before
//! anything is computed. The same work again, to the same bits, counts once.

use std::path::PathBuf;

use fedra_engine::{
    Account, BLOCK_SCORES, EXAMPLE_GRADIENTS, EngineError, ProbeRequest, TrainRequest,
};
use fedra_plan::{Digest, Round};
use fedra_privacy::{Event, Ledger, Promise, Release};

use crate::error::{ClientError, Result};

/// What a client promises to those whose rows it holds, and what it has released.
#[derive(Clone, Debug)]
pub struct PrivacyGuard {
    account: Account,
    exact: Exact,
}

/// What may leave as it is, beside what is private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// Scores of blocks, which the ledger then calls a release without a bound.
    pub block_scores: bool,
    /// Scores of the model on validation and test examples, which the promise does not cover.
    pub client_scores: bool,
}

impl PrivacyGuard {
    /// Goes on with the ledger in a file, or begins it.
    pub fn open(promise: Promise, file: PathBuf, exact: Exact) -> Result<Self> {
        let account = Account::open(promise, file).map_err(refusal)?;
        Ok(Self { account, exact })
    }

    /// What was promised and released.
    pub const fn ledger(&self) -> &Ledger {
        self.account.ledger()
    }

    /// Counts the steps of a request, which are computed from this input; refuses those without noise.
    pub(crate) fn train(
        &mut self,
        request: &TrainRequest,
        (name, examples, input): (&str, u64, Digest),
    ) -> Result<()> {
        let work = &request.work;
        let Some(private) = work.private else {
            return Err(refused("steps without noise", "steps that hide single examples"));
        };
        if work.head_probe.is_some() || request.split.is_some() {
            return Err(refused("more than noised gradients", "nothing beside them"));
        }
        let counted = private.release(work, examples);
        let counted =
            counted.map_err(|error| ClientError::Privacy { reason: error.to_string() })?;
        let Some(release) = counted else { return Ok(()) };
        self.record((request.round, EXAMPLE_GRADIENTS), (name, input), release)
    }

    /// Counts scores of blocks, under noise or not.
    pub(crate) fn probe(
        &mut self,
        request: &ProbeRequest<'_>,
        (name, examples, input): (&str, u64, Digest),
        blocks: u16,
    ) -> Result<()> {
        let release = match request.noise {
            Some(noise) => {
                let looked = examples.min(u64::from(request.examples)).max(1);
                let sensitivity = f64::from(blocks).sqrt() / looked as f64;
                let deviation = noise.get() * sensitivity;
                Release::Gaussian { sensitivity, deviation, count: std::num::NonZeroU64::MIN }
            }
            None if self.exact.block_scores => Release::NonPrivate {
                what: "what clients measured of blocks".to_owned(),
                why: "the choice of blocks follows from it as it is".to_owned(),
            },
            None => return Err(refused("scores of blocks without noise", "none, or noised ones")),
        };
        self.record((request.round, BLOCK_SCORES), (name, input), release)
    }

    /// Refuses scores of the model, unless they were agreed on.
    pub(crate) fn evaluate(&self) -> Result<()> {
        if self.exact.client_scores {
            return Ok(());
        }
        Err(refused("scores on its own examples", "none: privacy.client_scores is false"))
    }

    /// Refuses to tell where the model looks.
    pub(crate) fn attention() -> ClientError {
        refused("how attention moves on its examples", "nothing that no promise covers")
    }

    fn record(
        &mut self,
        (round, mechanism): (Round, &str),
        (client, input): (&str, Digest),
        release: Release,
    ) -> Result<()> {
        let (mechanism, client) = (mechanism.to_owned(), Some(client.to_owned()));
        let event = Event { round, mechanism, client, input: Some(input), release };
        self.account.announce(&[event]).map_err(refusal)
    }
}

fn refused(found: &str, expected: &str) -> ClientError {
    ClientError::Privacy { reason: format!("was asked for {found}, expected {expected}") }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are said in their own words")]
fn refusal(error: EngineError) -> ClientError {
    let reason = match error {
        EngineError::Privacy { reason } => reason,
        other => other.to_string(),
    };
    ClientError::Privacy { reason }
}
