//! Which block comes first: the criteria, each a few lines that can be read aloud.

use std::ops::Range;

use fedra_plan::Round;
use fedra_seed::Seed;
use serde::{Deserialize, Serialize};

/// What puts blocks in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The highest scores.
    #[default]
    Highest,
    /// The lowest scores: the opposite, as a control.
    Lowest,
    /// The highest score of each of K contiguous bands of the depth.
    Cover,
    /// The highest scores relative to the block's own mean of the measurements before: what has
    /// changed, not where attention always goes.
    Corrected,
    /// Those on which clients differ most: the coefficient of variation of their scores, or with
    /// per-client masks the relative distance of a client's score to the mean.
    Disagreement,
    /// By lot, anew in each round.
    Random,
    /// By lot, once and for all.
    RandomFixed,
    /// Those next to the embedding.
    First,
    /// Those next to the head.
    Last,
    /// The middles of K equal bands of the depth (Layer-Skipping).
    Even,
    /// In turn: each round continues where the last one ended (`FedPart`).
    Cyclic,
    /// These, in this order.
    Named(Vec<u16>),
}

/// What a criterion makes of the scores that clients measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The score itself.
    Score,
    /// The score relative to the block's mean of earlier measurements.
    Change,
    /// How far clients' scores lie apart.
    Spread,
}

/// What an order is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    /// How many blocks will be taken.
    pub k: u16,
    /// How many there are.
    pub blocks: u16,
    pub round: Round,
    /// Where the draws of an order start; already that of the round, or of no round.
    pub lot: Seed,
    /// Where the draws of explored blocks start: that of the round.
    pub explores: Seed,
    /// One number a block, where the criterion looks at numbers.
    pub basis: &'a [f64],
}

impl Criterion {
    /// What it makes of measured scores; `None` if it looks at none.
    pub(super) const fn looks(&self) -> Option<Look> {
        if matches!(self, Self::Highest | Self::Lowest | Self::Cover) {
            Some(Look::Score)
        } else if matches!(self, Self::Corrected) {
            Some(Look::Change)
        } else if matches!(self, Self::Disagreement) {
            Some(Look::Spread)
        } else {
            None
        }
    }

    /// Whether it looks at what clients measured.
    pub const fn looks_at_data(&self) -> bool {
        self.looks().is_some()
    }

    /// Whether it is meant to choose the same blocks in every round.
    pub const fn is_fixed(&self) -> bool {
        matches!(self, Self::RandomFixed | Self::First | Self::Last | Self::Even | Self::Named(_))
    }

    /// Whether the first few blocks of a long list are the list of who takes fewer.
    pub const fn is_nested(&self) -> bool {
        !matches!(self, Self::Cover | Self::Even | Self::Cyclic)
    }

    /// How many of the blocks it names a model of so many has; `None` if it names none.
    pub(crate) fn among(&self, blocks: u16) -> Option<u16> {
        let Self::Named(named) = self else { return None };
        Some(named.iter().filter(|block| **block < blocks).count() as u16)
    }

    /// All blocks, best first.
    pub(crate) fn order(&self, turn: &Turn<'_>) -> Vec<u16> {
        let score = |block: u16| turn.basis.get(usize::from(block)).copied().unwrap_or(0.0);
        let blocks = 0..turn.blocks;
        match self {
            Self::Highest | Self::Corrected | Self::Disagreement => by(blocks, score),
            Self::Lowest => by(blocks, |block| -score(block)),
            Self::Cover => {
                let best =
                    bands(turn.k, turn.blocks).filter_map(|band| by(band, score).first().copied());
                let chosen = by(best, score);
                let rest = by(blocks.filter(|block| !chosen.contains(block)), score);
                [chosen, rest].concat()
            }
            Self::Random | Self::RandomFixed => shuffled(blocks.collect(), turn.lot),
            Self::First => blocks.collect(),
            Self::Last => blocks.rev().collect(),
            Self::Even => {
                let middles: Vec<u16> =
                    bands(turn.k, turn.blocks).map(|band| middle(&band)).collect();
                let rest = blocks.filter(|block| !middles.contains(block)).collect();
                [middles, rest].concat()
            }
            Self::Cyclic => {
                let start =
                    u64::from(turn.round.0) * u64::from(turn.k) % u64::from(turn.blocks.max(1));
                let start = start as u16;
                blocks.clone().skip(usize::from(start)).chain(0..start).collect()
            }
            Self::Named(named) => {
                let has = |block: &u16| *block < turn.blocks;
                let chosen: Vec<u16> = named.iter().copied().filter(has).collect();
                let rest = blocks.filter(|block| !named.contains(block)).collect();
                [chosen, rest].concat()
            }
        }
    }
}

