//! Several runs side by side: their curves, and links to their pages.

use std::path::{Path, PathBuf};

use fedra_report::{Chart, Content, Document, Freshness, Point, Scale, Section, Series};

use crate::error::in_words;
use crate::report::charts::{by_round, line, unit_of};
use crate::report::facts::spoken;
use crate::report::record::{Detail, RunRecord};
use crate::run_files::REPORT;

/// Variants whose lines can be told apart.
const LINES: usize = 8;

/// Beyond this ratio, bytes are drawn by their logarithm.
const FAR_APART: f64 = 20.0;

/// A way of doing it, and its runs.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its runs, each with a name and its folder.
    pub runs: Vec<(String, PathBuf)>,
}

/// A page of runs with names, without a comparison's statistics. Contents of the caller's own come first; links
/// are relative to the folder that the page goes to.
pub fn side_by_side(
    (title, lead): (&str, &str),
    own: Vec<Content>,
    variants: &[Variant],
    folder: &Path,
) -> Document {
    Document {
        title: title.to_owned(),
        lead: vec![lead.to_owned()],
        sections: vec![
            Section::new("Result", own),
            Section::new("Curves", curves(variants)),
            Section::new("Runs", links(variants, folder)),
        ],
        freshness: Freshness::Fixed,
    }
}

/// One variant's scored rounds, in the mean over its runs.
struct Course {
    name: String,
    /// Round, bytes so far, and the mean, least and highest score.
    points: Vec<(f64, f64, [f64; 3])>,
    /// Whether some of its runs went on longer than others.
    uneven: bool,
}

impl Course {
    /// `None` where nothing was scored so. Rounds that not all runs reached are left out: the mean of those
    /// that go on is that of others.
    fn of(name: &str, records: &[RunRecord], (score, on): &(String, String)) -> Option<Self> {
        let scored = |record: &RunRecord| -> Vec<(f64, f64, f64)> {
            let points = record.curve(score, on).into_iter();
            points.filter_map(|it| Some((f64::from(it.rounds), it.bytes, it.score?))).collect()
        };
        let runs: Vec<Vec<(f64, f64, f64)>> = records.iter().map(scored).collect();
        let length = runs.iter().map(Vec::len).min().unwrap_or(0);
        let at = |place: usize| {
            let values: Vec<f64> = runs.iter().map(|run| run[place].2).collect();
            let count = runs.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let bytes = runs.iter().map(|run| run[place].1).sum::<f64>() / count;
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (runs[0][place].0, bytes, [mean, least, most])
        };
        let points: Vec<_> = (0..length)
            .map(at)
            .filter(|(_, bytes, scores)| bytes.is_finite() && scores.iter().all(|s| s.is_finite()))
            .collect();
        let uneven = runs.iter().any(|run| run.len() != length);
        (!points.is_empty()).then(|| Self { name: name.to_owned(), points, uneven })
    }

    /// Bytes and mean score at its end.
    fn end(&self) -> (f64, f64) {
        self.points
            .last()
            .map_or((0.0, f64::NEG_INFINITY), |(_, bytes, [mean, ..])| (*bytes, *mean))
    }

    /// Its line by round, or by bytes in units of so many.
    fn line(&self, colour: usize, unit: Option<f64>) -> Option<Series> {
        let points = self.points.iter().map(|(round, spent, [mean, least, most])| {
            Point::with_band(unit.map_or(*round, |size| spent / size), *mean, *least, *most)
        });
        line(&self.name, colour, points.filter(|point| point.x > 0.0))
    }
}

/// Curves of the variants, and which runs are in none.
pub(crate) fn curves(variants: &[Variant]) -> Vec<Content> {
    let (mut courses, mut chosen, mut left_out) = (Vec::new(), None, Vec::new());
    for variant in variants {
        let mut records = Vec::new();
        for (name, folder) in &variant.runs {
            match RunRecord::read(folder, Detail::Means) {
                Ok(record) => records.push(record),
                Err(error) => left_out.push(Content::Words(format!(
                    "Warning: {} is in no curve: {}",
                    run_name(variant, name),
                    in_words(&error)
                ))),
            }
        }
        chosen = chosen.or_else(|| records.iter().find_map(RunRecord::judged));
        if let Some(judged) = &chosen {
            courses.extend(Course::of(&variant.name, &records, judged));
        }
    }
    let Some((name, on)) = chosen else { return left_out };
    let all = courses.len();
    let mut few = String::new();
    if all > LINES {
        courses.sort_by(|a, b| b.end().1.total_cmp(&a.end().1));
        courses.truncate(LINES);
        few = format!(" Shown: the {LINES} of {all} variants that end highest.");
    }
    if courses.iter().any(|course| course.uneven) {
        few.push_str(" A curve ends where the first of its runs ended.");
    }
    let ends = || courses.iter().map(|course| course.end().0);
    let most = ends().fold(0.0, f64::max);
    let (unit, size) = unit_of(most);
    let lines = |unit: Option<f64>| -> Vec<Series> {
        let lines = courses.iter().enumerate();
        lines.filter_map(|(colour, course)| course.line(colour, unit)).collect()
    };
    let y = (format!("{}, {}", spoken(&name), on.replace('_', " ")), Scale::Linear);
    let caption = format!("Mean over runs; bands go from the lowest to the highest.{few}");
    let rounds = by_round(("Score by round", &caption), y.clone(), lines(None));
    // Weights of one and states of another may be a hundred times apart.
    let least = ends().filter(|spent| *spent > 0.0).fold(f64::INFINITY, f64::min);
    let across = if most > FAR_APART * least { Scale::Log } else { Scale::Linear };
    let bytes = Chart {
        title: "Score against bytes".to_owned(),
        caption: format!(
            "Bytes sent, up and down, when a score was reached. Variants that sent nothing are left out.{few}"
        ),
        x: (format!("{unit} so far"), across),
        y,
        series: lines(Some(size)),
    };
    let bytes = (!bytes.series.is_empty()).then_some(bytes);
    rounds.into_iter().chain(bytes).map(Content::Lines).chain(left_out).collect()
}

fn run_name(variant: &Variant, run: &str) -> String {
    if run.is_empty() { variant.name.clone() } else { format!("{}, {run}", variant.name) }
}

/// Links to the pages of runs, relative to a folder.
pub(crate) fn links(variants: &[Variant], folder: &Path) -> Vec<Content> {
    let link = |variant: &Variant, (name, run): &(String, PathBuf)| {
        let below = run.strip_prefix(folder).ok()?;
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        Some((run_name(variant, name), format!("{}/{REPORT}", parts.join("/"))))
    };
    let links: Vec<(String, String)> = variants
        .iter()
        .flat_map(|variant| variant.runs.iter().filter_map(move |run| link(variant, run)))
        .collect();
    if links.is_empty() { Vec::new() } else { vec![Content::Links(links)] }
}
