//! F1 of exact spans, counted as seqeval's default mode counts them.
//!
//! That mode descends from conlleval and forgives: a span that opens with `I-` after `O`, or after
//! another type, is a span. `B-`, `I-`, `E-` and `S-` prefixes are understood, and a tag without a
//! type has the type `_`. Being different here would make every published number incomparable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::by_label::{ByLabel, ConfusionMatrix, Pairs, merge_pairs};
use super::counts::{ConfusionCounts, macro_f1, occurring, ratio, total};

/// A typed run of words: `start..=end` in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span<'a> {
    /// The type, as `problem`.
    pub kind: &'a str,
    /// The first word.
    pub start: usize,
    /// The last word.
    pub end: usize,
}

/// The spans of one sequence of tags.
///
/// ```
/// use fedra_data::{Span, spans};
/// let found = spans(["B-PER", "I-PER", "O", "B-LOC"]);
/// assert_eq!(found[0], Span { kind: "PER", start: 0, end: 1 });
/// assert_eq!(found[1], Span { kind: "LOC", start: 3, end: 3 });
/// ```
pub fn spans<'a>(tags: impl IntoIterator<Item = &'a str>) -> Vec<Span<'a>> {
    let mut found = Vec::new();
    let mut previous = ('O', "");
    let mut start = 0;
    for (position, tag) in tags.into_iter().chain(["O"]).enumerate() {
        let current = parts(tag);
        if ends(previous, current) {
            found.push(Span { kind: previous.1, start, end: position - 1 });
        }
        if starts(previous, current) {
            start = position;
        }
        previous = current;
    }
    found
}

/// Prefix and type of a tag.
fn parts(tag: &str) -> (char, &str) {
    let mut letters = tag.chars();
    let prefix = letters.next().unwrap_or('O');
    let rest = letters.as_str();
    let kind = rest.split_once('-').map_or(rest, |(_, kind)| kind);
    (prefix, if kind.is_empty() { "_" } else { kind })
}

/// The type of the span that a tag puts its word in.
fn word_type(tag: &str) -> &str {
    match parts(tag) {
        ('O', _) => OUTSIDE,
        (_, kind) => kind,
    }
}

fn ends((before, before_kind): (char, &str), (now, kind): (char, &str)) -> bool {
    matches!((before, now), ('E' | 'S', _) | ('B' | 'I', 'B' | 'S' | 'O'))
        || (before != 'O' && before_kind != kind)
}

fn starts((before, before_kind): (char, &str), (now, kind): (char, &str)) -> bool {
    matches!((before, now), (_, 'B' | 'S') | ('E' | 'S' | 'O', 'E' | 'I'))
        || (now != 'O' && before_kind != kind)
}

/// Micro and macro F1 of exact spans, and the accuracy of single tags.
///
/// ```
/// use fedra_data::SpanScore;
/// let mut score = SpanScore::default();
/// score.add(&["B-test", "I-test", "O"], &["I-test", "I-test", "O"]);
/// assert_eq!(score.micro_f1(), 1.0); // forgiving, as seqeval's default is
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanScore {
    /// Counts by type.
    pub kinds: BTreeMap<String, ConfusionCounts>,
    right: u64,
    seen: u64,
    /// Which type of word was taken for which; a word in no span has the type `O`.
    words: Pairs<String>,
}

/// The type of words that are in no span.
const OUTSIDE: &str = "O";

impl SpanScore {
    /// Counts one sequence.
    ///
    /// # Panics
    /// When the two have different lengths.
    pub fn add(&mut self, truth: &[&str], guess: &[&str]) {
        assert_eq!(truth.len(), guess.len(), "one guess a word");
        self.seen += truth.len() as u64;
        self.right += truth.iter().zip(guess).filter(|(t, g)| t == g).count() as u64;
        for (truth, guess) in truth.iter().zip(guess) {
            let (truth, guess) = (word_type(truth), word_type(guess));
            let row = match self.words.get_mut(truth) {
                Some(row) => row,
                None => self.words.entry(truth.to_owned()).or_default(),
            };
            match row.get_mut(guess) {
                Some(count) => *count += 1,
                None => *row.entry(guess.to_owned()).or_default() += 1,
            }
        }
        let (real, guessed) = (spans(truth.iter().copied()), spans(guess.iter().copied()));
        for span in &real {
            let tally = self.kinds.entry(span.kind.to_owned()).or_default();
            if guessed.contains(span) {
                tally.true_positives += 1;
            } else {
                tally.false_negatives += 1;
            }
        }
        for span in guessed.iter().filter(|span| !real.contains(span)) {
            self.kinds.entry(span.kind.to_owned()).or_default().false_positives += 1;
        }
    }

    /// Adds what another accumulator has counted.
    pub fn merge(&mut self, other: &Self) {
        for (kind, tally) in &other.kinds {
            self.kinds.entry(kind.clone()).or_default().add(*tally);
        }
        self.right += other.right;
        self.seen += other.seen;
        merge_pairs(&mut self.words, &other.words);
    }

    /// All types pooled; precision, recall and F1 of this are the headline numbers.
    pub fn total(&self) -> ConfusionCounts {
        total(self.kinds.values())
    }

    /// F1 of the pooled counts, which is what "span F1" means without a qualifier.
    pub fn micro_f1(&self) -> f64 {
        self.total().f1()
    }

    /// Mean F1 over the types that occur.
    pub fn macro_f1(&self) -> f64 {
        macro_f1(occurring(self.kinds.values()))
    }

    /// The share of words with the right tag.
    pub fn accuracy(&self) -> f64 {
        ratio(self.right, self.seen)
    }

