//! What a score is worth: the same score of an answer that takes no model.
//!
//! Where an example or a word has one of several labels, that answer is always the commonest label of
//! the training rows. Where words make spans that would find nothing, so every word gets the tag it
//! had most often. A set of labels or the next token has no such answer. Everything is counted on the
//! rows as they were read, before any is cut to the model's length.

use std::collections::BTreeMap;

use fedra_client::{Counts, Scores};
use fedra_data::{Body, Holding, LabelScore, Labels, SpanScore, printable};
use serde::{Deserialize, Serialize};

use crate::prepare::partitioned_data::PartitionedData;

/// Scores without a model, on the sets that a run is scored on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// What is answered, in words that go on after "no better than".
    pub answer: String,
    /// By set, as the scores of a run are; the mean over clients is by their rows.
    pub scores: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Baseline {
    /// The baseline of some rows; `None` for tasks that have none or where nobody trains on a label.
    pub fn of(holdings: &PartitionedData) -> Option<Self> {
        let guess = Guess::from_training(holdings)?;
        let division = &holdings.division;
        let mut scores = BTreeMap::new();
        if !division.central_test.is_empty() {
            let central = guess.score(holdings, &division.central_test);
            scores.insert("central_test".to_owned(), central);
        }
        for (set, part) in [
            ("client_validation", (|holding| &holding.validation) as fn(&Holding) -> &Vec<usize>),
            ("client_test", |holding| &holding.test),
        ] {
            let clients = division.clients.iter().map(part).filter(|rows| !rows.is_empty());
            let (mut mean, mut total) = (BTreeMap::new(), 0.0);
            for rows in clients {
                let weight = rows.len() as f64;
                total += weight;
                for (name, value) in guess.score(holdings, rows) {
                    *mean.entry(name).or_insert(0.0) += weight * value;
                }
            }
            if total > 0.0 {
                for value in mean.values_mut() {
                    *value /= total;
                }
                scores.insert(set.to_owned(), mean);
            }
        }
        (!scores.is_empty()).then(|| Self { answer: guess.in_words(holdings), scores })
    }

    /// One score on one set.
    pub fn score(&self, on: &str, name: &str) -> Option<f64> {
        self.scores.get(on)?.get(name).copied()
    }
}

/// An answer that looks at no example, or at no more than the word itself.
enum Guess<'a> {
    /// Always this label.
    Label(u32),
    /// A word's commonest tag.
    ByWord(BTreeMap<&'a str, u32>),
}

impl<'a> Guess<'a> {
    fn from_training(holdings: &'a PartitionedData) -> Option<Self> {
        let PartitionedData { table, division, .. } = holdings;
        let rows = || division.clients.iter().flat_map(|holding| &holding.train);
        match Scores::new(table.task, &table.labels).counts {
            Counts::Classes(_) => {
                let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
                for &row in rows() {
                    for label in table.examples[row].labels.numbers() {
                        *counts.entry(*label).or_default() += 1;
                    }
                }
                commonest(&counts).map(Self::Label)
            }
            Counts::Spans(_) => {
                let mut counts: BTreeMap<&str, BTreeMap<u32, usize>> = BTreeMap::new();
                for (words, tags) in rows().filter_map(|row| tagged(holdings, *row)) {
                    for (word, tag) in words.iter().zip(tags) {
                        *counts.entry(word).or_default().entry(*tag).or_default() += 1;
                    }
                }
                let usual =
                    counts.iter().filter_map(|(word, tags)| Some((*word, commonest(tags)?)));
                Some(Self::ByWord(usual.collect()))
            }
            Counts::Codes(_) | Counts::Rouge(_) | Counts::Pairs(_) | Counts::Loss(_) => None,
        }
    }

