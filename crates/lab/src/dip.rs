//! Whether a warm-up inside beats both ends, judged over worlds without choosing on what is judged.
//!
//! The lowest of many noisy points lies below the ends by luck alone. So the warm-up for each world is the one that
//! is best on average in the *other* worlds, and its gain is measured in the world that had no say:
//!
//! ```text
//! W_i       argmin over W of the mean of L_j(W) over worlds j other than i
//! gain_i    1 - L_i(W_i) / L_i(end)              end: W = 0, or never frozen; 0 where W_i is that end
//! seen      mean gain - t(0.975, n - 1) * deviation / sqrt(n)  above zero, against both ends
//! ```

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use crate::study::Sweep;

/// What the warm-up that others chose gains in each world.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dip {
    /// The chosen warm-ups, by world.
    pub chosen: Vec<u32>,
    /// Against freezing at once.
    pub against_none: Gain,
    /// Against never freezing.
    pub against_never: Gain,
}

/// A mean relative gain over worlds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % interval.
    pub margin: f64,
}

/// Student's t at 97.5 % for 1 to 10 degrees of freedom (Abramowitz and Stegun, table 26.10).
const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// How many worlds can be judged: those that [`T`] has a number for.
pub(crate) const WORLDS: RangeInclusive<usize> = 2..=T.len() + 1;

impl Dip {
    /// Judges the sweeps of 2 to 11 worlds over the same warm-ups; `None` for other numbers, and where a world
    /// diverged at a place that matters.
    pub fn of(worlds: &[&Sweep]) -> Option<Self> {
        let mut chosen = Vec::new();
        let (mut none, mut never) = (Vec::new(), Vec::new());
        for (place, own) in worlds.iter().enumerate() {
            let others = || worlds.iter().enumerate().filter(|(other, _)| *other != place);
            let mean = |at: usize| {
                let losses: Option<Vec<f64>> =
                    others().map(|(_, sweep)| sweep.get(at)?.1).collect();
                losses.map(|losses| losses.iter().sum::<f64>() / losses.len() as f64)
            };
            let known = (0..own.len()).filter_map(|at| Some((at, mean(at)?)));
            let (best, _) = known.min_by(|left, right| left.1.total_cmp(&right.1))?;
            let loss = own[best].1?;
            chosen.push(own[best].0);
            none.push(1.0 - loss / own.first()?.1?);
            never.push(1.0 - loss / own.last()?.1?);
        }
        Some(Self { chosen, against_none: Gain::of(&none)?, against_never: Gain::of(&never)? })
    }

    /// Whether both ends were beaten.
    pub fn is_seen(&self) -> bool {
        self.against_none.is_above_zero() && self.against_never.is_above_zero()
    }
}

impl Gain {
    fn of(gains: &[f64]) -> Option<Self> {
        let count = gains.len();
        let t = T.get(count.checked_sub(2)?)?;
        let mean = gains.iter().sum::<f64>() / count as f64;
        let squares: f64 = gains.iter().map(|gain| (gain - mean) * (gain - mean)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        Some(Self { mean, margin: t * deviation / (count as f64).sqrt() })
    }

    fn is_above_zero(self) -> bool {
        self.mean - self.margin > 0.0
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:+.2} ± {:.2} %", 100.0 * self.mean, 100.0 * self.margin)
    }
}

impl fmt::Display for Dip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen: Vec<String> = self.chosen.iter().map(u32::to_string).collect();
        let (none, never) = (self.against_none, self.against_never);
        write!(formatter, "W {} gains {none} on W 0, {never} on never", chosen.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dip(worlds: &[[f64; 3]]) -> Option<Dip> {
        let sweep = |losses: &[f64; 3]| -> Sweep {
            [0, 5, 10].into_iter().zip(losses.iter().map(|loss| Some(*loss))).collect()
        };
        let sweeps: Vec<Sweep> = worlds.iter().map(sweep).collect();
        Dip::of(&sweeps.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_valley_in_every_world_is_seen_and_its_interval_is_students() {
        let found = dip(&[[2.0, 1.0, 1.25], [2.0, 1.0, 1.25], [2.0, 0.9, 1.5]]).unwrap();
        assert_eq!(found.chosen, [5, 5, 5]);
        // Gains of 0.2, 0.2 and 0.4 on never: mean 4/15, deviation 0.11547, t(2) = 4.303.
        assert!((found.against_never.mean - 0.8 / 3.0).abs() < 1e-12);
        assert!((found.against_never.margin - 4.303 / 15.0).abs() < 1e-4);
        assert!(!found.is_seen(), "three worlds that differ so much prove little");
        assert!(dip(&[[2.0, 1.0, 1.25], [2.0, 1.0, 1.26], [2.0, 1.0, 1.24]]).unwrap().is_seen());
    }

    #[test]
    fn a_world_has_no_say_in_its_own_warm_up() {
        // By its own numbers each world has a valley; by the others' it gets the wrong one.
        let found = dip(&[[1.0, 0.5, 2.0], [0.5, 1.0, 0.2]]).unwrap();
        assert_eq!(found.chosen, [10, 5]);
        assert!(found.against_none.mean < 0.0 && !found.is_seen());
    }

    #[test]
    fn where_never_is_best_nothing_is_gained_on_it() {
        let found = dip(&[[3.0, 2.0, 1.0], [3.1, 2.0, 1.0], [3.0, 2.1, 1.0]]).unwrap();
        assert_eq!((found.against_never.mean, found.is_seen()), (0.0, false));
        assert_eq!(dip(&[[3.0, 2.0, 1.0]]), None, "one world has no interval");
    }
}
