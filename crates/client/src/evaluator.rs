//! A model's scores on examples.
//!
//! Examples of like length share a batch of bounded tokens, batches run side by side, and every
//! example's answer and loss are then counted in the order of examples: the same numbers for any
//! batch size and any number of threads. (Next-token losses come a batch at a time and are added in
//! the order of batches, which depends on the batch size but not on threads.)
//!
//! Where the answer is a text there are two ways: the likelihoods of given answers are compared
//! ([`crate::likelihood`]), or the model writes one and words are compared ([`crate::writing`]).

use fedra_compute::{Device, Params, Tape, Tensor, Value};
use fedra_data::{Encoded, LabelSet, Rouge, Target, Task};
use fedra_model::{Batch, Head, Model, Reading};

use crate::error::{ClientError, Result};
use crate::examples::Examples;
use crate::labelled_batch::{LabelledBatch, check_head};
use crate::likelihood::{ChoiceBatch, Guess};
use crate::meter::Meter;
use crate::ordered_jobs::{by_batch, placed};
use crate::preference::{JudgedPair, PreferenceObjective};
use crate::scores::{Counts, Scores};
use crate::split::{ClientSegments, Passing};
use fedra_model::{highest, log_sum_exp};

/// Scores any parameters of a model.
#[derive(Clone, Copy, Debug)]
pub struct Evaluator<'a> {
    /// The structure.
    pub model: &'a Model,
    /// Who computes.
    pub device: &'a Device,
    /// What the examples ask.
    pub task: Task,
    /// The names of the answers.
    pub labels: &'a LabelSet,
    /// Tokens in a batch; a longer sequence is a batch of its own.
    pub tokens: usize,
}

