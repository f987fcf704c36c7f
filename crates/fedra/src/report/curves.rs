//! How the model learned: scores and losses by round, and what a score cost in bytes.

use fedra_engine::{EvaluationSet, SetScores};
use fedra_report::{Chart, Content, Point, Scale, Series, Stroke};

use crate::report::charts::{by_round, level, line, unit_of};
use crate::report::facts::spoken;
use crate::report::record::{RunRecord, counted, set_in_words};
use crate::text::headline::{headline, headline_of, set_name};

const SETS: [EvaluationSet; 3] =
    [EvaluationSet::CentralTest, EvaluationSet::ClientTest, EvaluationSet::ClientValidation];

/// The curves.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let charts = [scores(record), losses(record), written(record), against_bytes(record)];
    charts.into_iter().flatten().map(Content::Lines).collect()
}

fn headline_point(round: f64, set: &SetScores) -> Option<Point> {
    let (name, value) = headline_of(&set.mean)?;
    let band = set.spread.get(name).map_or((value, value), |spread| (spread.least, spread.most));
    // Means are by examples and the spread is by clients, so a mean may lie outside by rounding.
    Some(Point::with_band(round, value, band.0.min(value), band.1.max(value)))
}

fn scores(record: &RunRecord) -> Option<Chart> {
    let (name, _, on) = record.last_score()?;
    let of_set = |(colour, on): (usize, EvaluationSet)| {
        let points = record.scored(on).filter_map(|(round, set)| headline_point(round, set));
        let mut series = line(set_in_words(on), colour, points)?;
        if series.points.iter().any(|point| point.band.0 < point.band.1) {
            series.name.push_str(" (mean; band: all clients)");
        }
        Some(series)
    };
    let mut series: Vec<Series> = SETS.into_iter().enumerate().filter_map(of_set).collect();
    let summary = record.summary.as_ref();
    let baseline = summary.and_then(|summary| summary.baseline.as_ref()?.score(set_name(on), name));
    let baseline = baseline.and_then(|value| {
        level(format!("majority baseline, {}", set_in_words(on)), 6, (&series, value))
    });
    // A ring around the round that is kept as the best.
    let best = summary.and_then(|summary| summary.best.as_ref()).and_then(|best| {
        let point = Point::new(f64::from(best.round) + 1.0, best.score);
        Some(Series { stroke: Stroke::Rings, ..line("best on validation", 2, [point])? })
    });
    if series.is_empty() {
        return None;
    }
    series.extend(best.into_iter().chain(baseline));
    by_round(("Score by round", "Higher is better."), (spoken(name), Scale::Linear), series)
}

fn losses(record: &RunRecord) -> Option<Chart> {
    let trained =
        record.rounds.iter().filter_map(|report| Some(Point::new(counted(report), report.loss?)));
    let of_set = |(colour, on): (usize, EvaluationSet)| {
        let points = record.scored(on).map(|(round, set)| Point::new(round, set.loss));
        line(set_in_words(on), colour, points)
    };
    let sets = SETS.into_iter().enumerate().filter_map(of_set);
    let caption = "Lower is better. Training loss is the mean while clients train; the others are of the \
                   averaged model.";
    let series = line("training", 3, trained).into_iter().chain(sets).collect();
    by_round(("Loss by round", caption), ("loss", Scale::Linear), series)
}

/// ROUGE of the answers that a model writes beside what it is judged by.
fn written(record: &RunRecord) -> Option<Chart> {
    const ROUGE: &str = "rouge_l";
    record.last_score().filter(|(headline, ..)| *headline != ROUGE)?;
    let of_set = |(colour, on): (usize, EvaluationSet)| {
        let point =
            |(round, set): (f64, &SetScores)| Some(Point::new(round, *set.mean.get(ROUGE)?));
        line(set_in_words(on), colour, record.scored(on).filter_map(point))
    };
    let series = SETS.into_iter().enumerate().filter_map(of_set).collect();
    let caption = "Of the answers that the model writes. Higher is better.";
    by_round(("ROUGE by round", caption), (spoken(ROUGE), Scale::Linear), series)
}

/// What had travelled, up and down, after each scored round, with its headline.
fn against_bytes(record: &RunRecord) -> Option<Chart> {
    let (name, _, on) = record.last_score()?;
    let (mut bytes, mut spent) = (0.0, Vec::new());
    for report in &record.rounds {
        bytes += (report.bytes.up + report.bytes.down).0 as f64;
        spent.extend(headline(&report.scores).map(|(_, value, _)| (bytes, value)));
    }
    let most = spent.last().map(|(bytes, _)| *bytes).filter(|bytes| *bytes > 0.0)?;
    let (unit, size) = unit_of(most);
    let points = spent.iter().map(|(bytes, score)| Point::new(bytes / size, *score));
    Some(Chart {
        title: "Score against bytes".to_owned(),
        caption: "Bytes sent, up and down, when the model reached a score.".to_owned(),
        x: (format!("{unit} so far"), Scale::Linear),
        y: (spoken(name), Scale::Linear),
        series: vec![line(set_in_words(on), 0, points)?],
    })
}
