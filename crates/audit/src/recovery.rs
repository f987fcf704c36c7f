//! How much of the lines an attack gave back.
//!
//! Tokens of one line are not independent, so the interval is over lines: that of a ratio of sums,
//! the tokens that are right over all tokens.

use fedra_data::Rouge;
use serde::Serialize;

/// Half a 95 % interval in standard errors.
const NORMAL_95: f64 = 1.96;

/// Counts, line by line.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Right tokens and all tokens of each line, over all of its observations.
    lines: Vec<(u64, u64)>,
    rare: (u64, u64),
    rouge: (f64, u64),
}

/// One line as it was and as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Which line.
    pub line: usize,
    /// The tokens that were to be found.
    pub truth: &'a [u32],
    /// Those that were found.
    pub found: &'a [u32],
}

/// Shares of what was to be found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Of all tokens.
    pub accuracy: f64,
    /// The 95 % interval of that, over lines.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Of tokens that are rare in public text; absent where there is none.
    pub rare: Option<f64>,
    /// ROUGE-L (F1) of the words.
    pub rouge_l: f64,
    /// How many lines.
    pub lines: usize,
    /// How many tokens, over all observations.
    pub tokens: u64,
    /// How many rare ones.
    pub rare_tokens: u64,
}

impl Recovery {
    /// Counts one line.
    pub fn add(
        &mut self,
        reading: Reading<'_>,
        is_rare: impl Fn(u32) -> bool,
        text: &dyn Fn(&[u32]) -> String,
    ) {
        let Reading { line, truth, found } = reading;
        if self.lines.len() <= line {
            self.lines.resize(line + 1, (0, 0));
        }
        for (place, &token) in truth.iter().enumerate() {
            let right = u64::from(found.get(place) == Some(&token));
            self.lines[line].0 += right;
            self.lines[line].1 += 1;
            if is_rare(token) {
                self.rare.0 += right;
                self.rare.1 += 1;
            }
        }
        self.rouge.0 += Rouge::of(&text(truth), &text(found)).longest;
        self.rouge.1 += 1;
    }

    /// The shares; none where nothing was counted.
    pub fn rates(&self) -> Option<Rates> {
        let lines: Vec<(f64, f64)> = (self.lines.iter().filter(|line| line.1 > 0))
            .map(|&(right, all)| (right as f64, all as f64))
            .collect();
        let (right, all) =
            lines.iter().fold((0.0, 0.0), |sum, line| (sum.0 + line.0, sum.1 + line.1));
        if all == 0.0 {
            return None;
        }
        let accuracy = right / all;
        let count = lines.len() as f64;
        let squares: f64 = lines.iter().map(|(right, all)| (right - accuracy * all).powi(2)).sum();
        // One line says nothing about others.
        let error =
            if lines.len() < 2 { 1.0 } else { (squares * count / (count - 1.0)).sqrt() / all };
        Some(Rates {
            accuracy,
            low: (accuracy - NORMAL_95 * error).max(0.0),
            high: (accuracy + NORMAL_95 * error).min(1.0),
            rare: (self.rare.1 > 0).then(|| self.rare.0 as f64 / self.rare.1 as f64),
            rouge_l: self.rouge.0 / self.rouge.1 as f64,
            lines: lines.len(),
            tokens: all as u64,
            rare_tokens: self.rare.1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_tokens_and_the_interval_is_over_lines() {
        let mut recovery = Recovery::default();
        let text = |tokens: &[u32]| format!("{tokens:?}");
        let mut add = |line, truth: &[u32], found: &[u32]| {
            recovery.add(Reading { line, truth, found }, |token| token > 5, &text);
        };
        add(0, &[1, 2, 3, 9], &[1, 2, 4, 9]);
        add(1, &[1, 8], &[1, 1]);
        let rates = recovery.rates().unwrap();
        assert!((rates.accuracy - 4.0 / 6.0).abs() < 1e-12);
        assert_eq!((rates.rare, rates.rare_tokens, rates.lines), (Some(0.5), 2, 2));
        assert!((rates.rouge_l - 0.625).abs() < 1e-12);
        // Residuals of the lines: 3 - 4 x 2/3 = 1/3 and 1 - 2 x 2/3 = -1/3.
        let error = (2.0_f64 * 2.0 / 9.0).sqrt() / 6.0;
        assert!((rates.high - (rates.accuracy + 1.96 * error)).abs() < 1e-12);
    }

    #[test]
    fn nothing_counted_has_no_shares_and_a_single_line_no_interval() {
        let mut recovery = Recovery::default();
        assert_eq!(recovery.rates(), None);
        let reading = Reading { line: 0, truth: &[1, 2], found: &[1] };
        recovery.add(reading, |_| false, &|_| String::new());
        let rates = recovery.rates().unwrap();
        assert_eq!((rates.accuracy, rates.low, rates.high, rates.rare), (0.5, 0.0, 1.0, None));
    }
}