impl Evaluator<'_> {
    /// Scores the parameters on the examples.
    pub fn score(&self, params: &Params, examples: &Examples) -> Result<Scores> {
        self.score_counted(params, examples, &Meter::unwatched())
    }

    /// The same, counted on a meter; it may be stopped between two batches.
    pub fn score_counted(
        &self,
        params: &Params,
        examples: &Examples,
        meter: &Meter<'_>,
    ) -> Result<Scores> {
        let batches = self.batches(examples);
        let answer = |chosen: &[usize]| {
            meter.check()?;
            let answer = self.answer(params, examples, chosen)?;
            meter.advance(chosen.len() as u64);
            Ok(answer)
        };
        check_head(self.model, self.task, self.labels)?;
        Ok(self.counted(examples, &by_batch(&batches, answer)?))
    }

    /// The loss of each example, the mean over its targets; none for an example without a target.
    pub fn losses(&self, params: &Params, examples: &Examples) -> Result<Vec<Option<f64>>> {
        let batches = match self.model.head() {
            // Its loss comes a batch at a time, and is to be one example's.
            Head::Language => (0..examples.len()).map(|example| vec![example]).collect(),
            Head::Bare | Head::Sequence { .. } | Head::Tokens { .. } => self.batches(examples),
        };
        let answer = |chosen: &[usize]| {
            let question = Question::gather(self, examples, chosen)?;
            self.answer_from(params, (examples, chosen), (&question, None))
        };
        check_head(self.model, self.task, self.labels)?;
        let answers = by_batch(&batches, answer)?;
        let mean =
            |answer: Answer| (answer.targets > 0).then(|| answer.loss_sum / answer.targets as f64);
        Ok(answers.into_iter().map(mean).collect())
    }

    /// The scores of what was answered to each example.
    fn counted(&self, examples: &Examples, answers: &[Answer]) -> Scores {
        let mut scores = Scores::new(self.task, self.labels);
        for (index, answer) in answers.iter().enumerate() {
            self.count(&mut scores, examples, index, answer);
        }
        scores
    }

    /// The same where the middle of the model is elsewhere: one batch after another.
    pub(crate) fn score_cut(
        &self,
        params: &Params,
        examples: &Examples,
        (ends, meter): (&mut ClientSegments<'_>, &Meter<'_>),
    ) -> Result<Scores> {
        check_head(self.model, self.task, self.labels)?;
        if self.task == Task::Generation {
            let reason = "the task generation: a cut model is not asked to write text, score it \
                          where it is whole";
            return Err(ClientError::peer(reason));
        }
        if examples.writing().is_some() {
            let reason = "conversations whose last answers are written: a cut model is not asked to \
                          write text, score it where it is whole";
            return Err(ClientError::peer(reason));
        }
        if self.task == Task::Preference {
            let reason = "the task preference: a cut model judges no pairs of answers, score it \
                          where it is whole";
            return Err(ClientError::peer(reason));
        }
        let (batches, mut answers) = (self.batches(examples), Vec::with_capacity(examples.len()));
        for batch in &batches {
            meter.check()?;
            let question = Question::gather(self, examples, batch)?;
            let names = question.names(batch);
            let passing = Passing { batch: question.batch(), examples: &names };
            let hidden = ends.answer(params, passing)?;
            let start = Some((hidden, ends.middle.end));
            answers.extend(self.answer_from(params, (examples, batch), (&question, start))?);
            meter.advance(batch.len() as u64);
        }
        Ok(self.counted(examples, &placed(&batches, answers)))
    }

    pub(crate) fn batches(&self, examples: &Examples) -> Vec<Vec<usize>> {
        let length = |example: &Encoded| example.scored_lengths().into_iter().sum();
        let lengths: Vec<usize> = examples.encoded().iter().map(length).collect();
        evaluation_batches(&lengths, self.tokens)
    }

    /// Answers as scoring does, but for the texts that it would write, and forgets what: to see what it holds.
    pub(crate) fn rehearse(&self, params: &Params, examples: &Examples) -> Result<()> {
        for batch in self.batches(examples) {
            let question = Question::gather(self, examples, &batch)?;
            self.answer_from(params, (examples, &batch), (&question, None))?;
        }
        Ok(())
    }

    /// What the model says to one batch.
    fn answer(
        &self,
        params: &Params,
        examples: &Examples,
        chosen: &[usize],
    ) -> Result<Vec<Answer>> {
        let question = Question::gather(self, examples, chosen)?;
        let mut answers = self.answer_from(params, (examples, chosen), (&question, None))?;
        if self.task == Task::Generation || examples.writing().is_some() {
            self.write(params, (examples, chosen), &mut answers)?;
        }
        Ok(answers)
    }

    /// Has the model write its answers, and compares them with what they should have been.
    fn write(
        &self,
        params: &Params,
        (examples, chosen): (&Examples, &[usize]),
        answers: &mut [Answer],
    ) -> Result<()> {
        let Some(writing) = examples.writing() else {
            let expected = "examples that say how text is written (Examples::with_writing)";
            return Err(ClientError::targets("a text to write", expected));
        };
        let (mut prompts, mut compared) = (Vec::new(), Vec::new());
        for (&example, answer) in chosen.iter().zip(answers) {
            if let Some((prompt, reference)) = examples.asked(example) {
                prompts.push(prompt);
                compared.push((answer, reference));
            }
        }
        if prompts.is_empty() {
            return Ok(());
        }
        let texts = writing.greedy((self.model, self.device), params, &prompts)?;
        for ((answer, reference), text) in compared.into_iter().zip(texts) {
            answer.rouge = Some(Rouge::of(reference, &text));
        }
        Ok(())
    }

    /// What the model says, from tokens or from the hidden states in front of a block.
    fn answer_from(
        &self,
        params: &Params,
        (examples, chosen): (&Examples, &[usize]),
        (question, start): (&Question, Option<(Tensor, usize)>),
    ) -> Result<Vec<Answer>> {
        let mut tape = Tape::new(self.device);
        let weights = params.frozen();
        let (hidden, first) = match start {
            None => (self.model.embed(&mut tape, weights, question.batch())?, 0),
            Some((hidden, first)) => (tape.constant(hidden), first),
        };
        let question = match question {
            Question::Labelled(question) => question,
            Question::Choices(choices) => {
                let guesses = choices.guess((self.model, &mut tape), weights, (hidden, first))?;
                return Ok(guesses.into_iter().map(Answer::chosen).collect());
            }
        };
        let (start, batch) = ((hidden, first), &question.batch);
        if question.is_of_pairs() {
            return self.judge(params, (examples, chosen), (question, &mut tape), start);
        }
        if self.model.head() == Head::Language {
            // Logits of a whole vocabulary for every token would not fit; the fused loss does.
            let targets = question.targets();
            let loss = self.model.loss_from(&mut tape, weights, start, batch, targets)?;
            let mean = f64::from(loss.tensor.item());
            let share = |targets: u64| Answer::of_loss(mean * targets as f64, targets);
            return Ok(question.targets_by_sequence().into_iter().map(share).collect());
        }
        let logits = self.model.logits_from(&mut tape, weights, start, batch)?.tensor;
        let (classes, numbers) = (logits.cols(), logits.to_host());
        let mut rows = numbers.chunks_exact(classes);
        let answers = chosen.iter().map(|&example| {
            let target = &examples.encoded()[example].target;
            Answer::of_rows(target, &mut rows)
        });
        Ok(answers.collect())
    }

    /// What the model makes of pairs of answers, against itself without its adapters.
    fn judge(
        &self,
        params: &Params,
        (examples, chosen): (&Examples, &[usize]),
        (question, tape): (&LabelledBatch, &mut Tape),
        (hidden, first): (Value, usize),
    ) -> Result<Vec<Answer>> {
        let Some(rule) = examples.preference() else {
            let expected = "examples that say how pairs are judged (Examples::with_preference)";
            return Err(ClientError::targets("two answers", expected));
        };
        let (model, weights) = (self.model, params.frozen());
        let (range, packing) = (first..model.blocks(), question.batch.packing());
        let hidden = model.run_blocks(tape, weights, hidden, packing, range, &Reading::All)?;
        let names: Vec<u64> = chosen.iter().map(|&example| example as u64).collect();
        let mut objective = PreferenceObjective::new(model, rule)?;
        let given = (model, self.device, params);
        let judged = objective.judge(given, (question, &names), &hidden.tensor)?;
        let answer =
            |pair: JudgedPair| Answer { margin: pair.margin, ..Answer::of_loss(pair.loss, 1) };
        Ok(judged.into_iter().map(answer).collect())
    }

    pub(crate) fn count(
        &self,
        scores: &mut Scores,
        examples: &Examples,
        index: usize,
        answer: &Answer,
    ) {
        scores.add_loss(answer.loss_sum, answer.targets);
        let (target, cut) = (&examples.encoded()[index].target, examples.cut(index));
        match (&mut scores.counts, target) {
            (Counts::Codes(score), Target::Many(codes)) => score.add(codes, &answer.guesses),
            (Counts::Classes(score), Target::One(class)) => {
                score.add(&[*class], &answer.guesses[..1]);
            }
            (Counts::Classes(score), Target::PerToken(labels)) => {
                for (label, guess) in labels.iter().flatten().zip(&answer.guesses) {
                    score.add(&[*label], &[*guess]);
                }
                if let Some(outside) = self.labels.index(OUTSIDE) {
                    for label in cut {
                        score.add(&[*label], &[outside]);
                    }
                }
            }
            (Counts::Spans(score), Target::PerToken(labels)) => {
                let name = |label: &u32| self.labels.name(*label);
                let truth: Vec<&str> = labels.iter().flatten().chain(cut).map(name).collect();
                let lost = std::iter::repeat_n(OUTSIDE, cut.len());
                let guess: Vec<&str> = answer.guesses.iter().map(name).chain(lost).collect();
                score.add(&truth, &guess);
            }
            (Counts::Classes(score), Target::Choice(choice)) => {
                score.add(&[choice.label], &answer.guesses[..1]);
            }
            (Counts::Rouge(score), Target::Text(_)) => score.add(answer.rouge.unwrap_or_default()),
            (Counts::Pairs(pairs), Target::Preference(_)) => pairs.add(answer.margin),
            (Counts::Loss(score), _) => answer.rouge.into_iter().for_each(|rouge| score.add(rouge)),
            _ => unreachable!("the head has just answered targets of this kind"),
        }
    }
}

