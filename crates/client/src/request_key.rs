//! The key of one request: noise that comes again when the same work is done again, and never otherwise.
//!
//! Whoever could make a client answer two different questions with the same noise, or one question from
//! two versions of its rows, could subtract the answers. So the key of a round's noise is made from the client's
//! secret and from everything that the answer is computed from: the question, the model as it was
//! received, what is the client's own, and its examples.

use std::borrow::Cow;

use fedra_compute::{Params, SecretKey};
use fedra_engine::{ClientId, EvaluationRequest, OptimiserState, ProbeRequest, TrainRequest};
use fedra_plan::{Digest, Plan, Side};
use fedra_seed::Seed;
use fedra_wire::to_bytes;
use sha2::{Digest as _, Sha256};

use crate::shard_digest::DataSecret;
use crate::shards::Shard;

/// What answers are computed from beside the question.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// The client's secret: with another one the same answer has other noise, and is another release.
    pub secret: &'a SecretKey,
    /// The client's examples.
    pub shard: &'a Shard,
    /// The model, with what is the client's own in its place.
    pub params: &'a Params,
}

impl Sources<'_> {
    /// What the answer to a request is computed from.
    pub(crate) fn of_training(
        self,
        request: &TrainRequest,
        moments: Option<&OptimiserState>,
    ) -> Digest {
        let TrainRequest { client, round, seed, correction, plan, work, split, .. } = request;
        let correction = correction.as_deref().unwrap_or_default();
        let correction = &match moments.filter(|moments| !moments.is_empty()) {
            None => Cow::Borrowed(correction),
            // Two answers from other moments are two answers, whatever else they have in common.
            Some(moments) => Cow::Owned([correction, &digest_of(moments)].concat()),
        };
        match split {
            None => self.digest(&format!("{:?}", (client, round, seed, plan, work)), correction),
            Some(split) => {
                let asked = format!("{:?}", (client, round, seed, plan, work, split));
                Sources { params: &held(self.params, plan), ..self }.digest(&asked, correction)
            }
        }
    }

    /// What the rows of a scoring are computed from, beside the server's answers.
    pub(crate) fn of_scoring(
        self,
        request: &EvaluationRequest<'_>,
        (client, plan): (ClientId, &Plan),
    ) -> Digest {
        let EvaluationRequest { on, round, seed, split, .. } = request;
        let asked = format!("{:?}", (client, on, round, seed, split));
        Sources { params: &held(self.params, plan), ..self }.digest(&asked, &[])
    }

    /// What the answer to a probe is computed from.
    pub(crate) fn of_probing(self, request: &ProbeRequest<'_>, client: ClientId) -> Digest {
        let ProbeRequest { probe, round, seed, examples, noise, .. } = request;
        self.digest(&format!("{:?}", (probe, client, round, seed, examples, noise)), &[])
    }

    fn digest(self, asked: &str, correction: &[u8]) -> Digest {
        let mut sum = Sha256::new();
        let mut list = |bytes: &[u8]| {
            sum.update((bytes.len() as u64).to_le_bytes());
            sum.update(bytes);
        };
        list(asked.as_bytes());
        list(correction);
        for draw in self.secret.of("commitment").uniforms().take(4) {
            list(&draw.to_le_bytes());
        }
        // It never leaves the client but as a part of this digest, behind the model's numbers or a key.
        list(self.shard.digest(&DataSecret::default()).as_bytes());
        for (id, tensor) in self.params.iter() {
            list(id.to_string().as_bytes());
            list(&to_bytes(&tensor.to_host()));
        }
        Digest::from_bytes(sum.finalize().into())
    }
}

/// Of what an optimiser remembers.
fn digest_of(OptimiserState { steps, first, second }: &OptimiserState) -> [u8; 32] {
    let mut sum = Sha256::new();
    for (id, steps) in steps {
        sum.update(format!("{id} {steps}\n").as_bytes());
        for moment in [first.get(*id), second.get(*id)] {
            sum.update(to_bytes(moment.unwrap_or_default()));
        }
    }
    sum.finalize().into()
}

/// The client's part of a cut model: at a site there is no other.
fn held(params: &Params, plan: &Plan) -> Params {
    let own = plan.held_by(Side::Client);
    params.iter().filter(|(id, _)| own.contains(*id)).map(|(id, it)| (id, it.clone())).collect()
}

/// Where the sample of a noised measurement starts.
pub(crate) fn sample_seed(secret: &SecretKey, input: &Digest) -> Seed {
    let key = secret.of("sample").over(input.as_bytes());
    key.uniforms().take(2).fold(Seed(0), |seed, draw| seed.with(draw.to_bits()))
}
