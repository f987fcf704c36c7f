//! The key of one request: noise that comes again when the same work is done again, and never otherwise.
//!
//! A server that could make a client answer two different questions with the same noise could subtract the
//! answers. So the key of a round's noise is made from the client's secret and from everything that the
//! answer is computed from: the question, the model as it was received, and what is the client's own.

use fedra_compute::{Params, SecretKey};
use fedra_engine::{ClientId, ProbeRequest, TrainRequest};
use fedra_plan::Digest;
use sha2::{Digest as _, Sha256};

/// What the answer to a request is computed from, beside the client's examples.
pub(crate) fn input(request: &TrainRequest, params: &Params) -> Digest {
    let TrainRequest { client, round, seed, correction, plan, work, .. } = request;
    let asked = format!("{:?}", (client, round, seed, plan, work));
    digest(&asked, correction.as_deref().unwrap_or_default(), params)
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

/// The key of that answer's noise.
pub(crate) fn key(secret: &SecretKey, input: &Digest) -> SecretKey {
    secret.of("examples").over(input.as_bytes())
}
