//! How a model did on some examples: counts that add up, and a loss.
//!
//! Counts are integers and merge in any order; losses are summed in the order of examples, one
//! number each, so that neither batches nor threads show in a score.

use std::collections::BTreeMap;

use fedra_data::{ByLabel, LabelScore, LabelSet, LabelShape, RougeScore, SpanScore, Task};
use fedra_engine::{ClientId, F1Counts, Scored};

/// The scores of a model on some examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// What was counted.
    pub counts: Counts,
    /// How many examples.
    pub examples: u64,
    loss_sum: f64,
    /// What the loss is a mean over: examples, or labelled tokens.
    targets: u64,
}

/// What was counted, by the kind of task.
#[derive(Clone, Debug, PartialEq)]
pub enum Counts {
    /// One class an example, or one tag per word where tags mark no spans.
    Classes(LabelScore),
    /// Several codes an example.
    Codes(LabelScore),
    /// Typed spans of words.
    Spans(SpanScore),
    /// Texts that were written, against what should have been.
    Rouge(RougeScore),
    /// Pairs of answers, of which one is preferred.
    Pairs(PairCounts),
    /// Nothing but the loss, of the next token; beside it the last answers of conversations, where they were written.
    Loss(RougeScore),
}

/// How a model judges pairs of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairCounts {
    /// Pairs.
    pub pairs: u64,
    /// Those of which it prefers the answer that people do, by more than its reference does.
    pub preferred: u64,
    /// The sum of margins: how much likelier than its reference it finds the preferred answer, less the same of
    /// the other.
    pub margins: f64,
}

impl PairCounts {
    /// Counts a pair.
    pub(crate) fn add(&mut self, margin: f64) {
        self.pairs += 1;
        self.preferred += u64::from(margin > 0.0);
        self.margins += margin;
    }

    fn merge(&mut self, more: &Self) {
        self.pairs += more.pairs;
        self.preferred += more.preferred;
        self.margins += more.margins;
    }

    /// The share of pairs that it judges as people do.
    pub fn accuracy(&self) -> f64 {
        self.preferred as f64 / self.pairs.max(1) as f64
    }

    /// The mean margin.
    pub fn margin(&self) -> f64 {
        self.margins / self.pairs.max(1) as f64
    }
}

impl Scores {
    /// Nothing counted yet.
    pub fn new(task: Task, labels: &LabelSet) -> Self {
        let counts = match task.shape() {
            LabelShape::Many => Counts::Codes(LabelScore::new(labels.len())),
            LabelShape::PerWord if marks_spans(labels) => Counts::Spans(SpanScore::default()),
            LabelShape::One | LabelShape::PerWord => Counts::Classes(LabelScore::new(labels.len())),
            LabelShape::Absent if task == Task::Generation => Counts::Rouge(RougeScore::default()),
            LabelShape::Absent if task == Task::Preference => Counts::Pairs(PairCounts::default()),
            LabelShape::Absent => Counts::Loss(RougeScore::default()),
        };
        Self { counts, examples: 0, loss_sum: 0.0, targets: 0 }
    }

