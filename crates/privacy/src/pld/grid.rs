//! One step's privacy loss on a grid, rounded so that epsilon can only grow.
//!
//! Each bin's mass is split between its two ends so that both its P-mass and its Q-mass stay what
//! they are. The curve delta(epsilon) of the result then connects the points of the true curve on the
//! grid by chords in exp(epsilon); the true curve is convex, so chords lie above it. The error falls
//! with the square of the bin's width, not with the width, as it does when losses are rounded up.
//! Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the Dots", 2022.

use crate::normal;
use crate::pair::Pair;
use crate::phase::Weighted;

/// Masses at multiples of a width.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The distance of two losses.
    pub width: f64,
    /// The first loss, in widths.
    pub first: i64,
    /// The mass of each loss from the first on.
    pub masses: Vec<f64>,
    /// What may be worse than any number.
    pub infinite: f64,
}

/// How finely a step is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    /// The distance of two losses.
    pub width: f64,
    /// The mass at either end that need not be told apart.
    pub tail: f64,
}

/// Bins beyond which a grid is not worth its memory.
pub const MOST_BINS: f64 = 4e6;

/// Nodes and weights of Gauss and Legendre's rules on 0 to 1.
const FOUR: &[(f64, f64)] = &[
    (0.069_431_844_202_973_71, 0.173_927_422_568_726_93),
    (0.330_009_478_207_571_87, 0.326_072_577_431_273_07),
    (0.669_990_521_792_428_1, 0.326_072_577_431_273_07),
    (0.930_568_155_797_026_3, 0.173_927_422_568_726_93),
];
const TWO: &[(f64, f64)] = &[(0.211_324_865_405_187_1, 0.5), (0.788_675_134_594_812_9, 0.5)];

impl Grid {
    /// The grid of a step, whose pair is chosen by weights; none if it would have too many bins.
    pub fn of(pairs: &[Weighted], precision: Precision) -> Option<Self> {
        let parts = pairs.iter().filter(|part| part.weight > 0.0);
        let grids = parts.map(|part| Self::of_pair(&part.pair, part.weight, precision));
        let grids: Vec<Self> = grids.collect::<Option<_>>()?;
        grids.into_iter().reduce(|sum, one| sum.plus(&one))
    }

    fn of_pair(pair: &Pair, weight: f64, Precision { width, tail }: Precision) -> Option<Self> {
        let (low, high) = pair.range((tail / weight).min(0.1));
        let bin = |t: f64| (pair.loss(t) / width).floor();
        let (first, last) = (bin(low), bin(high));
        if !(last - first < MOST_BINS && first.abs() < 1e15 && last.abs() < 1e15) {
            return None;
        }
        let first = first as i64;
        let bins = (last as i64 - first + 1) as usize;
        let mut masses = vec![0.0; bins + 1];
        // Density and ratio vary over sigma and over sigma squared; panels are much narrower.
        let widest = (0.125 * pair.sigma).min(0.25 * pair.sigma * pair.sigma);
        let scale = (-width).exp_m1();
        let mut left = low;
        for index in 0..bins {
            let bottom = (first as f64 + index as f64) * width;
            let right = pair.output(bottom + width).clamp(left, high);
            let right = if index + 1 == bins { high } else { right };
            // Farther out the density falls faster within a panel.
            let out = left.abs().max(right.abs()) / (8.0 * pair.sigma);
            let widest = widest / out.max(1.0);
            let panels = ((right - left) / widest).ceil().max(1.0);
            let step = (right - left) / panels;
            // Two points leave an error of 1e-7, and less within eight deviations.
            let nodes = if step < 0.125 * widest { TWO } else { FOUR };
            let (mut lower, mut upper) = (0.0, 0.0);
            for panel in 0..panels as u32 {
                for (node, share) in nodes {
                    let t = left + step * (f64::from(panel) + node);
                    let (p, q) = pair.log_ratios(t);
                    let mass = share * (pair.log_base(t) + p).exp();
                    let above = (p - q - bottom).clamp(0.0, width);
                    // (exp(width - above) - 1) / (exp(width) - 1), for widths whose exponential is no number.
                    let down = (-above).exp() * (above - width).exp_m1() / scale;
                    lower += mass * down;
                    upper += mass * (1.0 - down);
                }
            }
            masses[index] += weight * step * lower;
            masses[index + 1] += weight * step * upper;
            left = right;
        }
        // What lies below the range is rounded up to its first bin's upper end.
        // N(0) has more of it than any mixture with N(1).
        masses[1] += weight * normal::tail(-low / pair.sigma);
        Some(Self { width, first, masses, infinite: weight * pair.tail_above(high) })
    }

