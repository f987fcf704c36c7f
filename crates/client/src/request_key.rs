//! The key of one request: noise that comes again when the same work is done again, and never otherwise.
//!
//! A server that could make a client answer two different questions with the same noise could subtract the
//! answers. So the key of a round's noise is made from the client's secret and from everything that the
//! answer is computed from: the question, the model as it was received, and what is the client's own.

use fedra_compute::{Params, SecretKey};
use fedra_engine::{ClientId, EvaluationRequest, ProbeRequest, TrainRequest};
use fedra_plan::{Digest, Plan, Side};
use sha2::{Digest as _, Sha256};

/// What the answer to a request is computed from, beside the client's examples.
pub(crate) fn input(request: &TrainRequest, params: &Params) -> Digest {
    let TrainRequest { client, round, seed, correction, plan, work, split, .. } = request;
    let correction = correction.as_deref().unwrap_or_default();
    match split {
        None => digest(&format!("{:?}", (client, round, seed, plan, work)), correction, params),
        Some(split) => {
            let asked = format!("{:?}", (client, round, seed, plan, work, split));
            digest(&asked, correction, &held(params, plan))
        }
    }
}

/// What the rows of a scoring are computed from, beside the client's examples and the server's answers.
pub(crate) fn score_input(
    request: &EvaluationRequest<'_>,
    (client, plan): (ClientId, &Plan),
    params: &Params,
) -> Digest {
    let EvaluationRequest { on, round, seed, split, .. } = request;
    digest(&format!("{:?}", (client, on, round, seed, split)), &[], &held(params, plan))
}

/// The client's part of a cut model: at a site there is no other.
fn held(params: &Params, plan: &Plan) -> Params {
    let own = plan.held_by(Side::Client);
    params.iter().filter(|(id, _)| own.contains(*id)).map(|(id, it)| (id, it.clone())).collect()
}

/// What the answer to a probe is computed from, beside the client's examples.
pub(crate) fn probe_input(request: &ProbeRequest<'_>, client: ClientId, params: &Params) -> Digest {
    let ProbeRequest { probe, round, seed, examples, noise, .. } = request;
    digest(&format!("{:?}", (probe, client, round, seed, examples, noise)), &[], params)
}

fn digest(asked: &str, correction: &[u8], params: &Params) -> Digest {
    let mut sum = Sha256::new();
    let mut list = |bytes: &[u8]| {
        sum.update((bytes.len() as u64).to_le_bytes());
        sum.update(bytes);
    };
    list(asked.as_bytes());
    list(correction);
    for (id, tensor) in params.iter() {
        list(id.to_string().as_bytes());
        let values = tensor.to_host();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        list(&bytes);
    }
    Digest::from_bytes(sum.finalize().into())
}

/// The key of the noise on rows that cross a cut, before the first answer.
pub(crate) fn row_key(secret: &SecretKey, input: &Digest) -> SecretKey {
    secret.of("rows").over(input.as_bytes())
}

/// The key of that answer's noise.
pub(crate) fn key(secret: &SecretKey, input: &Digest) -> SecretKey {
    secret.of("examples").over(input.as_bytes())
}
