//! What an attack found: one row of the table, one line of JSON.

use fedra_engine::{NoiseDraw, NoiseKind};
use serde::Serialize;

use crate::recovery::Rates;

/// How the tokens were guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attack {
    /// The commonest token of public text, always.
    Unigram,
    /// What a language model says, given the true tokens before.
    Language,
    /// The linear inverter.
    Inverter,
    /// The inverter trained on the next token: the usual mistake.
    ShiftedInverter,
    /// Prefix-greedy search by the state alone.
    Search,
    /// The same with a language model's expectation.
    SearchWithPrior,
    /// Search on the mean of several sights of the same line.
    Average,
}

impl Attack {
    /// Every attack, guesses first.
    pub const ALL: [Self; 7] = [
        Self::Unigram,
        Self::Language,
        Self::Inverter,
        Self::ShiftedInverter,
        Self::Search,
        Self::SearchWithPrior,
        Self::Average,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unigram => "unigram guess",
            Self::Language => "language model guess",
            Self::Inverter => "inverter",
            Self::ShiftedInverter => "shifted inverter",
            Self::Search => "search",
            Self::SearchWithPrior => "search with prior",
            Self::Average => "average",
        }
    }

    /// Whether it reads back text from one sight of its states; guesses and the control do not.
    pub const fn reads_one_sight(self) -> bool {
        matches!(self, Self::Inverter | Self::Search | Self::SearchWithPrior)
    }
}

/// What the attacker knows of the weights below the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// The client's own, as they are: clients' ends are averaged by the server, or were never tuned.
    Exact,
    /// The public ones from which the client set out.
    Pretrained,
}

impl Knowledge {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Pretrained => "pretrained",
        }
    }
}

/// Noise at a cut, and how large it turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NoiseLevel {
    /// The formula and its numbers.
    pub kind: NoiseKind,
    /// The standard deviation in units of the states' root mean square.
    pub over_rms: f64,
}

impl NoiseLevel {
    /// The number that a sweep varies.
    pub const fn level(self) -> f64 {
        match self.kind {
            NoiseKind::Relative { gamma } => gamma,
            NoiseKind::Clipped { sigma, .. } => sigma,
            NoiseKind::Absolute { scale } => scale,
        }
    }
}

/// A cut and its noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// How many blocks are below the cut.
    pub first: usize,
    /// What is added there.
    pub noise: NoiseLevel,
    /// Next-token loss of held-out lines through the cut with that noise.
    pub loss: f64,
    /// The same without noise.
    pub clean_loss: f64,
}

/// What one attack found in one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The attack.
    pub attack: Attack,
    /// What it knew; guesses know nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<Knowledge>,
    /// Where it was run; guesses need no cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<Setting>,
    /// How often each line was seen.
    pub views: u32,
    /// Whether noise was new each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draw: Option<NoiseDraw>,
    /// How much came back.
    #[serde(flatten)]
    pub rates: Rates,
    /// The first line as it was read.
    pub sample: String,
}

/// At which noise a cut's text is safe from these attacks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The cut.
    pub first: usize,
    /// The lowest noise from which on no attack finds more than the unigram guess does, if any.
    pub safe: Option<Setting>,
    /// The loudest noise that was tried, and the share of tokens that the best attack still finds.
    pub loudest: (Setting, f64),
    /// The highest noise at which at least nine in ten tokens are read, if any.
    pub readable: Option<Setting>,
}

impl Verdict {
    /// When a noise counts as safe.
    pub const CRITERION: &'static str = "the best attack's 95 % interval reaches down to the share \
                                         of the unigram guess, there and at every larger noise";

    /// A verdict for each cut, from what single sights gave.
    pub fn of(findings: &[Finding]) -> Vec<Self> {
        let unigram = findings.iter().find(|finding| finding.attack == Attack::Unigram);
        let bar = unigram.map_or(0.0, |finding| finding.rates.accuracy);
        let mut cuts: Vec<usize> =
            findings.iter().filter_map(|finding| Some(finding.setting?.first)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts.into_iter().filter_map(|first| Self::of_cut(findings, first, bar)).collect()
    }

    fn of_cut(findings: &[Finding], first: usize, bar: f64) -> Option<Self> {
        // The best attack of each level, from quiet to loud.
        let mut levels: Vec<(Setting, Rates)> = Vec::new();
        for finding in findings.iter().filter(|finding| finding.attack.reads_one_sight()) {
            let Some(setting) = finding.setting.filter(|setting| setting.first == first) else {
                continue;
            };
            match levels.iter_mut().find(|level| level.0 == setting) {
                Some(level) if level.1.accuracy < finding.rates.accuracy => level.1 = finding.rates,
                Some(_) => {}
                None => levels.push((setting, finding.rates)),
            }
        }
        levels.sort_by(|a, b| a.0.noise.level().total_cmp(&b.0.noise.level()));
        let safe_from = levels.iter().rposition(|level| level.1.low > bar).map_or(0, |at| at + 1);
        let loudest = levels.last()?;
        Some(Self {
            first,
            safe: levels.get(safe_from).map(|level| level.0),
            loudest: (loudest.0, loudest.1.accuracy),
            readable: levels.iter().rev().find(|level| level.1.accuracy >= 0.9).map(|l| l.0),
        })
    }
}
