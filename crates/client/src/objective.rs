//! What a client's training minimises: cross-entropy with the weights of classes and label smoothing.
//!
//! A step's loss is one mean over all its targets, however many batches it is computed in: each batch
//! adds its sum over the divisor of the whole step.

use std::collections::BTreeMap;

use fedra_compute::{LossWeights, RowWeights};
use fedra_data::{Encoded, LabelSet, Target};
use fedra_engine::{ClassWeights, Work};
use fedra_model::{Targets, Weighted};

use crate::error::{ClientError, Result};
use crate::labelled_batch::LabelledBatch;

/// The loss of one client's training in one round.
#[derive(Clone, Debug)]
pub(crate) struct Objective {
    /// By the index of the label.
    class_weights: Option<Vec<f32>>,
    smoothing: f32,
}

impl Objective {
    /// What the work says, for these labels; balanced weights come from the examples.
    pub fn of(work: &Work, labels: &LabelSet, examples: &[Encoded]) -> Result<Self> {
        let class_weights = match &work.class_weights {
            None => None,
            Some(ClassWeights::ByLabel(weights)) => Some(by_label(weights, labels)?),
            Some(ClassWeights::Balanced) => Some(balanced(labels.len(), examples)),
        };
        Ok(Self { class_weights, smoothing: work.label_smoothing })
    }

    /// What the sum over a batch's targets is divided by to be their mean: their weights' sum; of pairs of
    /// answers, their number.
    pub fn divisor(&self, question: &LabelledBatch) -> f64 {
        if question.is_of_pairs() {
            return question.batch.packing().examples() as f64;
        }
        match (&self.class_weights, question.targets()) {
            (Some(weights), Targets::Classes(classes)) => {
                let weight = |&class: &u32| weights.get(class as usize).copied().unwrap_or(1.0);
                classes.iter().flatten().map(|class| f64::from(weight(class))).sum()
            }
            (Some(_) | None, _) => question.targets_counted() as f64,
        }
    }

    /// A batch's part of the loss of a step that has this divisor.
    pub fn part<'a>(&'a self, question: &'a LabelledBatch, divisor: f64) -> Weighted<'a> {
        self.weighted(question, RowWeights::Uniform, divisor)
    }

    /// A batch's part of a loss in which each sequence has a weight of its own, so that it depends on no
    /// other one.
    pub fn part_by_sequence<'a>(
        &'a self,
        question: &'a LabelledBatch,
        weights: &'a [f32],
        divisor: f64,
    ) -> Weighted<'a> {
        self.weighted(question, RowWeights::PerSequence(weights), divisor)
    }

    fn weighted<'a>(
        &'a self,
        question: &'a LabelledBatch,
        rows: RowWeights<'a>,
        divisor: f64,
    ) -> Weighted<'a> {
        let class_weights = self.class_weights.as_deref();
        let smoothing = self.smoothing;
        let weights = LossWeights { rows, divisor, class_weights, smoothing };
        Weighted { targets: question.targets(), weights }
    }
}

/// Weights by the index of their label; a label without one counts 1.
fn by_label(weights: &BTreeMap<String, f32>, labels: &LabelSet) -> Result<Vec<f32>> {
    if let Some(stranger) = weights.keys().find(|name| labels.index(name).is_none()) {
        let expected = format!("labels of the data: {}", labels.names().join(", "));
        return Err(ClientError::targets(format!("a class weight for {stranger:?}"), expected));
    }
    Ok(labels.names().iter().map(|name| weights.get(name).copied().unwrap_or(1.0)).collect())
}

/// `n / (k n_c)`, as scikit-learn has it: of `n` targets in `k` classes, `n_c` have this one. A class that the
/// examples lack counts 1.
fn balanced(classes: usize, examples: &[Encoded]) -> Vec<f32> {
    let mut counts = vec![0_u64; classes];
    let mut count = |class: u32| {
        if let Some(count) = counts.get_mut(class as usize) {
            *count += 1;
        }
    };
    for example in examples {
        match &example.target {
            Target::One(class) => count(*class),
            Target::PerToken(tags) => tags.iter().flatten().for_each(|tag| count(*tag)),
            Target::Many(_) | Target::Choice(_) | Target::Text(_) | Target::Preference(_) => {}
        }
    }
    let all: u64 = counts.iter().sum();
    let present = counts.iter().filter(|count| **count > 0).count();
    let weight = |&count: &u64| match count {
        0 => 1.0,
        count => (all as f64 / (present as f64 * count as f64)) as f32,
    };
    counts.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(class: u32) -> Encoded {
        Encoded {
            ids: vec![1],
            types: Vec::new(),
            target: Target::One(class),
            dropped: 0,
            pixels: None,
        }
    }

    #[test]
    fn balanced_weights_are_those_of_scikit_learn() {
        // compute_class_weight("balanced", classes=[0, 1, 3], y=[0, 0, 0, 1, 3, 3])
        let examples = [0, 0, 0, 1, 3, 3].map(example);
        let found = balanced(4, &examples);
        assert_eq!(found, [2.0 / 3.0, 2.0, 1.0, 1.0]);
        assert_eq!(balanced(2, &[]), [1.0, 1.0]);
    }

    #[test]
    fn weights_are_found_by_label_and_a_stranger_is_named() {
        let labels = LabelSet::new(["flu", "cold", "pain"].map(str::to_owned));
        let weights = |name: &str| BTreeMap::from([(name.to_owned(), 2.5)]);
        assert_eq!(by_label(&weights("flu"), &labels).unwrap(), [1.0, 2.5, 1.0]);
        let refused = by_label(&weights("fever"), &labels).unwrap_err().to_string();
        assert!(refused.contains("a class weight for \"fever\""), "{refused}");
        assert!(refused.contains("cold, flu, pain"), "{refused}");
    }
}
