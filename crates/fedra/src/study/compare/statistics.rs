//! Means with their intervals, and what a paired difference allows to say.
//!
//! Intervals are Student's t over seeds: few runs, unknown spread. The distribution is written out
//! for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4), which is exact and
//! short, and its quantile is found by halving.

use serde::{Deserialize, Serialize};

/// Share of such intervals that hold the true mean.
pub const CONFIDENCE: f64 = 0.95;

/// Seeds below which nothing is said about a difference: the spread of two is itself a guess.
pub const FEWEST: usize = 3;

/// A mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Average {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval around it; absent for a single value.
    pub margin: Option<f64>,
    /// How many values.
    pub seeds: usize,
}

impl Average {
    /// The mean of some values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let seeds = values.len();
        if seeds == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / seeds as f64;
        let margin = (seeds > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let freedom = seeds - 1;
            let deviation = (squares / freedom as f64).sqrt();
            quantile(0.5 + CONFIDENCE / 2.0, freedom) * deviation / (seeds as f64).sqrt()
        });
        Some(Self { mean, margin, seeds })
    }

    /// What a difference of this mean amounts to; `None` when there are too few seeds to say.
    pub fn verdict(&self) -> Option<Verdict> {
        let margin = self.margin.filter(|_| self.seeds >= FEWEST)?;
        Some(match self.mean {
            mean if mean > margin => Verdict::Better,
            mean if mean < -margin => Verdict::Worse,
            _ => Verdict::NoDifferenceSeen,
        })
    }
}

/// What was seen of a difference in a score of which more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is above zero.
    Better,
    /// The whole interval is above a loss that is tolerable; only advice knows one.
    AsGood,
    /// The whole interval is below zero.
    Worse,
    /// Zero is in the interval. It does not say that there is no difference.
    NoDifferenceSeen,
}

impl Verdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::AsGood => "as good",
            Self::Worse => "worse",
            Self::NoDifferenceSeen => "no difference seen",
        }
    }
}

/// The value below which Student's t lies with this probability, at least one half.
pub fn quantile(probability: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while cumulative(high, freedom) < probability {
        high *= 2.0;
    }
    // Each halving brings one more bit; 100 are more than a double has.
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if cumulative(middle, freedom) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The probability that Student's t lies below `t`, which is at least zero.
fn cumulative(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    // The sum of cos^k times (k-1)!!/k!! (even) or its like for odd degrees of freedom.
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = if odd { (cosine, 0.0) } else { (1.0, 0.0) };
    let mut power = usize::from(odd);
    while power + 2 <= freedom {
        sum += term;
        term *= cosine * cosine * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    let inside = if odd { std::f64::consts::FRAC_2_PI * (angle + sine * sum) } else { sine * sum };
    f64::midpoint(1.0, inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        for (freedom, expected) in [
            (1, 12.706_204_736),
            (2, 4.302_652_730),
            (3, 3.182_446_305),
            (4, 2.776_445_105),
            (5, 2.570_581_836),
            (9, 2.262_157_163),
            (10, 2.228_138_852),
            (29, 2.045_229_642),
            (30, 2.042_272_456),
            (100, 1.983_971_519),
        ] {
            let found = quantile(0.975, freedom);
            assert!((found - expected).abs() < 1e-8, "{freedom}: {found} for {expected}");
        }
        assert!((quantile(0.95, 7) - 1.894_578_605).abs() < 1e-8);
        assert!((quantile(0.995, 4) - 4.604_094_871).abs() < 1e-8);
    }

    #[test]
    fn an_interval_is_the_textbook_one() {
        // Average 3, deviation sqrt(2.5), five values: 2.776445 * 1.581139 / 2.236068.
        let mean = Average::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("five values");
        assert_eq!((mean.mean, mean.seeds), (3.0, 5));
        assert!((mean.margin.expect("an interval") - 1.963_243_161).abs() < 1e-8);
    }

    #[test]
    fn one_value_has_no_interval_and_decides_nothing() {
        let mean = Average::of(&[0.7]).expect("a value");
        assert_eq!((mean.margin, mean.verdict()), (None, None));
        assert_eq!(Average::of(&[]), None);
    }

    #[test]
    fn two_values_have_an_interval_and_decide_nothing() {
        let mean = Average::of(&[0.2, 0.2]).expect("values");
        assert_eq!((mean.margin, mean.verdict()), (Some(0.0), None));
    }

    #[test]
    fn only_an_interval_without_zero_is_a_difference() {
        let verdict = |values: &[f64]| Average::of(values).and_then(|mean| mean.verdict());
        assert_eq!(verdict(&[0.10, 0.11, 0.12]), Some(Verdict::Better));
        assert_eq!(verdict(&[-0.10, -0.11, -0.12]), Some(Verdict::Worse));
        assert_eq!(verdict(&[0.10, -0.02, 0.12]), Some(Verdict::NoDifferenceSeen));
        assert_eq!(verdict(&[0.0, 0.0, 0.0]), Some(Verdict::NoDifferenceSeen));
    }
}
