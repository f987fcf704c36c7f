//! Worst pairs of outputs: what one step looks like with and without a unit, at its most telling.
//!
//! Every accountant here reads a mechanism through such a pair. Noise has deviation sigma, a unit
//! moves the sum by 1, and N(m) is a normal distribution around m. The privacy loss
//! `log P(t)/Q(t)` grows with the output t in all three, and its inverse has a closed form:
//!
//! ```text
//! Remove   P = (1-q) N(0) + q N(1)    Q = N(0)
//! Add      P = N(0)                   Q = (1-q) N(0) + q N(-1)
//! Replace  P = (1-q) N(0) + q N(1)    Q = (1-q) N(0) + q N(-1)
//! ```
//! For `Remove` and `Add` see Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via
//! Characteristic Function", 2022; for `Replace`, the unit is exchanged for its opposite.

use std::f64::consts::{LN_2, PI};

use crate::normal;

/// What happens to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It was there and is gone.
    Remove,
    /// It was not there and comes.
    Add,
    /// It is exchanged for another.
    Replace,
}

/// One step's worst pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// What happens to the unit.
    pub change: Change,
    /// The chance that it is sampled, q.
    pub rate: f64,
    /// The deviation of the noise, sigma.
    pub sigma: f64,
}

impl Pair {
    /// The logarithms of P and of Q at `t`, over the density of N(0).
    pub fn log_ratios(&self, t: f64) -> (f64, f64) {
        let up = |t: f64| self.mixed((2.0 * t - 1.0) / (2.0 * self.sigma * self.sigma));
        match self.change {
            Change::Remove => (up(t), 0.0),
            Change::Add => (0.0, up(-t)),
            Change::Replace => (up(t), up(-t)),
        }
    }

    /// The logarithm of the density of N(0) at `t`.
    pub fn log_base(&self, t: f64) -> f64 {
        let z = t / self.sigma;
        -0.5 * z * z - self.sigma.ln() - 0.5 * (2.0 * PI).ln()
    }

    /// The privacy loss of the output `t`.
    pub fn loss(&self, t: f64) -> f64 {
        let (p, q) = self.log_ratios(t);
        p - q
    }

    /// The output with this privacy loss; infinite where no output has it.
    pub fn output(&self, loss: f64) -> f64 {
        let variance = self.sigma * self.sigma;
        match self.change {
            Change::Remove => variance * self.unmixed(loss) + 0.5,
            Change::Add => -variance * self.unmixed(-loss) - 0.5,
            Change::Replace => {
                // (1-q) sinh(loss/2) / (q exp(-1/(2 variance))), by its logarithm: it overflows.
                let half = 0.5 * loss.abs();
                let log_sinh = half + (-(-2.0 * half).exp_m1()).ln() - LN_2;
                let log = ((1.0 - self.rate) / self.rate).ln() + log_sinh + 0.5 / variance;
                let asinh = if log > 20.0 { log + LN_2 } else { log.exp().asinh() };
                (variance * (half + asinh)).copysign(loss)
            }
        }
    }

    /// The chance under P of an output above `t`.
    pub fn tail_above(&self, t: f64) -> f64 {
        let (still, moved) = (normal::tail(t / self.sigma), normal::tail((t - 1.0) / self.sigma));
        match self.change {
            Change::Remove | Change::Replace => (1.0 - self.rate) * still + self.rate * moved,
            Change::Add => still,
        }
    }

    /// Outputs between which P has all its mass, but for less than `tail` on either side.
    pub fn range(&self, tail: f64) -> (f64, f64) {
        let reach = self.sigma * normal::upper_quantile(tail);
        let far = match self.change {
            Change::Remove | Change::Replace => 1.0 + reach,
            Change::Add => reach,
        };
        // A rare unit reaches less far.
        let (mut low, mut high) = (reach.min(far), far);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if self.tail_above(middle) <= tail { high = middle } else { low = middle }
        }
        (-reach, high)
    }

    /// Mean and variance of the privacy loss under P.
    pub fn moments(&self) -> (f64, f64) {
        let (low, high) = self.range(1e-16);
        let panels = (8.0 * (high - low) / self.sigma.min(self.sigma * self.sigma)).min(1e5) as u32;
        let step = (high - low) / f64::from(panels);
        let (mut mass, mut first, mut second) = (0.0, 0.0, 0.0);
        for index in 0..=panels {
            let t = low + step * f64::from(index);
            let (p, q) = self.log_ratios(t);
            let weight = step * (self.log_base(t) + p).exp();
            mass += weight;
            first += weight * (p - q);
            second += weight * (p - q) * (p - q);
        }
        let mean = first / mass;
        (mean, (second / mass - mean * mean).max(0.0))
    }

    /// log((1-q) + q exp(x)).
    fn mixed(&self, x: f64) -> f64 {
        if self.rate >= 1.0 {
            return x;
        }
        if x > 30.0 {
            return x + (self.rate + (1.0 - self.rate) * (-x).exp()).ln();
        }
        (self.rate * x.exp_m1()).ln_1p()
    }

    /// The x at which [`Self::mixed`] has this value.
    fn unmixed(&self, value: f64) -> f64 {
        if self.rate >= 1.0 {
            return value;
        }
        if value > 30.0 {
            return value - self.rate.ln() + (-(1.0 - self.rate) * (-value).exp()).ln_1p();
        }
        let share = value.exp_m1() / self.rate;
        if share <= -1.0 { f64::NEG_INFINITY } else { share.ln_1p() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: [Change; 3] = [Change::Remove, Change::Add, Change::Replace];

    #[test]
    fn an_output_and_its_loss_are_inverses() {
        for change in CHANGES {
            for (rate, sigma) in [(0.01, 1.0), (0.3, 0.5), (1.0, 2.0), (1e-4, 0.05), (0.5, 30.0)] {
                let pair = Pair { change, rate, sigma };
                for t in [-0.4, 0.1, 0.7, 1.5, 3.0] {
                    let found = pair.output(pair.loss(t));
                    let settled = pair.loss(found);
                    let error = (settled - pair.loss(t)).abs();
                    assert!(error < 1e-9 * (1.0 + settled.abs()), "{pair:?} at {t}: {found}");
                }
            }
        }
    }

    #[test]
    fn losses_outside_the_range_of_a_sampled_pair_have_no_output() {
        let pair = Pair { change: Change::Remove, rate: 0.5, sigma: 1.0 };
        assert_eq!(pair.output(-1.0), f64::NEG_INFINITY);
        let pair = Pair { change: Change::Add, ..pair };
        assert_eq!(pair.output(1.0), f64::INFINITY);
    }

    #[test]
    fn the_range_leaves_out_no_more_than_it_says() {
        for change in CHANGES {
            let pair = Pair { change, rate: 0.01, sigma: 0.7 };
            let (_, high) = pair.range(1e-12);
            let left = pair.tail_above(high);
            assert!(left <= 1e-12 && left > 0.99e-12, "{change:?}: {left}");
        }
    }

    #[test]
    fn without_sampling_the_loss_is_normal_with_known_moments() {
        let (mean, variance) = Pair { change: Change::Remove, rate: 1.0, sigma: 2.0 }.moments();
        assert!((mean - 0.125).abs() < 1e-9 && (variance - 0.25).abs() < 1e-9);
    }
}