    /// Both side by side.
    fn plus(self, other: &Self) -> Self {
        let (low, high) = if self.first <= other.first { (&self, other) } else { (other, &self) };
        let gap = (high.first - low.first) as usize;
        let mut masses = low.masses.clone();
        masses.resize(masses.len().max(gap + high.masses.len()), 0.0);
        for (sum, mass) in masses[gap..].iter_mut().zip(&high.masses) {
            *sum += mass;
        }
        let infinite = self.infinite + other.infinite;
        Self { width: self.width, first: low.first, masses, infinite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Change;

    fn delta(grid: &Grid, epsilon: f64) -> f64 {
        let losses = (grid.first..).map(|index| index as f64 * grid.width);
        let over = losses.zip(&grid.masses).filter(|(loss, _)| *loss > epsilon);
        grid.infinite + over.map(|(loss, mass)| -mass * (epsilon - loss).exp_m1()).sum::<f64>()
    }

    fn grid(pair: Pair, width: f64) -> Grid {
        Grid::of(&[Weighted { pair, weight: 1.0 }], Precision { width, tail: 1e-14 }).unwrap()
    }

    #[test]
    fn on_grid_points_delta_is_exact_and_between_them_never_below() {
        for (rate, sigma) in [(0.01, 0.8), (0.3, 2.0), (1.0, 1.0)] {
            let pair = Pair { change: Change::Remove, rate, sigma };
            let grid = grid(pair, 0.05);
            for step in -2..80 {
                let epsilon = 0.0125 * f64::from(step);
                // P above a threshold minus exp(epsilon) times Q above it, in closed form.
                let t = pair.output(epsilon);
                let q = if t.is_finite() { normal::tail(t / sigma) } else { 1.0 };
                let p = if t.is_finite() { pair.tail_above(t) } else { 1.0 };
                let truth = p - epsilon.exp() * q;
                let found = delta(&grid, epsilon);
                assert!(found > truth - 1e-13, "{pair:?} {epsilon}: {found} {truth}");
                if step % 4 == 0 {
                    assert!((found - truth).abs() < 1e-12, "{pair:?} {epsilon}: {found} {truth}");
                }
            }
        }
    }

    #[test]
    fn all_mass_is_there() {
        for change in [Change::Remove, Change::Add, Change::Replace] {
            let grid = grid(Pair { change, rate: 0.02, sigma: 0.6 }, 0.01);
            let mass: f64 = grid.masses.iter().sum::<f64>() + grid.infinite;
            assert!((mass - 1.0).abs() < 1e-11, "{change:?}: {mass}");
            let lower: f64 = (grid.first..)
                .zip(&grid.masses)
                .map(|(index, mass)| mass * (-(index as f64) * grid.width).exp())
                .sum();
            assert!((lower - 1.0).abs() < 1e-9, "{change:?}: {lower}");
        }
    }

    #[test]
    fn a_grid_without_end_is_not_made() {
        let pair = Pair { change: Change::Remove, rate: 1.0, sigma: 1e-3 };
        let precision = Precision { width: 1e-9, tail: 1e-14 };
        assert_eq!(Grid::of(&[Weighted { pair, weight: 1.0 }], precision), None);
    }
}