/// The order with some of the first K places given to a draw from all that would not have come.
pub(crate) fn explored(order: Vec<u16>, explore: u16, turn: &Turn<'_>) -> Vec<u16> {
    if explore == 0 {
        return order;
    }
    let sure = usize::from(turn.k.saturating_sub(explore)).min(order.len());
    let (sure, rest) = order.split_at(sure);
    [sure.to_vec(), shuffled(rest.to_vec(), turn.explores.of("explore"))].concat()
}

/// K contiguous bands of so many blocks, as equal as they can be.
pub(super) fn bands(k: u16, blocks: u16) -> impl Iterator<Item = Range<u16>> {
    let (count, blocks) = (u32::from(k.min(blocks)), u32::from(blocks));
    let edge = move |band: u32| (band * blocks / count) as u16;
    (0..count).map(move |band| edge(band)..edge(band + 1))
}

fn middle(band: &Range<u16>) -> u16 {
    band.start + (band.end - band.start) / 2
}

/// Blocks from the highest score to the lowest, equals in block order.
fn by(blocks: impl Iterator<Item = u16>, score: impl Fn(u16) -> f64) -> Vec<u16> {
    let mut blocks: Vec<u16> = blocks.collect();
    blocks.sort_by(|left, right| score(*right).total_cmp(&score(*left)).then(left.cmp(right)));
    blocks
}

pub(super) fn shuffled<T>(mut items: Vec<T>, lot: Seed) -> Vec<T> {
    lot.generator().shuffle(&mut items);
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASIS: [f64; 6] = [0.9, 0.8, 0.1, 0.3, 0.2, 0.7];

    fn turn(k: u16) -> Turn<'static> {
        Turn { k, blocks: 6, round: Round(2), lot: Seed(4), explores: Seed(4), basis: &BASIS }
    }

    #[track_caller]
    fn check(criterion: &Criterion, k: u16, expected: &[u16]) {
        let order = criterion.order(&turn(k));
        assert_eq!(order[..usize::from(k)], *expected, "{criterion:?}");
        let mut all = order;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5], "{criterion:?}");
    }

    #[test]
    fn each_criterion_takes_what_it_says() {
        check(&Criterion::Highest, 2, &[0, 1]);
        check(&Criterion::Lowest, 2, &[2, 4]);
        // The best of blocks 0 to 2 and the best of blocks 3 to 5.
        check(&Criterion::Cover, 2, &[0, 5]);
        check(&Criterion::First, 2, &[0, 1]);
        check(&Criterion::Last, 2, &[5, 4]);
        check(&Criterion::Even, 2, &[1, 4]);
        check(&Criterion::Even, 3, &[1, 3, 5]);
        // Rounds 0 and 1 took blocks 0 to 3.
        check(&Criterion::Cyclic, 2, &[4, 5]);
        check(&Criterion::Named(vec![4, 0, 3]), 3, &[4, 0, 3]);
    }

    #[test]
    fn every_criterion_takes_everything_when_k_is_all() {
        for criterion in [Criterion::Cover, Criterion::Even, Criterion::Cyclic, Criterion::Random] {
            let mut all = criterion.order(&turn(6));
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5], "{criterion:?}");
        }
    }

    #[test]
    fn a_named_block_that_a_shallow_model_lacks_is_skipped() {
        let shallow = Turn { blocks: 3, ..turn(2) };
        assert_eq!(Criterion::Named(vec![4, 2, 0]).order(&shallow), [2, 0, 1]);
    }

    #[test]
    fn a_lot_reaches_every_block_and_exploring_keeps_the_sure_ones() {
        let mut seen = [0; 6];
        for draw in 0..600 {
            let turn = Turn { explores: Seed(1).with(draw), ..turn(3) };
            let order = explored(Criterion::Highest.order(&turn), 1, &turn);
            assert_eq!(order[..2], [0, 1]);
            seen[usize::from(order[2])] += 1;
        }
        assert_eq!(seen[..2], [0, 0]);
        // 150 expected each.
        assert!(seen[2..].iter().all(|count| (100..200).contains(count)), "{seen:?}");
    }
}