    fn score(&self, holdings: &PartitionedData, rows: &[usize]) -> BTreeMap<String, f64> {
        let table = &holdings.table;
        let scores = match self {
            Self::Label(guess) => {
                let mut score = LabelScore::new(table.labels.len());
                for &row in rows {
                    for label in table.examples[row].labels.numbers() {
                        score.add(&[*label], &[*guess]);
                    }
                }
                vec![("macro_f1", score.macro_f1()), ("accuracy", score.exact())]
            }
            Self::ByWord(usual) => {
                let name = |tag: &u32| table.labels.name(*tag);
                let mut score = SpanScore::default();
                for (words, tags) in rows.iter().filter_map(|row| tagged(holdings, *row)) {
                    let truth: Vec<&str> = tags.iter().map(name).collect();
                    let guess = |word: &String| usual.get(word.as_str()).map_or(OUTSIDE, name);
                    score.add(&truth, &words.iter().map(guess).collect::<Vec<&str>>());
                }
                vec![("span_f1", score.micro_f1()), ("accuracy", score.accuracy())]
            }
        };
        scores.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn in_words(&self, holdings: &PartitionedData) -> String {
        match self {
            Self::Label(label) => {
                format!("always answering \"{}\"", printable(holdings.table.labels.name(*label)))
            }
            Self::ByWord(_) => "giving every word its most frequent tag".to_owned(),
        }
    }
}

/// The tag of a word that was never seen.
const OUTSIDE: &str = "O";

/// The most frequent; the last of equals.
fn commonest(counts: &BTreeMap<u32, usize>) -> Option<u32> {
    counts.iter().max_by_key(|(_, count)| **count).map(|(label, _)| *label)
}

fn tagged(holdings: &PartitionedData, row: usize) -> Option<(&Vec<String>, &Vec<u32>)> {
    let example = &holdings.table.examples[row];
    match (&example.body, &example.labels) {
        (Body::Words(words), Labels::PerWord(tags)) => Some((words, tags)),
        (
            Body::Words(_)
            | Body::Text(_)
            | Body::Pair(..)
            | Body::Image(_)
            | Body::Conversation(_),
            _,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use fedra_data::{Division, Row, TableBuilder, Task};

    use super::*;

    fn holdings(
        task: Task,
        rows: Vec<Row>,
        clients: &[(&[usize], &[usize])],
        central: &[usize],
    ) -> PartitionedData {
        let mut builder = TableBuilder::new(task);
        for row in rows {
            builder.push(row).unwrap();
        }
        let holding = |(train, test): &(&[usize], &[usize])| Holding {
            client: "north".to_owned(),
            train: train.to_vec(),
            test: test.to_vec(),
            ..Holding::default()
        };
        let division = Division {
            clients: clients.iter().map(holding).collect(),
            central_test: central.to_vec(),
        };
        PartitionedData { table: builder.finish(), division, small: 0 }
    }

    #[test]
    fn the_commonest_label_of_training_is_scored_on_every_set() {
        let rows = ["flu", "flu", "gout", "flu", "gout", "gout", "gout", "flu"];
        let rows = rows.into_iter().map(|label| Row::text("x").with_labels([label])).collect();
        // Flu leads in training. Three of the first client's and none of the second's test rows
        // are flu; on the central set it is one of two.
        let held = holdings(Task::Classes, rows, &[(&[0, 2], &[1]), (&[3], &[4, 5, 6])], &[6, 7]);
        let found = Baseline::of(&held).unwrap();
        assert_eq!(found.answer, "always answering \"flu\"");
        assert_eq!(found.score("central_test", "accuracy"), Some(0.5));
        // Flu: precision 1/2 and recall 1, F1 2/3; gout: 0.
        assert_eq!(found.score("central_test", "macro_f1"), Some(1.0 / 3.0));
        // One row with 1 and three with 0.
        assert_eq!(found.score("client_test", "accuracy"), Some(0.25));
        assert_eq!(found.score("client_validation", "accuracy"), None);
    }

    #[test]
    fn spans_are_found_word_by_word() {
        let row = |words: [&str; 2], tags: [&str; 2]| Row::words(words).with_labels(tags);
        let rows = vec![
            row(["had", "flu"], ["O", "B-problem"]),
            row(["gout", "flu"], ["B-problem", "B-problem"]),
            row(["flu", "new"], ["O", "B-problem"]),
        ];
        let held = holdings(Task::Concepts, rows, &[(&[0], &[])], &[1, 2]);
        let found = Baseline::of(&held).unwrap();
        // Found: the flu of row 1; missed: gout and new, which are new; falsely found: flu of row 2.
        assert_eq!(found.score("central_test", "span_f1"), Some(0.4));
        assert_eq!(found.scores.len(), 1);
    }

    #[test]
    fn sets_of_labels_have_no_baseline() {
        let rows = vec![Row::text("x").with_labels(["a", "b"]); 2];
        assert_eq!(Baseline::of(&holdings(Task::Diagnosis, rows, &[(&[0], &[1])], &[])), None);
    }
}
