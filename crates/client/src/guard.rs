//! A client that keeps its own guarantee: it counts what it is asked to release about its examples, in a
//! ledger of its own, and refuses what would pass its budget or has no noise.
//!
//! A server says how steps are made private, and a client need not believe that it says so every time. So
//! the noise of each request is accounted as it came, with the client's own number of examples, before
//! anything is computed. The same work again, to the same bits, counts once.

use std::path::PathBuf;

use fedra_engine::{
    Account, BLOCK_SCORES, EXAMPLE_GRADIENTS, EndsLearn, EngineError, EvaluationRequest,
    ProbeRequest, RowsAtCut, SplitConfig, TrainRequest, noised_scores,
};
use fedra_plan::{Digest, Round, Side};
use fedra_privacy::{Event, Guarantee, Ledger, NoiseMultiplier, Release};

use crate::error::{ClientError, Result};

/// What a client guarantees to those whose rows it holds, and what it has released.
#[derive(Clone, Debug)]
pub struct PrivacyGuard {
    account: Account,
    agreed: Agreed,
}

/// What the guard of a cut model has to know of the client's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnRows {
    /// Tokens of its longest training example.
    pub longest: usize,
    /// Whether its ends have learned in a round before.
    pub ends: EndsLearn,
}

/// What was agreed on beside the guarantee: what may leave as it is, and the least noise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreed {
    /// Scores of blocks, which the ledger then calls a release without a bound.
    pub block_scores: bool,
    /// Scores of the model on validation and test examples, which the guarantee does not cover.
    pub client_scores: bool,
    /// The least noise that steps have to have, where that was agreed on.
    pub noise: Option<NoiseMultiplier>,
}

impl PrivacyGuard {
    /// Continues with the ledger in a file, or begins it.
    pub fn open(guarantee: Guarantee, file: PathBuf, agreed: Agreed) -> Result<Self> {
        let account = Account::open(guarantee, file).map_err(refusal)?;
        Ok(Self { account, agreed })
    }

    /// The guarantee, and what was released.
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
        if work.head_probe.is_some() || request.split.is_some() || is_cut(request) {
            return Err(refused("more than noised gradients", "nothing else"));
        }
        if self.agreed.noise.is_some_and(|least| private.noise < least) {
            return Err(refused("less noise than agreed", "at least privacy.noise"));
        }
        let counted = work.release(&private, examples).map_err(ClientError::privacy)?;
        let Some(release) = counted else { return Ok(()) };
        self.record((request.round, EXAMPLE_GRADIENTS), (name, Some(input)), release)
    }

    /// Counts the rows that a request makes cross the cut, with the client's own lengths; refuses rows
    /// without noise, and updates of ends that learned without any.
    pub(crate) fn train_cut(
        &mut self,
        (request, split): (&TrainRequest, &SplitConfig),
        (name, examples): (&str, u64),
        own: OwnRows,
    ) -> Result<()> {
        let TrainRequest { plan, work, .. } = request;
        if !is_cut(request) || work.private.is_some() || work.head_probe.is_some() {
            return Err(refused("more than rows at a cut", "nothing else"));
        }
        if !request.plan.uploads().is_empty() {
            return Err(refused("updates of its ends without noise", "ends that stay with it"));
        }
        let learns = !plan.trained_by(Side::Client).is_empty();
        let ends = if learns { EndsLearn::Yes } else { own.ends };
        if ends == EndsLearn::Yes && work.clip.is_some() {
            return Err(refused("the norm of its ends' gradient", "no work.clip"));
        }
        let relation = self.ledger().guarantee().relation;
        let mut rows = RowsAtCut::new(split, relation, ends).map_err(refusal)?;
        rows.longest = own.longest as u64;
        for (mechanism, release) in rows.releases(plan, work, examples) {
            self.record((request.round, mechanism), (name, None), release)?;
        }
        Ok(())
    }

    /// Counts scores of blocks, under noise or not.
    pub(crate) fn probe(
        &mut self,
        request: &ProbeRequest<'_>,
        (name, examples, input): (&str, u64, Digest),
        blocks: u16,
    ) -> Result<()> {
        if request.split.is_some() {
            return Err(refused(
                "measurements across a cut",
                "none: the privacy guarantee does not cover them",
            ));
        }
        let release = match request.noise {
            Some(noise) => {
                let looked = (blocks, examples.min(u64::from(request.examples)));
                noised_scores(noise, looked, std::num::NonZeroU64::MIN)
            }
            None if self.agreed.block_scores => Release::NonPrivate {
                what: "block scores that clients measured".to_owned(),
                why: "the choice of blocks uses them without noise".to_owned(),
            },
            None => return Err(refused("scores of blocks without noise", "none, or noised ones")),
        };
        self.record((request.round, BLOCK_SCORES), (name, Some(input)), release)
    }

    /// Refuses scores of the model, unless they were agreed on. Where the model is cut, rows of the scored
    /// examples leave too, under noise; they must not be those of ends that learned without any.
    pub(crate) fn evaluate(&self, request: &EvaluationRequest<'_>, own: OwnRows) -> Result<()> {
        if !self.agreed.client_scores {
            let expected = "none: privacy.client_scores is false";
            return Err(refused("scores on its own examples", expected));
        }
        let Some(split) = request.split else { return Ok(()) };
        let relation = self.ledger().guarantee().relation;
        RowsAtCut::new(split, relation, own.ends).map_err(refusal)?;
        match own.ends {
            EndsLearn::No => Ok(()),
            EndsLearn::Yes => Err(refused("scores of ends that learned without noise", "none")),
        }
    }

    /// Refuses to tell where the model looks.
    pub(crate) fn attention() -> ClientError {
        refused(
            "attention statistics of its examples",
            "none: the privacy guarantee does not cover it",
        )
    }

    fn record(
        &mut self,
        (round, mechanism): (Round, &str),
        (client, input): (&str, Option<Digest>),
        release: Release,
    ) -> Result<()> {
        let (mechanism, client) = (mechanism.to_owned(), Some(client.to_owned()));
        let event = Event { round, mechanism, client, input, release };
        self.account.announce(&[event]).map_err(refusal)
    }
}

/// Whether the server has a part of the model.
fn is_cut(request: &TrainRequest) -> bool {
    request.plan.cut().server_blocks().is_some()
}

fn refused(found: &str, expected: &str) -> ClientError {
    ClientError::privacy(format!("the server asked for {found}, expected {expected}"))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are said in their own words")]
fn refusal(error: EngineError) -> ClientError {
    let reason = match error {
        EngineError::Disk { doing, path, source } => {
            return ClientError::Ledger { doing: format!("{doing} {path}"), source };
        }
        EngineError::Privacy { reason } | EngineError::OverBudget { reason } => reason,
        other => other.to_string(),
    };
    ClientError::Privacy { reason }
}
