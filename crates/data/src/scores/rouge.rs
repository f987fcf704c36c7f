//! ROUGE: how many words, pairs of words and words in order a text shares with a reference
//! (Lin 2004, <https://aclanthology.org/W04-1013>).
//!
//! Words are runs of ASCII letters and digits of the lower-case text, as the `rouge-score` package
//! cuts them; fixtures hold the numbers to it. Each of the three is an F1 per example, and a set has
//! their mean. Unlike counts, means of fractions depend on the order in which they are added, so
//! examples are added in their order.

use std::collections::BTreeMap;

/// The three scores of one text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rouge {
    /// Of single words.
    pub one: f64,
    /// Of pairs of neighbours.
    pub two: f64,
    /// Of the longest common subsequence.
    pub longest: f64,
}

impl Rouge {
    /// The scores of a text against its reference.
    ///
    /// ```
    /// use fedra_data::Rouge;
    /// let score = Rouge::of("the patient has a cough", "a cough, the patient");
    /// assert!((score.one - 8.0 / 9.0).abs() < 1e-12);
    /// ```
    pub fn of(reference: &str, text: &str) -> Self {
        let (reference, text) = (cut(reference), cut(text));
        let shared = |size| {
            let (mine, others) = (grams(&reference, size), grams(&text, size));
            let common =
                mine.iter().map(|(gram, count)| *count.min(others.get(gram).unwrap_or(&0)));
            let of = |words: &[String]| (words.len() + 1).saturating_sub(size);
            f1(common.sum(), of(&reference), of(&text))
        };
        let longest = common_subsequence(&reference, &text);
        Self { one: shared(1), two: shared(2), longest: f1(longest, reference.len(), text.len()) }
    }
}

/// The mean scores of several texts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RougeScore {
    sum: Rouge,
    seen: u64,
}

impl RougeScore {
    /// Counts one text.
    pub fn add(&mut self, rouge: Rouge) {
        self.absorb(rouge);
        self.seen += 1;
    }

    /// Adds what another accumulator has counted.
    pub fn merge(&mut self, other: &Self) {
        self.absorb(other.sum);
        self.seen += other.seen;
    }

    /// Whether no text was counted.
    pub fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// The means; zero when nothing was seen.
    pub fn mean(&self) -> Rouge {
        let of = |sum: f64| if self.seen == 0 { 0.0 } else { sum / self.seen as f64 };
        Rouge { one: of(self.sum.one), two: of(self.sum.two), longest: of(self.sum.longest) }
    }

    fn absorb(&mut self, more: Rouge) {
        self.sum.one += more.one;
        self.sum.two += more.two;
        self.sum.longest += more.longest;
    }
}

fn cut(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let runs = lower.split(|letter: char| !letter.is_ascii_alphanumeric());
    runs.filter(|run| !run.is_empty()).map(str::to_owned).collect()
}

fn grams(words: &[String], size: usize) -> BTreeMap<&[String], usize> {
    let mut counts = BTreeMap::new();
    for gram in words.windows(size) {
        *counts.entry(gram).or_default() += 1;
    }
    counts
}

/// The length of the longest sequence of words that both have in order.
fn common_subsequence(left: &[String], right: &[String]) -> usize {
    let mut row = vec![0; right.len() + 1];
    for word in left {
        let mut diagonal = 0;
        for (place, other) in right.iter().enumerate() {
            let above = row[place + 1];
            row[place + 1] = if word == other { diagonal + 1 } else { above.max(row[place]) };
            diagonal = above;
        }
    }
    row[right.len()]
}

/// Harmonic mean of the shared part of the text and of the reference.
fn f1(shared: usize, reference: usize, text: usize) -> f64 {
    if shared == 0 {
        return 0.0;
    }
    let precision = shared as f64 / text.max(1) as f64;
    let recall = shared as f64 / reference.max(1) as f64;
    2.0 * precision * recall / (precision + recall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scores_of_a_small_pair_are_those_by_hand() {
        let score = Rouge::of("a b c d", "a c b d e");
        assert!((score.one - 2.0 * 0.8 * 1.0 / 1.8).abs() < 1e-12);
        assert_eq!(score.two, 0.0);
        // a b d, or a c d: three of four and of five.
        assert!((score.longest - 2.0 * 0.75 * 0.6 / 1.35).abs() < 1e-12);
        assert_eq!(Rouge::of("", ""), Rouge::default());
        assert_eq!(Rouge::of("x", "..."), Rouge::default());
    }

    #[test]
    fn a_mean_is_over_all_that_was_seen() {
        let one = Rouge { one: 1.0, two: 0.5, longest: 1.0 };
        let mut score = RougeScore::default();
        score.add(one);
        let mut other = RougeScore::default();
        other.add(Rouge::default());
        score.merge(&other);
        assert_eq!(score.mean(), Rouge { one: 0.5, two: 0.25, longest: 0.5 });
        assert_eq!(RougeScore::default().mean(), Rouge::default());
    }
}
