//! The attention score of a block: how much of its attention goes where it should.
//!
//! ```text
//! key side     A_l = 1/(H n) sum over heads h, queries i, relevant keys j of alpha[h, i, j]
//! query side   the same with only the predicting position as query and content tokens as keys
//! ```
//! Each is a share in [0, 1], averaged over examples, so long inputs do not dominate; there is no
//! padding to leave out. Scores are taken while attention passes by: no matrix of it is kept.

use crate::batch::Batch;
use crate::error::ModelError;
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
    pub(crate) fn watch(&self, batch: &Batch) -> Result<AttentionProbe, ModelError> {
        let tokens = batch.tokens();
        let every = vec![1.0; tokens];
        let ones_at = |rows: &[u32]| {
            let mut weights = vec![0.0; tokens];
            for &row in rows {
                weights[row as usize] = 1.0;
            }
            weights
        };
        let (queries, keys) = match &self.relevant {
            Relevant::First => (every, ones_at(&batch.first_rows())),
            Relevant::All => (every.clone(), every),
            Relevant::Marked(marks) => {
                if marks.len() != tokens {
                    let (found, expected) = (marks.len().to_string(), tokens.to_string());
                    return Err(ModelError::Batch { what: "number of marks", found, expected });
                }
                (every, marks.iter().map(|&mark| f32::from(u8::from(mark))).collect())
            }
            Relevant::FromLast => {
                let mut content = every;
                for row in batch.first_rows() {
                    content[row as usize] = 0.0;
                }
                (ones_at(&batch.last_rows()), content)
            }
        };
        Ok(AttentionProbe { queries, keys, scores: Vec::new(), heads: Vec::new(), patterns: None })
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
