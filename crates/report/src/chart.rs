//! What a line plot shows.
//!
//! The type is small on purpose: points with an optional band, two axes, words. Whatever cannot be drawn
//! honestly (a number that is none, a negative one on a logarithmic axis) is refused, never skipped: whoever
//! makes a chart decides what a diverged run looks like.

use crate::axis::Scale;

/// A line plot.
///
/// ```
/// # use fedra_report::{Chart, Point, Scale, Series, Stroke};
/// let falling = (0..10).map(|n| Point::new(n as f64, 2f64.powi(-n))).collect();
/// let chart = Chart {
///     title: "Halving".to_owned(),
///     caption: "Each step halves what is left.".to_owned(),
///     x: ("step".to_owned(), Scale::Linear),
///     y: ("what is left".to_owned(), Scale::Log),
///     series: vec![Series { name: "half".to_owned(), points: falling, stroke: Stroke::Solid, colour: 0 }],
/// };
/// assert!(chart.svg().unwrap().starts_with("<svg"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What is shown, in a few words.
    pub title: String,
    /// How to read it, in a sentence or two.
    pub caption: String,
    /// Name and scale of the horizontal axis.
    pub x: (String, Scale),
    /// Name and scale of the vertical axis.
    pub y: (String, Scale),
    /// The lines, drawn in this order.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in drawing order.
    pub points: Vec<Point>,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Which colour of the palette; lines that belong together share one.
    pub colour: usize,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A line.
    Solid,
    /// A line with a mark at each point: few points, measured one by one.
    Marked,
    /// A dashed line: a bound or a prediction.
    Dashed,
    /// A dashed line with hollow marks: the other of two kinds.
    DashedMarked,
    /// No line, a ring around each point: points of other lines that deserve a look.
    Rings,
}

/// A point, and how far the runs behind it spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Horizontal place.
    pub x: f64,
    /// Vertical place: the mean.
    pub y: f64,
    /// Lower and upper edge of the band; both equal to `y` for none.
    pub band: (f64, f64),
}

impl Point {
    /// A point without a band.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, band: (y, y) }
    }

    /// A point with a band.
    pub fn with_band(x: f64, y: f64, low: f64, high: f64) -> Self {
        Self { x, y, band: (low, high) }
    }
}

/// What bars and cells take.
pub(crate) const AT_LEAST_ZERO: &str = "a finite number of at least zero";

/// Why a chart cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChartError {
    /// No series has a point.
    #[error("chart {chart:?}: found no points, expected at least one")]
    Empty {
        /// The title.
        chart: String,
    },
    /// A number that has no place on its axis.
    #[error(
        "chart {chart:?}, series {series:?}, point {place}: found {found}, expected {expected}"
    )]
    Unplottable {
        /// The title.
        chart: String,
        /// The line's name.
        series: String,
        /// Which point, from 0.
        place: usize,
        /// The number.
        found: f64,
        /// What the axis takes.
        expected: &'static str,
    },
}

impl ChartError {
    /// Refuses the first of some numbers that has no place on its axis: each with its series, its place there, whether
    /// it has one, and what the axis takes.
    pub(crate) fn check<'a>(
        chart: &str,
        mut numbers: impl Iterator<Item = (&'a str, usize, f64, bool, &'static str)>,
    ) -> Result<(), Self> {
        let bad = numbers.find(|number| !number.3);
        let Some((series, place, found, _, expected)) = bad else { return Ok(()) };
        let (chart, series) = (chart.to_owned(), series.to_owned());
        Err(Self::Unplottable { chart, series, place, found, expected })
    }
}

impl Chart {
    /// Refuses a chart that cannot be drawn honestly.
    pub(crate) fn check(&self) -> Result<(), ChartError> {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return Err(ChartError::Empty { chart: self.title.clone() });
        }
        let numbers = self.series.iter().flat_map(|series| {
            series.points.iter().enumerate().flat_map(move |(place, point)| {
                let (across, up) = (self.x.1, self.y.1);
                let vertical = [point.y, point.band.0, point.band.1].map(|y| (up, y));
                [(across, point.x)].into_iter().chain(vertical).map(move |(scale, found)| {
                    (&*series.name, place, found, scale.takes(found), scale.expects())
                })
            })
        });
        ChartError::check(&self.title, numbers)
    }
}
