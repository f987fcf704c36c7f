//! Lines that can be drawn, and the charts that most sections are made of.

use fedra_report::{Chart, Point, Scale, Series, Stroke};

/// A line through the points that can be drawn; none where there are no such points.
pub(super) fn line(
    name: impl Into<String>,
    colour: usize,
    points: impl IntoIterator<Item = Point>,
) -> Option<Series> {
    let is_finite = |point: &Point| {
        [point.x, point.y, point.band.0, point.band.1].iter().all(|number| number.is_finite())
    };
    let points: Vec<Point> = points.into_iter().filter(is_finite).collect();
    let name = name.into();
    (!points.is_empty()).then_some(Series { name, points, stroke: Stroke::Marked, colour })
}

/// A dashed line at one height, from the first to the last place of other lines.
pub(super) fn level(
    name: impl Into<String>,
    colour: usize,
    (beside, height): (&[Series], f64),
) -> Option<Series> {
    let places = || beside.iter().flat_map(|series| &series.points).map(|point| point.x);
    let (first, last) = (places().reduce(f64::min)?, places().reduce(f64::max)?);
    let ends = [first].into_iter().chain((last > first).then_some(last));
    let line = line(name, colour, ends.map(|x| Point::new(x, height)))?;
    Some(Series { stroke: Stroke::Dashed, ..line })
}

/// A chart over the rounds; none without a line.
pub(super) fn by_round(
    (title, caption): (&str, &str),
    (y, scale): (impl Into<String>, Scale),
    series: Vec<Series>,
) -> Option<Chart> {
    (!series.is_empty()).then(|| Chart {
        title: title.to_owned(),
        caption: caption.to_owned(),
        x: ("round".to_owned(), Scale::Linear),
        y: (y.into(), scale),
        series,
    })
}

/// The unit in which the largest of some byte counts reads well, and how many bytes it is.
pub(super) fn unit_of(most: f64) -> (&'static str, f64) {
    match most {
        most if most >= 1e9 => ("GB", 1e9),
        most if most >= 1e6 => ("MB", 1e6),
        most if most >= 1e3 => ("kB", 1e3),
        _ => ("bytes", 1.0),
    }
}
