//! How the model learned: scores and losses by round, and what a score cost in bytes.

use fedra_engine::{EvaluationSet, RoundReport, SetScores};
use fedra_report::{Chart, Content, Point, Scale, Series, Stroke};

use crate::report::facts::spoken;
use crate::report::record::{RunRecord, counted, set_in_words};
use crate::text::headline::{headline, headline_of, set_name};

const SETS: [EvaluationSet; 3] =
    [EvaluationSet::CentralTest, EvaluationSet::ClientTest, EvaluationSet::ClientValidation];

/// The curves.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let charts = [scores(record), losses(record), against_bytes(record)];
    charts.into_iter().flatten().map(Content::Lines).collect()
}

/// The places of points that can be drawn.
pub(super) fn finite(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let is_finite = |point: &Point| {
        [point.x, point.y, point.band.0, point.band.1].iter().all(|number| number.is_finite())
    };
    points.filter(is_finite).collect()
}

fn headline_point(round: f64, set: &SetScores) -> Option<Point> {
    let (name, value) = headline_of(&set.mean)?;
    let band = set.spread.get(name).map_or((value, value), |spread| (spread.least, spread.most));
    // Means are by examples and the spread is by clients, so a mean may lie outside by rounding.
    Some(Point::with_band(round, value, band.0.min(value), band.1.max(value)))
}

fn scores(record: &RunRecord) -> Option<Chart> {
    let (name, _, _) = record.last_score()?;
    let mut series = Vec::new();
    for (colour, on) in SETS.into_iter().enumerate() {
        let points = record.scored(on).filter_map(|(round, set)| headline_point(round, set));
        let points = finite(points);
        if points.is_empty() {
            continue;
        }
        let name = set_in_words(on);
        let spread = points.iter().any(|point| point.band.0 < point.band.1);
        let name =
            if spread { format!("{name} (mean; band: all clients)") } else { name.to_owned() };
        series.push(Series { name, points, stroke: Stroke::Marked, colour });
    }
    if series.is_empty() {
        return None;
    }
    series.extend(best(record));
    series.extend(floor(record, &series, name));
    Some(Chart {
        title: "Score by round".to_owned(),
        caption: "More is better.".to_owned(),
        x: ("round".to_owned(), Scale::Linear),
        y: (spoken(name), Scale::Linear),
        series,
    })
}

/// A ring around the round that is kept as the best.
fn best(record: &RunRecord) -> Option<Series> {
    let best = record.summary.as_ref()?.best.as_ref()?;
    let points = finite([Point::new(f64::from(best.round) + 1.0, best.score)].into_iter());
    let name = "best on validation".to_owned();
    (!points.is_empty()).then_some(Series { name, points, stroke: Stroke::Rings, colour: 2 })
}

/// What an answer without a model scores.
fn floor(record: &RunRecord, series: &[Series], name: &str) -> Option<Series> {
    let baseline = record.summary.as_ref()?.baseline.as_ref()?;
    let (_, _, on) = record.last_score()?;
    let value = baseline.score(set_name(on), name)?;
    let rounds = || series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let (first, last) = (rounds().reduce(f64::min)?, rounds().reduce(f64::max)?);
    let mut points = vec![Point::new(first, value)];
    points.extend((last > first).then(|| Point::new(last, value)));
    let points = finite(points.into_iter());
    let name = format!("without a model, {}", set_in_words(on));
    (!points.is_empty()).then_some(Series { name, points, stroke: Stroke::Dashed, colour: 6 })
}

fn losses(record: &RunRecord) -> Option<Chart> {
    let mut series = Vec::new();
    let trained =
        record.rounds.iter().filter_map(|report| Some(Point::new(counted(report), report.loss?)));
    let points = finite(trained);
    if !points.is_empty() {
        let name = "training".to_owned();
        series.push(Series { name, points, stroke: Stroke::Marked, colour: 3 });
    }
    for (colour, on) in SETS.into_iter().enumerate() {
        let points = record.scored(on).map(|(round, set)| Point::new(round, set.loss));
        let points = finite(points);
        if !points.is_empty() {
            let name = set_in_words(on).to_owned();
            series.push(Series { name, points, stroke: Stroke::Marked, colour });
        }
    }
    (!series.is_empty()).then(|| Chart {
        title: "Loss by round".to_owned(),
        caption: "Less is better. Training loss is the mean while clients train; the others are \
                  of the averaged model."
            .to_owned(),
        x: ("round".to_owned(), Scale::Linear),
        y: ("loss".to_owned(), Scale::Linear),
        series,
    })
}

/// Bytes so far, up and down, after each scored round, with its headline.
fn spent(rounds: &[RoundReport]) -> Vec<(f64, f64, f64)> {
    let (mut bytes, mut points) = (0.0, Vec::new());
    for report in rounds {
        bytes += (report.bytes.up + report.bytes.down).0 as f64;
        if let Some((_, value, _)) = headline(&report.scores) {
            points.push((counted(report), bytes, value));
        }
    }
    points
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

fn against_bytes(record: &RunRecord) -> Option<Chart> {
    let (name, _, on) = record.last_score()?;
    let spent = spent(&record.rounds);
    let most = spent.last().map(|(_, bytes, _)| *bytes).filter(|bytes| *bytes > 0.0)?;
    let (unit, size) = unit_of(most);
    let points = spent.iter().map(|(_, bytes, score)| Point::new(bytes / size, *score));
    let points = finite(points);
    let name_of_set = set_in_words(on).to_owned();
    (!points.is_empty()).then(|| Chart {
        title: "Score against bytes".to_owned(),
        caption: "What had travelled, up and down, when the model reached a score.".to_owned(),
        x: (format!("{unit} so far"), Scale::Linear),
        y: (spoken(name), Scale::Linear),
        series: vec![Series { name: name_of_set, points, stroke: Stroke::Marked, colour: 0 }],
    })
}
