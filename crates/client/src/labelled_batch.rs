//! A batch as the model wants it: tokens without padding, and what the answers should be.
//!
//! Data and model do not know each other; this is the one place where they meet.

use fedra_data::{
    AnswerForm, Encoded, EncodedChoice, EncodedText, LabelSet, LabelShape, Target, Task,
};
use fedra_model::{Batch, Head, Model, Targets};
use fedra_seed::Seed;

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
        Self::gather_drawn(model, (examples, chosen), None)
    }

    /// The same for training: images are changed as their experiment allows, by draws of their own under a
    /// seed that names the round and the epoch or step.
    pub fn gather_drawn(
        model: &Model,
        (examples, chosen): (&[Encoded], &[usize]),
        draws: Option<Seed>,
    ) -> Result<Self> {
        let sequences = || chosen.iter().map(|&index| &examples[index]);
        let pairs = sequences().filter(|it| matches!(it.target, Target::Preference(_))).count();
        let mut batch = if pairs == 0 {
            Batch::new(&sequences().map(|it| &it.ids).collect::<Vec<_>>())?
        } else if pairs == chosen.len() {
            let lengths = sequences().flat_map(Encoded::scored_lengths).collect();
            let ids = sequences().flat_map(|pair| &pair.ids).copied().collect();
            Batch::packed(ids, lengths)?.in_pairs()?
        } else {
            let expected = "pairs of answers alone, or no pair";
            return Err(ClientError::targets("some pairs of answers", expected));
        };
        if sequences().any(|sequence| !sequence.types.is_empty()) {
            let types = |sequence: &Encoded| match sequence.types.as_slice() {
                [] => vec![0; sequence.ids.len()],
                types => types.to_vec(),
            };
            batch = batch.with_segments(sequences().flat_map(types).collect())?;
        }
        let pixels = pixels(sequences(), draws);
        if !pixels.is_empty() {
            batch = batch.with_pixels(pixels)?;
        }
        let (mut classes, mut labels) = (Vec::new(), Vec::new());
        for sequence in sequences() {
            match (&sequence.target, model.head()) {
                (Target::One(class), Head::Sequence { .. }) => classes.push(Some(*class)),
                (Target::Many(codes), Head::Sequence { classes, .. }) => {
                    labels.extend(ones(codes, classes)?);
                }
                (Target::PerToken(tags), Head::Tokens { .. } | Head::Language) => {
                    classes.extend_from_slice(tags);
                }
                (
                    Target::Choice(EncodedChoice { prompt, .. })
                    | Target::Text(EncodedText { prompt, .. }),
                    Head::Tokens { .. } | Head::Language,
                ) => classes.extend(told_after(*prompt, &sequence.ids)),
                (Target::Preference(pair), Head::Language) => {
                    classes.extend_from_slice(&pair.told);
                }
                (Target::Preference(_), head) => {
                    return Err(mismatch("two answers, of which one is preferred", head));
                }
                (Target::One(_), head) => return Err(mismatch("one class per sequence", head)),
                (Target::Many(_), head) => {
                    return Err(mismatch("several codes per sequence", head));
                }
                (Target::PerToken(_) | Target::Choice(_) | Target::Text(_), head) => {
                    return Err(mismatch("one label per token", head));
                }
            }
        }
        // The targets of one table are all of a kind.
        let answers =
            if labels.is_empty() { Answers::Classes(classes) } else { Answers::Labels(labels) };
        Ok(Self { batch, answers })
    }

    /// Whether each two sequences are a pair of answers, of which one is preferred.
    pub fn is_of_pairs(&self) -> bool {
        self.batch.packing().examples() != self.batch.packing().sequences()
    }

    /// A name for each sequence, where each example has this one.
    pub fn names(&self, examples: &[u64]) -> Vec<u64> {
        if !self.is_of_pairs() {
            return examples.to_vec();
        }
        examples.iter().flat_map(|&name| [2 * name, 2 * name + 1]).collect()
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

/// The numbers of all images, end to end; none for texts.
fn pixels<'e>(sequences: impl Iterator<Item = &'e Encoded>, draws: Option<Seed>) -> Vec<f32> {
    let mut numbers = Vec::new();
    for pixels in sequences.filter_map(|sequence| sequence.pixels.as_ref()) {
        match (draws, pixels.augment()) {
            (Some(seed), Some(augment)) => {
                pixels.extend_drawn(augment.draw(seed, pixels.digest()), &mut numbers);
            }
            (Some(_), None) | (None, _) => pixels.extend(&mut numbers),
        }
    }
    numbers
}

