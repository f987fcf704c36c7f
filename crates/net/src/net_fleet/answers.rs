//! What an answer brought, and why it is none where it is not what was asked for.

use bytes::Bytes;
use fedra_engine::{Failure, Outcome, Reply, StepNoise};
use fedra_plan::{ByteCount, Round};
use fedra_wire::{ClientId, Measured};

use crate::protocol::Answer;

pub(super) fn read_evidence(
    payloads: &[Bytes],
    (round, client, blocks): (Round, ClientId, u16),
) -> Result<Vec<f64>, String> {
    let [payload] = payloads else {
        return Err(format!("sent {} payloads, expected the scores", payloads.len()));
    };
    let measured = Measured::decode(payload, (round, client), blocks);
    let measured = measured.map_err(|error| error.to_string())?;
    Ok(measured.scores.into_iter().map(f64::from).collect())
}

pub(super) fn read_reply(
    payloads: Vec<Bytes>,
    (seconds, memory, noise): (f64, Option<ByteCount>, Option<StepNoise>),
) -> Outcome {
    let mut payloads = payloads.into_iter();
    match (payloads.next(), payloads.next(), payloads.next()) {
        (Some(payload), correction, None) => {
            let (payload, correction) = (payload.into(), correction.map(Vec::from));
            Outcome::Finished(Reply { payload, correction, seconds, memory, noise })
        }
        (None, _, _) => Outcome::Failed("sent no update".into()),
        (Some(_), _, Some(_)) => {
            Outcome::Failed("sent more than an update and its correction".into())
        }
    }
}

/// Why an answer is no update.
pub(super) fn no_update(answer: Answer, expected: &str) -> Failure {
    let diverged = matches!(answer, Answer::Failed { diverged: true, .. });
    Failure { reason: unexpected(answer, expected), diverged }
}

/// Why an answer is none.
pub(super) fn unexpected(answer: Answer, expected: &str) -> String {
    let found = match answer {
        Answer::Failed { reason, .. } => return reason,
        Answer::Synced => "that it is up to date",
        Answer::Evidence => "scores of blocks",
        Answer::Attention(_) | Answer::FirstLook => "attention",
        Answer::Trained { .. } => "an update",
        Answer::Scored { .. } => "scores of the model",
    };
    format!("answered {found}, expected {expected}")
}