/// Examples of these lengths by length, cut where a batch has so many tokens.
pub fn evaluation_batches(lengths: &[usize], most: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| lengths[index]);
    let (mut batches, mut tokens) = (Vec::<Vec<usize>>::new(), 0);
    for index in order {
        match batches.last_mut() {
            Some(batch) if tokens + lengths[index] <= most => batch.push(index),
            Some(_) | None => {
                batches.push(vec![index]);
                tokens = 0;
            }
        }
        tokens += lengths[index];
    }
    batches
}

/// What is asked of a batch of examples.
enum Question {
    /// Their labels, or the next tokens.
    Labelled(LabelledBatch),
    /// Which of their answers is the likeliest.
    Choices(ChoiceBatch),
}

impl Question {
    fn gather(evaluator: &Evaluator<'_>, examples: &Examples, chosen: &[usize]) -> Result<Self> {
        let encoded = examples.encoded();
        if evaluator.task == Task::Choice {
            return Ok(Self::Choices(ChoiceBatch::gather(encoded, chosen)?));
        }
        Ok(Self::Labelled(LabelledBatch::gather(evaluator.model, encoded, chosen)?))
    }

    fn batch(&self) -> &Batch {
        match self {
            Self::Labelled(question) => &question.batch,
            Self::Choices(choices) => &choices.batch,
        }
    }