    /// Adds what was counted elsewhere.
    ///
    /// # Panics
    /// When the other is of another task.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.counts, &other.counts) {
            (Counts::Classes(mine), Counts::Classes(more))
            | (Counts::Codes(mine), Counts::Codes(more)) => mine.merge(more),
            (Counts::Spans(mine), Counts::Spans(more)) => mine.merge(more),
            (Counts::Rouge(mine), Counts::Rouge(more))
            | (Counts::Loss(mine), Counts::Loss(more)) => mine.merge(more),
            (Counts::Pairs(mine), Counts::Pairs(more)) => mine.merge(more),
            _ => panic!("scores of different tasks"),
        }
        self.examples += other.examples;
        self.loss_sum += other.loss_sum;
        self.targets += other.targets;
    }

    /// The mean loss, averaged as training averages it; zero when nothing was seen.
    pub fn loss(&self) -> f64 {
        if self.targets == 0 { 0.0 } else { self.loss_sum / self.targets as f64 }
    }

    /// The number that the task is judged by, larger for better, and its name.
    pub fn headline(&self) -> (&'static str, f64) {
        match &self.counts {
            Counts::Classes(score) => ("macro_f1", score.macro_f1()),
            Counts::Codes(score) => ("micro_f1", score.micro_f1()),
            Counts::Spans(score) => ("span_f1", score.micro_f1()),
            Counts::Rouge(score) => ("rouge_l", score.mean().longest),
            Counts::Pairs(pairs) => ("preference_accuracy", pairs.accuracy()),
            Counts::Loss(_) => ("negative_loss", -self.loss()),
        }
    }

    /// Every number by its name, the headline first.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let mut named = vec![self.headline()];
        match &self.counts {
            Counts::Classes(score) => {
                named.extend([("accuracy", score.exact()), ("micro_f1", score.micro_f1())]);
            }
            Counts::Codes(score) => {
                named.extend([("macro_f1", score.macro_f1_of_all()), ("exact", score.exact())]);
            }
            Counts::Spans(score) => {
                let total = score.total();
                named.extend([
                    ("span_precision", total.precision()),
                    ("span_recall", total.recall()),
                    ("span_macro_f1", score.macro_f1()),
                    ("accuracy", score.accuracy()),
                ]);
            }
            Counts::Rouge(score) => {
                let mean = score.mean();
                named.extend([
                    ("rouge_1", mean.one),
                    ("rouge_2", mean.two),
                    ("perplexity", self.loss().exp()),
                ]);
            }
            Counts::Pairs(pairs) => named.push(("margin", pairs.margin())),
            Counts::Loss(written) => {
                if !written.is_empty() {
                    let mean = written.mean();
                    let all = [mean.one, mean.two, mean.longest];
                    named.extend(["rouge_1", "rouge_2", "rouge_l"].into_iter().zip(all));
                }
                named.push(("perplexity", self.loss().exp()));
            }
        }
        named.push(("loss", self.loss()));
        named
    }

    /// Each label's own scores, of the labels that the counts were made with; `None` where nothing has
    /// a label.
    pub fn by_label(&self, labels: &LabelSet) -> Option<ByLabel> {
        match &self.counts {
            Counts::Classes(score) => Some(score.by_class(labels)),
            Counts::Codes(score) => Some(score.by_code(labels)),
            Counts::Spans(score) => Some(score.by_type()),
            Counts::Rouge(_) | Counts::Pairs(_) | Counts::Loss(_) => None,
        }
    }

    /// The scores as the engine reports them: those of a client, or of a central set.
    pub fn scored(&self, client: Option<ClientId>) -> Scored {
        let named = self.named().into_iter().filter(|(name, _)| *name != "loss");
        let scores = named.map(|(name, value)| (name.to_owned(), value)).collect();
        // Which scores are an F1 of counts that add up over clients.
        let (name, total) = match &self.counts {
            Counts::Classes(score) | Counts::Codes(score) => ("micro_f1", Some(score.total())),
            Counts::Spans(score) => ("span_f1", Some(score.total())),
            Counts::Rouge(_) | Counts::Pairs(_) | Counts::Loss(_) => ("", None),
        };
        let tally = |total: fedra_data::ConfusionCounts| {
            let fedra_data::ConfusionCounts { true_positives, false_positives, false_negatives } =
                total;
            (name.to_owned(), F1Counts { true_positives, false_positives, false_negatives })
        };
        let tallies: BTreeMap<String, F1Counts> = total.map(tally).into_iter().collect();
        Scored { client, examples: self.examples, loss: self.loss(), scores, tallies }
    }

    /// Counts the loss of one example: a sum over so many targets.
    pub(crate) fn add_loss(&mut self, sum: f64, targets: u64) {
        self.examples += 1;
        self.loss_sum += sum;
        self.targets += targets;
    }
}

/// Whether every tag but `O` carries a prefix, so that tags make spans.
pub fn marks_spans(labels: &LabelSet) -> bool {
    let prefixed = |name: &str| {
        name == "O" || ["B-", "I-", "E-", "S-"].iter().any(|prefix| name.starts_with(prefix))
    };
    labels.names().iter().all(|name| prefixed(name))
}