/// A row of zeros and ones for a set of codes.
fn ones(codes: &[u32], classes: usize) -> Result<Vec<f32>> {
    let mut row = vec![0.0; classes];
    for &code in codes {
        let Some(place) = row.get_mut(code as usize) else {
            let expected = format!("codes below {classes}");
            return Err(ClientError::targets(format!("code {code}"), expected));
        };
        *place = 1.0;
    }
    Ok(row)
}

/// For each token of a sequence the next one, where that is behind the prompt.
fn told_after(prompt: usize, ids: &[u32]) -> impl Iterator<Item = Option<u32>> {
    (1..=ids.len()).map(move |next| ids.get(next).copied().filter(|_| next >= prompt))
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
    use fedra_model::Preset;

    fn gathered(head: Head, examples: &[Encoded], chosen: &[usize]) -> LabelledBatch {
        let model = Model::new(Preset::Tiny.config(), head, None).unwrap();
        LabelledBatch::gather(&model, examples, chosen).unwrap()
    }

    fn classes(batch: &LabelledBatch) -> &[Option<u32>] {
        let Answers::Classes(classes) = &batch.answers else { panic!("one class each") };
        classes
    }

    #[test]
    fn a_batch_holds_no_padding() {
        let sequence = |ids: &[u32]| {
            let target = Target::PerToken(ids.iter().map(|&id| (id > 1).then_some(id)).collect());
            Encoded { ids: ids.to_vec(), types: Vec::new(), target, dropped: 0, pixels: None }
        };
        let examples = [sequence(&[1, 5]), sequence(&[1, 6, 7])];
        let found = gathered(Head::Tokens { classes: 8 }, &examples, &[1, 0]);
        assert_eq!(found.batch.packing().lengths(), [3, 2]);
        assert_eq!(classes(&found), [None, Some(6), Some(7), None, Some(5)]);
    }

    #[test]
    fn only_what_follows_a_prompt_is_to_be_told() {
        let target = Target::Text(EncodedText { prompt: 3, reference: "x".to_owned() });
        let ids = vec![1, 5, 6, 7, 2];
        let example = Encoded { ids, types: Vec::new(), target, dropped: 0, pixels: None };
        let found = gathered(Head::Tokens { classes: 8 }, &[example], &[0]);
        assert_eq!(classes(&found), [None, None, Some(7), Some(2), None]);
    }

    #[test]
    fn the_types_of_a_pair_reach_the_model_beside_their_tokens() {
        let head = Head::Sequence { classes: 2, pooler: true };
        let model = Model::new(Preset::Tiny.config(), head, None).unwrap();
        let example = |ids: &[u32], types: &[u32]| {
            let (ids, types) = (ids.to_vec(), types.to_vec());
            Encoded { ids, types, target: Target::One(0), dropped: 0, pixels: None }
        };
        let examples = [example(&[2, 7, 3], &[]), example(&[2, 7, 3, 8, 3], &[0, 0, 0, 1, 1])];
        let question = LabelledBatch::gather(&model, &examples, &[1, 0]).unwrap();
        assert_eq!(question.batch.segments(), [0, 0, 0, 1, 1, 0, 0, 0]);
        let question = LabelledBatch::gather(&model, &examples, &[0]).unwrap();
        assert_eq!(question.batch.segments(), [0, 0, 0]);
    }
}
