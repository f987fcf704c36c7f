//! A batch as the model wants it: tokens without padding, and what the answers should be.
//!
//! Data and model each have a batch of their own so that neither knows the other; this is the one
//! place where they meet.

use fedra_data::{
    AnswerForm, Batch as Rows, Encoded, LabelSet, LabelShape, Targets as Labels, Task,
};
use fedra_model::{Batch, Head, Model, Targets};

use crate::error::{ClientError, Result};

/// A packed batch with its targets.
#[derive(Clone, Debug)]
pub(crate) struct LabelledBatch {
    /// The tokens.
    pub batch: Batch,
    answers: Answers,
}

/// Targets that own their numbers.
#[derive(Clone, Debug)]
enum Answers {
    Classes(Vec<Option<u32>>),
    Labels(Vec<f32>),
}

impl LabelledBatch {
    /// The chosen examples for this model.
    pub fn gather(model: &Model, examples: &[Encoded], chosen: &[usize]) -> Result<Self> {
        let Rows { ids, types, lengths, targets } = Rows::gather(examples, chosen);
        let mut batch = Batch::packed(ids, lengths)?;
        if !types.is_empty() {
            batch = batch.with_segments(types)?;
        }
        let answers = match (targets, model.head()) {
            (Labels::One(classes), Head::Sequence { .. }) => {
                Answers::Classes(classes.into_iter().map(Some).collect())
            }
            (Labels::Many(codes), Head::Sequence { classes, .. }) => {
                Answers::Labels(ones(&codes, classes)?)
            }
            (Labels::PerToken(labels), Head::Tokens { .. } | Head::Language) => {
                Answers::Classes(labels)
            }
            (Labels::One(_), head) => return Err(mismatch("one class per sequence", head)),
            (Labels::Many(_), head) => return Err(mismatch("several codes per sequence", head)),
            (Labels::PerToken(_), head) => return Err(mismatch("one label per token", head)),
        };
        Ok(Self { batch, answers })
    }

    /// The targets, for a loss.
    pub fn targets(&self) -> Targets<'_> {
        match &self.answers {
            Answers::Classes(classes) => Targets::Classes(classes),
            Answers::Labels(labels) => Targets::Labels(labels),
        }
    }

    /// How many targets each sequence has, where targets are of tokens.
    pub fn targets_by_sequence(&self) -> Vec<u64> {
        let Answers::Classes(classes) = &self.answers else { return Vec::new() };
        let mut rest = classes.as_slice();
        let lengths = self.batch.packing().lengths().iter();
        lengths
            .map(|&length| {
                let (own, others) = rest.split_at(length.min(rest.len()));
                rest = others;
                own.iter().flatten().count() as u64
            })
            .collect()
    }

    /// What each target counts so that a sequence's loss is the mean over its own targets, one number a
    /// sequence; one without a target counts nothing.
    pub fn weights_by_sequence(&self) -> Vec<f32> {
        let sequences = self.batch.packing().lengths().len();
        match &self.answers {
            Answers::Labels(labels) => {
                vec![sequences as f32 / labels.len().max(1) as f32; sequences]
            }
            Answers::Classes(classes) if classes.len() == sequences => vec![1.0; sequences],
            Answers::Classes(_) => {
                let weight = |targets: u64| if targets == 0 { 0.0 } else { 1.0 / targets as f32 };
                self.targets_by_sequence().into_iter().map(weight).collect()
            }
        }
    }

    /// How many targets the loss averages over; none where truncation left no labelled word.
    pub fn targets_counted(&self) -> usize {
        match &self.answers {
            Answers::Classes(classes) => classes.iter().flatten().count(),
            Answers::Labels(labels) => labels.len(),
        }
    }
}

/// A row of zeros and ones for each set of codes.
fn ones(codes: &[Vec<u32>], classes: usize) -> Result<Vec<f32>> {
    let mut labels = vec![0.0; codes.len() * classes];
    for (row, codes) in labels.chunks_exact_mut(classes).zip(codes) {
        for &code in codes {
            let Some(place) = row.get_mut(code as usize) else {
                let expected = format!("codes below {classes}");
                return Err(ClientError::targets(format!("code {code}"), expected));
            };
            *place = 1.0;
        }
    }
    Ok(labels)
}

fn mismatch(found: &str, head: Head) -> ClientError {
    let expected = match head {
        Head::Bare => "none: the model has no head".to_owned(),
        Head::Sequence { classes, .. } => format!("one or several of {classes} classes a sequence"),
        Head::Tokens { classes } => format!("one of {classes} classes a token"),
        Head::Language => "the next token".to_owned(),
    };
    ClientError::targets(found, expected)
}

/// Refuses a task whose labels the head of the model does not answer one for one.
pub(crate) fn check_head(model: &Model, task: Task, labels: &LabelSet) -> Result<()> {
    let fits = match (task.shape(), model.head()) {
        (LabelShape::One, head) if task.answer_form() == AnswerForm::Text => head == Head::Language,
        (LabelShape::One | LabelShape::Many, Head::Sequence { classes, .. })
        | (LabelShape::PerWord, Head::Tokens { classes }) => classes == labels.len(),
        (LabelShape::Absent, Head::Language) => true,
        (LabelShape::One | LabelShape::Many | LabelShape::PerWord | LabelShape::Absent, _) => false,
    };
    if fits {
        return Ok(());
    }
    Err(mismatch(&format!("the task {} with {} labels", task.name(), labels.len()), model.head()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_data::Target;
    use fedra_model::Preset;

    #[test]
    fn the_types_of_a_pair_reach_the_model_beside_their_tokens() {
        let head = Head::Sequence { classes: 2, pooler: true };
        let model = Model::new(Preset::Tiny.config(), head, None).unwrap();
        let example = |ids: &[u32], types: &[u32]| {
            let (ids, types) = (ids.to_vec(), types.to_vec());
            Encoded { ids, types, target: Target::One(0), dropped: 0 }
        };
        let examples = [example(&[2, 7, 3], &[]), example(&[2, 7, 3, 8, 3], &[0, 0, 0, 1, 1])];
        let question = LabelledBatch::gather(&model, &examples, &[1, 0]).unwrap();
        assert_eq!(question.batch.segments(), [0, 0, 0, 1, 1, 0, 0, 0]);
        let question = LabelledBatch::gather(&model, &examples, &[0]).unwrap();
        assert_eq!(question.batch.segments(), [0, 0, 0]);
    }
}
