//! The attention score of a block: how much of its attention goes where it should.
//!
//! ```text
//! key side     A_l = 1/(H n) sum over heads h, queries i, relevant keys j of alpha[h, i, j]
//! query side   the same with only the predicting position as query and content tokens as keys
//! ```
//! Each is a share in [0, 1], averaged over examples, so long inputs do not dominate; there is no
//! padding to leave out. Scores are taken while attention passes by: no matrix of it is kept.

use crate::error::ModelError;
use crate::packing::Packing;
use fedra_compute::AttentionProbe;

/// Which attention counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relevant {
    /// Attention of all tokens to the first one (`[CLS]`).
    First,
    /// Attention of all tokens to the marked ones (entities); one mark per token of the batch.
    Marked(Vec<bool>),
    /// Attention of all tokens to all tokens: 1 for every block, the control.
    All,
    /// Attention of the last token to all but the first: the query side, for decoders, whose first
    /// token is an attention sink.
    FromLast,
}

/// Whose attention is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// That of every token.
    All,
    /// That of each sequence's last token.
    Last,
}

/// Gathers the scores of all blocks over any number of batches.
#[derive(Clone, Debug)]
pub struct BlockProbe {
    relevant: Relevant,
    /// Scores so far: per block, per example in order.
    scores: Vec<Vec<f64>>,
    /// Per block, what each key head added to the scores of all examples.
    heads: Vec<Vec<f64>>,
}

impl BlockProbe {
    /// A probe that has seen nothing.
    pub fn new(relevant: Relevant) -> Self {
        Self { relevant, scores: Vec::new(), heads: Vec::new() }
    }

    /// Changes what is relevant: marks belong to one batch.
    pub fn set_relevant(&mut self, relevant: Relevant) {
        self.relevant = relevant;
    }

    /// Per block, the score of every example seen.
    pub fn by_example(&self) -> &[Vec<f64>] {
        &self.scores
    }

    /// Per block, the mean over examples.
    pub fn means(&self) -> Vec<f64> {
        self.scores.iter().map(|scores| scores.iter().sum::<f64>() / scores.len() as f64).collect()
    }

    /// Per block, what each key head added to the scores, over all examples; their sum over heads is
    /// the sum of the block's scores.
    pub fn heads(&self) -> &[Vec<f64>] {
        &self.heads
    }

    /// Weights of queries and keys for one batch.
    pub(crate) fn watch(&self, packing: &Packing) -> Result<AttentionProbe, ModelError> {
        let (queries, keys) = self.relevant.weights(packing)?;
        Ok(watching((queries, keys)))
    }

    pub(crate) fn record(&mut self, watched: &AttentionProbe) {
        let blocks = watched.scores.len();
        self.scores.resize_with(blocks.max(self.scores.len()), Vec::new);
        for (all, new) in self.scores.iter_mut().zip(&watched.scores) {
            all.extend(new);
        }
        self.heads.resize_with(blocks.max(self.heads.len()), Vec::new);
        for (all, new) in self.heads.iter_mut().zip(&watched.heads) {
            all.resize(new.len(), 0.0);
            all.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
        }
    }
}

impl Relevant {
    /// Whose attention counts.
    pub const fn queries(&self) -> Queries {
        match self {
            Self::First | Self::Marked(_) | Self::All => Queries::All,
            Self::FromLast => Queries::Last,
        }
    }

    /// The score of each sequence, from what each of its tokens received of the attention that
    /// counts ([`Model::received_attention`](crate::Model::received_attention)).
    pub fn scores(&self, packing: &Packing, received: &[f32]) -> Result<Vec<f64>, ModelError> {
        let (_, keys) = self.weights(packing)?;
        if received.len() != keys.len() {
            let (found, expected) = (received.len(), keys.len());
            return Err(ModelError::batch("number of tokens watched", &found, &expected));
        }
        let mut tokens = received.iter().zip(&keys);
        let share = |(received, key): (&f32, &f32)| f64::from(*received) * f64::from(*key);
        let sum = |&length| tokens.by_ref().take(length).map(share).sum();
        Ok(packing.lengths().iter().map(sum).collect())
    }

    /// How much each query and each key counts.
    fn weights(&self, packing: &Packing) -> Result<(Vec<f32>, Vec<f32>), ModelError> {
        let tokens = packing.tokens();
        let every = vec![1.0; tokens];
        let ones_at = |rows: &[u32]| {
            let mut weights = vec![0.0; tokens];
            for &row in rows {
                weights[row as usize] = 1.0;
            }
            weights
        };
        Ok(match self {
            Self::First => (every, ones_at(&packing.first_rows())),
            Self::All => (every.clone(), every),
            Self::Marked(marks) => {
                if marks.len() != tokens {
                    return Err(ModelError::batch("number of marks", &marks.len(), &tokens));
                }
                (every, marks.iter().map(|&mark| f32::from(u8::from(mark))).collect())
            }
            Self::FromLast => {
                let mut content = every;
                for row in packing.first_rows() {
                    content[row as usize] = 0.0;
                }
                (ones_at(&packing.last_rows()), content)
            }
        })
    }
}

/// Watches the attention from weighted queries, and what each key of it receives.
pub(crate) fn watch_received(packing: &Packing, from: Queries) -> AttentionProbe {
    let keys = vec![1.0; packing.tokens()];
    let mut queries = keys.clone();
    if from == Queries::Last {
        queries.fill(0.0);
        packing.last_rows().into_iter().for_each(|row| queries[row as usize] = 1.0);
    }
    AttentionProbe { received: Some(Vec::new()), ..watching((queries, keys)) }
}

fn watching((queries, keys): (Vec<f32>, Vec<f32>)) -> AttentionProbe {
    let (scores, heads) = (Vec::new(), Vec::new());
    AttentionProbe { queries, keys, scores, heads, received: None, patterns: None }
}