    /// The example of each sequence. Sequences of one example have its name, so noise that is drawn
    /// once for an example hides its prompt once, however many answers follow it.
    fn names(&self, chosen: &[usize]) -> Vec<u64> {
        match self {
            Self::Labelled(_) => chosen.iter().map(|&index| index as u64).collect(),
            Self::Choices(choices) => {
                choices.owners.iter().map(|&place| chosen[place] as u64).collect()
            }
        }
    }
}

/// The tag of a word that is in no span, and what is said of a word that was cut away.
const OUTSIDE: &str = "O";

/// What a model says to one example.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The class, the codes, or the class of each labelled token.
    pub guesses: Vec<u32>,
    loss_sum: f64,
    targets: u64,
    /// Of the text that it wrote, where it wrote one.
    rouge: Option<Rouge>,
    /// Of a pair of answers, where that is the task.
    margin: f64,
}

impl Answer {
    /// A sum of losses over so many targets, with nothing guessed yet.
    fn of_loss(loss_sum: f64, targets: u64) -> Self {
        Self { guesses: Vec::new(), loss_sum, targets, rouge: None, margin: 0.0 }
    }

    /// The likeliest of several answers.
    fn chosen(guess: Guess) -> Self {
        let answer = Self::of_loss(-guess.right, guess.tokens);
        Self { guesses: vec![guess.label], ..answer }
    }

    /// The answer to a target, from the rows of logits that are next.
    pub fn of_rows<'a>(target: &Target, rows: &mut impl Iterator<Item = &'a [f32]>) -> Self {
        match target {
            Target::One(class) => Self::classes(rows.by_ref().take(1).zip([Some(*class)])),
            Target::Many(codes) => Self::codes(rows.next().unwrap_or_default(), codes),
            Target::PerToken(labels) => {
                Self::classes(rows.by_ref().take(labels.len()).zip(labels.iter().copied()))
            }
            Target::Choice(_) | Target::Text(_) | Target::Preference(_) => {
                unreachable!("a language head answers these, and has no rows of logits")
            }
        }
    }

    /// Rows of logits with the class that each should have had; rows without one are not counted.
    fn classes<'a>(rows: impl Iterator<Item = (&'a [f32], Option<u32>)>) -> Self {
        let mut answer = Self::of_loss(0.0, 0);
        for (row, class) in rows {
            let Some(class) = class else { continue };
            answer.guesses.push(highest(row));
            answer.loss_sum += log_sum_exp(row) - f64::from(row[class as usize]);
            answer.targets += 1;
        }
        answer
    }

    /// One row of logits with the codes that should have been above zero.
    fn codes(row: &[f32], codes: &[u32]) -> Self {
        let mut answer = Self::of_loss(0.0, 1);
        for (code, &logit) in (0_u32..).zip(row) {
            if logit > 0.0 {
                answer.guesses.push(code);
            }
            let logit = f64::from(logit);
            let signed = if codes.contains(&code) { -logit } else { logit };
            answer.loss_sum += signed.max(0.0) + (-signed.abs()).exp().ln_1p();
        }
        answer.loss_sum /= row.len() as f64;
        answer
    }
}
