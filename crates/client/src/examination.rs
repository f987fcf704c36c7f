//! A model's scores on examples, and beside them each example's truth, answer and probabilities.
//!
//! Counted by the very functions of [`Evaluator::score`], so both give the same numbers; the price is
//! that all logits are held until the last batch is through. Only heads with labels of their own can
//! be examined: a text has no probability for each label.

use fedra_compute::{Params, Tape};
use fedra_data::{AnswerForm, Target};

use crate::error::{ClientError, Result};
use crate::evaluator::{Answer, Evaluator};
use crate::examples::Examples;
use crate::labelled_batch::{LabelledBatch, check_head};
use crate::meter::Meter;
use crate::ordered_jobs::by_batch;
use crate::scores::Scores;
use fedra_model::{rows_of_each, sigmoid, softmax};

/// One example under examination.
#[derive(Clone, Debug, PartialEq)]
pub struct Examined {
    /// Its place among the examples.
    pub example: usize,
    /// What should have been answered.
    pub truth: Truth,
    /// The class, the codes, or the class of each labelled word.
    pub answer: Vec<u32>,
    /// A row of probabilities, one a label, for the example or for each labelled word.
    pub probabilities: Vec<Vec<f64>>,
    /// The labels of words that were cut away, and for which nothing was answered.
    pub cut: Vec<u32>,
}

/// What should have been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// One class.
    Class(u32),
    /// A set of codes.
    Codes(Vec<u32>),
    /// A class for each labelled word.
    Words(Vec<u32>),
}

impl Evaluator<'_> {
    /// Whether each example's probabilities can be had.
    pub fn can_examine(&self) -> bool {
        self.task.answer_form() == AnswerForm::Labels
    }

    /// Scores the parameters on the examples, and hands over each example in its order.
    pub fn examine(
        &self,
        params: &Params,
        examples: &Examples,
        each: &mut dyn FnMut(Examined),
    ) -> Result<Scores> {
        self.examine_counted(params, examples, (&Meter::unwatched(), each))
    }

    /// The same, counted on a meter; it may be stopped between two batches.
    pub fn examine_counted(
        &self,
        params: &Params,
        examples: &Examples,
        (meter, each): (&Meter<'_>, &mut dyn FnMut(Examined)),
    ) -> Result<Scores> {
        check_head(self.model, self.task, self.labels)?;
        if !self.can_examine() {
            let found = format!("the task {}", self.task.name());
            return Err(ClientError::targets(found, "a task whose labels have probabilities"));
        }
        let logits = self.logits(params, examples, meter)?;
        let mut scores = Scores::new(self.task, self.labels);
        for (example, numbers) in logits.iter().enumerate() {
            let target = &examples.encoded()[example].target;
            let rows = || numbers.chunks_exact(self.labels.len());
            let answer = Answer::of_rows(target, &mut rows());
            self.count(&mut scores, examples, example, &answer);
            let (truth, probabilities) = match target {
                Target::One(class) => (Truth::Class(*class), rows().map(softmax).collect()),
                Target::Many(codes) => (Truth::Codes(codes.clone()), rows().map(sigmoid).collect()),
                Target::PerToken(labels) => {
                    let words = rows().zip(labels).filter(|(_, label)| label.is_some());
                    let probabilities = words.map(|(row, _)| softmax(row)).collect();
                    (Truth::Words(labels.iter().flatten().copied().collect()), probabilities)
                }
                Target::Choice(_) | Target::Text(_) | Target::Preference(_) => {
                    unreachable!("the task has labels")
                }
            };
            let cut = examples.cut(example).to_vec();
            each(Examined { example, truth, answer: answer.guesses, probabilities, cut });
        }
        Ok(scores)
    }

    /// Every example's rows of logits, end to end.
    fn logits(
        &self,
        params: &Params,
        examples: &Examples,
        meter: &Meter<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        by_batch(&self.batches(examples), |chosen| {
            meter.check()?;
            let question = LabelledBatch::gather(self.model, examples.encoded(), chosen)?;
            let mut tape = Tape::new(self.device);
            let logits = self.model.logits(&mut tape, params.frozen(), &question.batch)?;
            meter.advance(chosen.len() as u64);
            let rows = chosen.iter().map(|&example| match &examples.encoded()[example].target {
                Target::PerToken(labels) => labels.len(),
                Target::One(_) | Target::Many(_) => 1,
                Target::Choice(_) | Target::Text(_) | Target::Preference(_) => 0,
            });
            Ok(rows_of_each(&logits.tensor, rows))
        })
    }
}
