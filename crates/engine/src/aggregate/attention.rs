//! How far the attention of the global model has moved, measured where the data are.
//!
//! Before a round, each client of the cohort looks at a fixed sample of **its own training
//! examples** with the model of the round and compares the attention pattern of every block, entry
//! by entry, with the patterns it saw when it first and last looked:
//!
//! ```text
//! shift of a block   mean over examples, heads and queries of  1/2 sum over keys |P now - P then|
//! ```
//!
//! That is the total variation between two distributions: 0 when nothing moved, 1 when attention
//! went wholly elsewhere. Patterns stay with the client. It sends two numbers a block, or none when
//! it looks for the first time; they count as bytes up. The sample comes from the seed without the
//! round, so a client looks at the same examples every time. It costs a forward pass and is off
//! unless asked for.

use serde::{Deserialize, Serialize};

use crate::protocol::fleet::AttentionShift;

/// Bytes of what a client sends about one block, from its second look on.
pub const SHIFT_BYTES: u64 = 16;

/// How attention moved, as mean shifts over clients and blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionDrift {
    /// Since each client last looked; absent when none has looked before.
    pub since_last: Option<f64>,
    /// Since each client first looked; absent when none has looked before.
    pub since_first: Option<f64>,
    /// The latter, block by block.
    pub blocks: Vec<f64>,
    /// Clients that had something to compare with.
    pub clients: usize,
}

impl AttentionDrift {
    pub(crate) fn of(moved: &[&AttentionShift]) -> Self {
        let blocks = by_block(moved.iter().map(|moved| &moved.since_first));
        let mean = |blocks: &[f64]| {
            (!blocks.is_empty()).then(|| blocks.iter().sum::<f64>() / blocks.len() as f64)
        };
        Self {
            since_last: mean(&by_block(moved.iter().map(|moved| &moved.since_last))),
            since_first: mean(&blocks),
            blocks,
            clients: moved.len(),
        }
    }
}

/// Block by block, the mean over the clients that have the block.
fn by_block<'m>(clients: impl Iterator<Item = &'m Vec<f64>>) -> Vec<f64> {
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for shifts in clients {
        sums.resize(shifts.len().max(sums.len()), (0.0, 0.0));
        for ((sum, clients), shift) in sums.iter_mut().zip(shifts) {
            *sum += shift;
            *clients += 1.0;
        }
    }
    sums.into_iter().map(|(sum, clients)| sum / clients).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_averaged_over_the_clients_that_have_it() {
        let moved = |first: &[f64], last: &[f64]| AttentionShift {
            since_first: first.to_vec(),
            since_last: last.to_vec(),
        };
        let (deep, shallow) = (moved(&[0.2, 0.6], &[0.1, 0.1]), moved(&[0.4], &[0.3]));
        let drift = AttentionDrift::of(&[&deep, &shallow]);
        assert_eq!((drift.blocks.len(), drift.clients), (2, 2));
        assert!((drift.blocks[0] - 0.3).abs() < 1e-12 && (drift.blocks[1] - 0.6).abs() < 1e-12);
        assert!((drift.since_first.unwrap() - 0.45).abs() < 1e-12);
        assert!((drift.since_last.unwrap() - 0.15).abs() < 1e-12);
        assert_eq!(AttentionDrift::of(&[]), AttentionDrift::default());
    }
}
