//! Stretches of rounds for which an experiment says the same: from one turn of a recipe to the next.
//!
//! A recipe turns where a second stage begins, a cut moves, or a client leaves or comes back. Between two
//! turns only draws differ, so rounds that draw nothing are counted and not gone through.

use std::collections::BTreeSet;
use std::ops::Range;

use fedra_engine::{Begins, Recipe};

/// The stretches of so many rounds, in order.
pub fn stretches(recipe: &Recipe, rounds: u32) -> Vec<Range<u32>> {
    let mut turns = BTreeSet::from([0, rounds]);
    // Others are turned into a round before anything runs, or known only on the way.
    if let Some(Begins::At(round)) = recipe.stage.as_ref().map(|stage| stage.begins) {
        turns.insert(round.0);
    }
    let moves = recipe.split.iter().flat_map(|split| &split.moves);
    // Both are counted from 1.
    turns.extend(moves.map(|step| step.round.saturating_sub(1)));
    for away in recipe.conditions.away.values().flatten() {
        turns.insert(away.from.saturating_sub(1));
        turns.extend(away.to);
    }
    let turns: Vec<u32> = turns.range(..=rounds).copied().collect();
    turns.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// How many rounds of a range are scored, if every so many are, and the last of all.
pub fn scored(range: Range<u32>, every: u32, rounds: u32) -> u32 {
    let (every, last) = (every.max(1), u32::from(range.contains(&rounds.saturating_sub(1))));
    // The last of all counts once.
    let count = |end: u32| end / every;
    let due = count(range.end) - count(range.start.min(range.end));
    let counted = u32::from(rounds.is_multiple_of(every)) * last;
    due + last - counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scored_rounds_of_a_range_are_those_that_are_due_and_the_last() {
        for rounds in 1..13 {
            for every in 0..5 {
                let is_due = |number: &u32| {
                    number + 1 == rounds || (number + 1).is_multiple_of(every.max(1))
                };
                for (start, end) in (0..=rounds).flat_map(|end| (0..=end).map(move |s| (s, end))) {
                    let expected = (start..end).filter(is_due).count() as u32;
                    assert_eq!(scored(start..end, every, rounds), expected, "{start}..{end}");
                }
            }
        }
    }
}
