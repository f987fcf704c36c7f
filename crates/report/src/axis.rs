//! Numbers to places along an axis, and the ticks that a reader can name.

/// How an axis spreads its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// Equal ratios are equal distances.
    Log,
}

impl Scale {
    /// Whether a number has a place on such an axis.
    pub fn takes(self, number: f64) -> bool {
        match self {
            Self::Linear => number.is_finite(),
            Self::Log => number.is_finite() && number > 0.0,
        }
    }

    /// What such an axis takes, in words.
    pub(crate) fn expects(self) -> &'static str {
        match self {
            Self::Linear => "a finite number",
            Self::Log => "a finite number above zero on a logarithmic axis",
        }
    }

    fn warp(self, number: f64) -> f64 {
        match self {
            Self::Linear => number,
            Self::Log => number.log10(),
        }
    }
}

/// An axis with its range chosen: every number shown lies strictly inside.
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Numbers worth a line and a label.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// The axis that holds all numbers, with a small margin on both sides.
    pub fn holding(scale: Scale, numbers: impl Iterator<Item = f64>) -> Self {
        const AIR: f64 = 0.04;
        // Beyond this, differences of numbers are no numbers.
        const MOST: f64 = 1e300;
        let (low, high) = numbers
            .map(|number| number.clamp(-MOST, MOST))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
                (low.min(number), high.max(number))
            });
        let (mut low, mut high) = (scale.warp(low), scale.warp(high));
        if high - low < 1e-12 * high.abs().max(1.0) {
            let room = if scale == Scale::Log || low == 0.0 { 0.5 } else { 0.1 * low.abs() };
            (low, high) = (low - room, high + room);
        }
        let air = AIR * (high - low);
        let (low, high) = (low - air, high + air);
        let ticks = match scale {
            Scale::Linear => round_numbers(low, high),
            Scale::Log => decades(low, high),
        };
        Self { scale, low, high, ticks }
    }

    /// Where a number lies, from 0 to 1.
    pub fn place(&self, number: f64) -> f64 {
        ((self.scale.warp(number) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten: five to seven of them.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 7.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Powers of ten, thinned to at most eight; with 2 and 5 (or round numbers) where few would be left.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let within = |ticks: Vec<f64>| -> Vec<f64> {
        ticks.into_iter().filter(|tick| (low..=high).contains(&tick.log10())).collect()
    };
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    let factors: &[f64] = match last - first {
        ..=3 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let thin = ((last - first) / 8 + 1) as usize;
    let ticks = within(
        (first..=last)
            .step_by(thin)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .collect(),
    );
    if ticks.len() >= 3 { ticks } else { within(round_numbers(10f64.powf(low), 10f64.powf(high))) }
}

/// A tick's label: as short as its step allows.
pub(crate) fn label(tick: f64) -> String {
    let size = tick.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        let power = size.log10().floor() as i32;
        let lead = tick / 10f64.powi(power);
        if lead.is_finite() {
            return format!("{}e{power}", trimmed(lead, 2));
        }
        return format!("{tick:.2e}");
    }
    trimmed(tick, 6)
}

fn trimmed(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scale: Scale, numbers: &[f64], expected: &[&str]) {
        let axis = Axis::holding(scale, numbers.iter().copied());
        let labels: Vec<String> = axis.ticks.iter().map(|tick| label(*tick)).collect();
        assert_eq!(labels, expected, "{numbers:?}");
        for number in numbers {
            assert!((0.01..=0.99).contains(&axis.place(*number)), "{number} has no air");
        }
    }

    #[test]
    fn the_largest_and_the_smallest_numbers_have_ticks_with_names() {
        for numbers in [[-f64::MAX, f64::MAX], [5e-324, 1e-322], [0.0, f64::MAX]] {
            for scale in [Scale::Linear, Scale::Log] {
                let numbers = numbers.iter().copied().filter(|number| scale.takes(*number));
                for tick in Axis::holding(scale, numbers).ticks {
                    assert!(!label(tick).contains("NaN"), "{tick}");
                }
            }
        }
    }

    #[test]
    fn ticks_are_numbers_a_person_would_choose() {
        check(Scale::Linear, &[0.0, 200.0], &["0", "50", "100", "150", "200"]);
        check(Scale::Linear, &[-0.3, 0.31], &["-0.3", "-0.2", "-0.1", "0", "0.1", "0.2", "0.3"]);
        check(
            Scale::Linear,
            &[3e-7, 9e-7],
            &["3e-7", "4e-7", "5e-7", "6e-7", "7e-7", "8e-7", "9e-7"],
        );
        check(Scale::Log, &[1e-4, 2.0], &["1e-4", "0.001", "0.01", "0.1", "1"]);
        check(Scale::Log, &[1.0, 20.0], &["1", "2", "5", "10", "20"]);
        check(Scale::Log, &[0.52, 0.88], &["0.6", "0.7", "0.8"]);
    }

    #[test]
    fn one_number_alone_still_has_an_axis_around_it() {
        for (scale, number) in [(Scale::Linear, 0.0), (Scale::Linear, -7.0), (Scale::Log, 3.0)] {
            let axis = Axis::holding(scale, [number].into_iter());
            assert!((axis.place(number) - 0.5).abs() < 1e-12);
            assert!(!axis.ticks.is_empty());
        }
    }
}