    /// Each type's own scores over exact spans, and which type of word was taken for which.
    pub fn by_type(&self) -> ByLabel {
        let mut names: Vec<String> = vec![OUTSIDE.to_owned()];
        let occurring = self.words.iter().flat_map(|(truth, row)| row.keys().chain([truth]));
        let mut types: Vec<String> = occurring.filter(|name| *name != OUTSIDE).cloned().collect();
        types.sort();
        types.dedup();
        names.extend(types);
        let names = names.into_iter().map(|name| (name.clone(), name));
        let confusion = ConfusionMatrix::of(&self.words, names);
        let kinds = self.kinds.iter().map(|(kind, counts)| (kind.as_str(), *counts));
        ByLabel::of(kinds, Some(confusion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(truth: &str, guess: &str) -> SpanScore {
        let mut score = SpanScore::default();
        for (truth, guess) in truth.split('|').zip(guess.split('|')) {
            let truth: Vec<&str> = truth.split(' ').collect();
            let guess: Vec<&str> = guess.split(' ').collect();
            score.add(&truth, &guess);
        }
        score
    }

    #[test]
    fn types_have_their_scores_and_words_their_matrix() {
        let score = scored("B-a I-a O B-b", "B-a I-a B-b O");
        let by_type = score.by_type();
        let f1: Vec<(&str, f64, u64)> =
            by_type.labels.iter().map(|one| (one.label.as_str(), one.f1, one.support)).collect();
        assert_eq!(f1, [("a", 1.0, 1), ("b", 0.0, 1)]);
        let confusion = by_type.confusion.unwrap();
        assert_eq!(confusion.labels, ["O", "a", "b"]);
        assert_eq!(confusion.counts, [[0, 0, 1], [0, 2, 0], [1, 0, 0]]);
    }

    #[test]
    fn the_published_seqeval_examples_score_the_same() {
        let score = scored(
            "O O O B-MISC I-MISC I-MISC O|B-PER I-PER O",
            "O O B-MISC I-MISC I-MISC I-MISC O|B-PER I-PER O",
        );
        assert_eq!((score.micro_f1(), score.accuracy()), (0.5, 0.8));
        assert_eq!(score.kinds["MISC"].f1(), 0.0);
        assert_eq!(score.kinds["PER"].f1(), 1.0);
        // The README's own example of the forgiving mode against the strict one.
        assert_eq!(scored("B-NP I-NP O", "I-NP I-NP O").micro_f1(), 1.0);
        let found = spans(["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O", "B-PER", "I-PER"]);
        assert_eq!(found[0], Span { kind: "MISC", start: 3, end: 5 });
        assert_eq!(found[1], Span { kind: "PER", start: 7, end: 8 });
    }

    #[test]
    fn ill_formed_tags_score_as_seqeval_1_2_2_scores_them() {
        // Random tags and what that version printed: micro F1, macro F1, accuracy.
        const CASES: [(&str, &str, f64, f64, f64); 8] = [
            (
                "I-c I-a I-c I-c I-c|I-b O B-b B-a I-c",
                "I-c I-a I-c B-b I-c|I-b O B-b B-a B-b",
                0.625,
                0.666_666_666_666_666_6,
                0.8,
            ),
            (
                "O B-a I-b I-b|B-b B-a B-a O",
                "O B-a I-b B-a|B-b I-b I-c O",
                0.2,
                0.133_333_333_333_333_33,
                0.625,
            ),
            (
                "B-b I-a O I-a|B-b B-a B-a I-a O",
                "B-b I-b O I-a|B-b B-a B-b I-a O",
                0.5,
                0.485_714_285_714_285_77,
                0.777_777_777_777_777_8,
            ),
            (
                "I-c B-a O I-a O I-c|I-a B-b O I-b B-b I-a B-b",
                "I-c B-a O I-a B-a I-c|I-a B-b O I-b B-b O B-b",
                0.9,
                0.916_666_666_666_666_6,
                0.846_153_846_153_846_1,
            ),
            (
                "I-a O B-b O B-a|I-a I-b I-b I-a B-a I-a",
                "I-a O B-b O B-a|I-a I-b I-b B-a O I-b",
                0.857_142_857_142_857_1,
                0.844_444_444_444_444_6,
                0.727_272_727_272_727_3,
            ),
            (
                "O B-a I-c I-b I-a I-a|B-b I-c B-b B-a O I-c",
                "O B-a B-a I-b I-c B-b|B-b I-c B-b I-a O I-b",
                0.631_578_947_368_421,
                0.605_555_555_555_555_5,
                0.583_333_333_333_333_4,
            ),
            (
                "S-b S-b I-c S-b|I-b I-b S-b E-a",
                "B-a S-b I-a S-b|I-b I-b S-b E-a",
                0.714_285_714_285_714_3,
                0.462_962_962_962_962_97,
                0.75,
            ),
            (
                "I-c B-a I-c O I-b I-c I-b|S-b I-b I-b I-c I-a O S-b",
                "I-c B-a I-c O I-c I-c I-b|E-a I-b S-b I-c I-a O S-b",
                0.636_363_636_363_636_4,
                0.664_814_814_814_814_9,
                0.785_714_285_714_285_7,
            ),
        ];
        for (truth, guess, micro, macro_, accuracy) in CASES {
            let score = scored(truth, guess);
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{truth}: {a} and {b}");
            close(score.micro_f1(), micro);
            close(score.macro_f1(), macro_);
            close(score.accuracy(), accuracy);
        }
    }

    #[test]
    fn nothing_true_and_nothing_guessed_scores_zero() {
        assert_eq!(scored("O O", "O O").micro_f1(), 0.0);
    }
}
