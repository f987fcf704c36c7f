//! Where a model looks, on a fixed sample of a client's examples, compared with where it looked.
//!
//! What is compared is the pattern itself, every weight of every head, not a summary of it, so the
//! client has to keep patterns: the first it saw and the last. They are kept small on purpose.
//!
//! ```text
//! shift of a block   mean over examples, heads and queries of  1/2 sum over keys |P now - P then|
//! memory             at most 2 x PATTERN_NUMBERS x 4 bytes a client: 8 MiB
//! ```

use std::sync::Arc;

use fedra_compute::{Device, Params, Tape};
use fedra_data::Encoded;
use fedra_engine::{AttentionMemory, AttentionShift};
use fedra_model::{Batch, Model};

use crate::error::{ClientError, Result};

/// Most examples of a sample.
pub const PATTERN_EXAMPLES: usize = 8;
/// Most tokens of an example; the rest of it is not looked at.
pub const PATTERN_TOKENS: usize = 64;
/// Most numbers of one pattern. Examples are shortened, then left out, until they fit.
pub const PATTERN_NUMBERS: usize = 1 << 20;

/// How attention on a sample moved since the first time and since the last, and what to remember of it now.
pub(crate) fn compare(
    (model, device): (&Model, &Device),
    params: &Params,
    (client, sample): (&str, &[Encoded]),
    before: &AttentionMemory,
) -> Result<(Option<AttentionShift>, AttentionMemory)> {
    let sequences = shortened(model, sample);
    if sequences.is_empty() {
        return Err(ClientError::nothing(client, "example to look at"));
    }
    let mut batch = Batch::new(&sequences)?;
    if sample.iter().any(|example| !example.types.is_empty()) {
        let types = sample.iter().zip(&sequences).flat_map(|(example, ids)| {
            let padded = example.types.iter().copied().chain(std::iter::repeat(0));
            padded.take(ids.len())
        });
        batch = batch.with_segments(types.collect())?;
    }
    let mut tape = Tape::new(device);
    let blocks = model.attention_patterns(&mut tape, params.frozen(), &batch)?;
    let rows: usize = sequences.iter().map(|ids| model.heads() * ids.len()).sum();
    let now: Arc<[f32]> = blocks.concat().into();
    // Another sample or another model: nothing to compare with, as at the first look.
    let moved = (before.first.len() == now.len() && before.last.len() == now.len()).then(|| {
        let shifts = |then: &[f32]| shifts(&now, then, (blocks.len(), rows));
        AttentionShift { since_first: shifts(&before.first), since_last: shifts(&before.last) }
    });
    let first = if moved.is_some() { before.first.clone() } else { now.clone() };
    Ok((moved, AttentionMemory { first, last: now }))
}

/// The tokens to look at, so few that their pattern has no more than [`PATTERN_NUMBERS`].
fn shortened(model: &Model, sample: &[Encoded]) -> Vec<Vec<u32>> {
    let layers = (model.heads() * model.blocks()).max(1);
    let longest = PATTERN_TOKENS.min((PATTERN_NUMBERS / layers).isqrt()).max(1);
    let (mut taken, mut numbers) = (Vec::new(), 0);
    for example in sample {
        let ids = &example.ids[..example.ids.len().min(longest)];
        numbers += layers * ids.len() * ids.len();
        if numbers > PATTERN_NUMBERS && !taken.is_empty() {
            break;
        }
        taken.push(ids.to_vec());
    }
    taken
}

/// Per block, the mean total variation between the rows of two patterns.
fn shifts(now: &[f32], then: &[f32], (blocks, rows): (usize, usize)) -> Vec<f64> {
    let size = (now.len() / blocks.max(1)).max(1);
    let shift = |(now, then): (&[f32], &[f32])| {
        let apart = now.iter().zip(then).map(|(now, then)| f64::from((now - then).abs()));
        0.5 * apart.sum::<f64>() / rows as f64
    };
    now.chunks(size).zip(then.chunks(size)).map(shift).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_the_mean_total_variation_of_the_rows_of_a_block() {
        // Two blocks of one head and two queries over two keys.
        let then = [0.5, 0.5, 1.0, 0.0, 0.25, 0.75, 0.5, 0.5];
        let now = [0.75, 0.25, 0.0, 1.0, 0.25, 0.75, 0.5, 0.5];
        // The first block: rows a quarter and a whole apart; the second has not moved.
        assert_eq!(shifts(&now, &then, (2, 2)), [0.625, 0.0]);
        assert_eq!(shifts(&then, &then, (2, 2)), [0.0, 0.0]);
    }
}
