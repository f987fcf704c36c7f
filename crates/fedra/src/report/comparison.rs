//! Several runs side by side: a comparison's page, or that of any runs with names.

use std::fs;
use std::path::{Component, Path, PathBuf};

use fedra_report::{
    Chart, Content, Document, Freshness, PlotRow, Point, RowPlot, Scale, Section, Series, Stroke,
};

use crate::error::{Context, Result, in_words};
use crate::folder::run_files::{COMPARISON, EXPERIMENT, REPORT};
use crate::report::curves::unit_of;
use crate::report::facts::spoken;
use crate::report::record::{Detail, RunRecord};
use crate::study::compare::{Comparison, Judged, Line, Page};
use crate::text::grid::counted;
use crate::text::headline::set_name;

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

/// The page of the comparison in a folder.
pub(super) fn of_folder(folder: &Path) -> Result<Document> {
    let comparison = read(folder)?;
    let variants = variants_of(&comparison, folder);
    let page = Page::of(&comparison);
    // The first table is the result, the others ask other questions, and notes come last.
    let mut result = page.contents();
    let notes = result.split_off(page.tables());
    let others = result.split_off(1.min(result.len()));
    result.extend(by_variant(&comparison).map(Content::Rows));
    result.extend(curves(&variants));
    let sections = vec![
        Section::new("Result", result),
        Section::new("At equal budgets", others),
        Section::new("Notes", notes),
        Section::new("Runs", links(&variants, folder)),
    ];
    let seeds = comparison.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let lead = format!(
        "{}, seeds {seeds}. The same numbers are in {COMPARISON}.",
        counted(comparison.variants.len() as u64, "variant")
    );
    Ok(Document { title: page.name, lead: vec![lead], sections, freshness: Freshness::Fixed })
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

/// The variants of the comparison in a folder, with those of their runs that are there.
pub(super) fn variants_in(folder: &Path) -> Result<Vec<Variant>> {
    Ok(variants_of(&read(folder)?, folder))
}

fn read(folder: &Path) -> Result<Comparison> {
    let path = folder.join(COMPARISON);
    let shown = path.display();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{shown}: found no comparison of this version"))
}

fn variants_of(comparison: &Comparison, folder: &Path) -> Vec<Variant> {
    let variant = |line: &Line| {
        let seeds = line.by_seed.keys();
        let run = |seed: &u64| (format!("seed {seed}"), format!("seed-{seed}"));
        // A name that was edited to lead elsewhere leads nowhere.
        let own = Path::new(&line.name);
        let is_folder = own.components().all(|part| matches!(part, Component::Normal(_)));
        let runs = seeds.map(run).map(|(name, at)| (name, folder.join(own).join(at)));
        let runs = runs.filter(|(_, run)| is_folder && run.join(EXPERIMENT).is_file());
        Variant { name: line.name.clone(), runs: runs.collect() }
    };
    comparison.variants.iter().map(variant).collect()
}

/// The score of each variant with its interval, and each seed.
fn by_variant(comparison: &Comparison) -> Option<RowPlot> {
    let judged = comparison.score.as_ref()?;
    let row = |line: &Line| {
        let score = line.standing.score?;
        let margin = score.margin.unwrap_or(0.0);
        let ends = [score.mean, margin].iter().all(|number| number.is_finite());
        ends.then(|| PlotRow {
            name: line.name.clone(),
            values: vec![Some(score.mean)],
            span: (margin > 0.0).then_some((score.mean - margin, score.mean + margin, 0)),
        })
    };
    let rows: Vec<PlotRow> = comparison.variants.iter().filter_map(row).collect();
    let caption = match comparison.seeds.len() {
        1 => "One seed: there is no interval.".to_owned(),
        seeds => format!(
            "Mean of {seeds} seeds and its 95 % interval. Verdicts are about differences seed by seed, \
             which may be seen where intervals overlap."
        ),
    };
    (!rows.is_empty()).then(|| RowPlot {
        title: "Score by variant".to_owned(),
        caption,
        x: format!("{}, {}", spoken(&judged.name), judged.on.replace('_', " ")),
        y: "variant".to_owned(),
        marks: vec![("mean".to_owned(), 0)],
        rows,
    })
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
    fn of(name: &str, records: &[RunRecord], judged: &Judged) -> Option<Self> {
        let runs: Vec<Vec<(f64, f64, f64)>> =
            records.iter().map(|record| course(record, judged)).collect();
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

    fn last(&self) -> f64 {
        self.points.last().map_or(f64::NEG_INFINITY, |(_, _, [mean, ..])| *mean)
    }
}

/// What a run is judged by: of a run that is on, its last headline.
fn judged(record: &RunRecord) -> Option<Judged> {
    let summed = record.summary.as_ref().and_then(|summary| summary.score.as_ref());
    let summed = summed.map(|score| Judged { name: score.name.clone(), on: score.on.clone() });
    summed.or_else(|| {
        let (name, _, on) = record.last_score()?;
        Some(Judged { name: name.to_owned(), on: set_name(on).to_owned() })
    })
}

/// Round, bytes so far and score, wherever a run was scored in this way. One that was so only at its end,
/// because each client has a model of its own, has that alone.
fn course(record: &RunRecord, judged: &Judged) -> Vec<(f64, f64, f64)> {
    let (mut bytes, mut points) = (0.0, Vec::new());
    for report in &record.rounds {
        bytes += (report.bytes.up + report.bytes.down).0 as f64;
        let set = report.scores.iter().find(|set| set_name(set.on) == judged.on);
        if let Some(score) = set.and_then(|set| set.mean.get(&judged.name)) {
            points.push((f64::from(report.round.0) + 1.0, bytes, *score));
        }
    }
    let summed = record.summary.as_ref().and_then(|summary| summary.score.as_ref());
    match summed {
        Some(score) if points.is_empty() && score.on == judged.on && score.name == judged.name => {
            vec![(record.rounds.len() as f64, bytes, score.value)]
        }
        Some(_) | None => points,
    }
}

/// Curves of the variants, and which runs are in none.
fn curves(variants: &[Variant]) -> Vec<Content> {
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
        chosen = chosen.or_else(|| records.iter().find_map(judged));
        if let Some(judged) = &chosen {
            courses.extend(Course::of(&variant.name, &records, judged));
        }
    }
    let Some(Judged { name, on }) = chosen else { return left_out };
    let all = courses.len();
    if all > LINES {
        courses.sort_by(|a, b| b.last().total_cmp(&a.last()));
        courses.truncate(LINES);
    }
    let mut few = String::new();
    if all > LINES {
        few = format!(" Shown: the {LINES} of {all} variants that end highest.");
    }
    if courses.iter().any(|course| course.uneven) {
        few.push_str(" A curve ends where the first of its runs ended.");
    }
    let line = |(colour, course): (usize, &Course), bytes: Option<f64>| Series {
        name: course.name.clone(),
        points: course
            .points
            .iter()
            .map(|(round, spent, [mean, least, most])| {
                let x = bytes.map_or(*round, |size| spent / size);
                Point::with_band(x, *mean, *least, *most)
            })
            .filter(|point| bytes.is_none() || point.x > 0.0)
            .collect(),
        stroke: Stroke::Marked,
        colour,
    };
    let most = courses.iter().filter_map(|course| course.points.last()).map(|last| last.1);
    let (unit, size) = unit_of(most.fold(0.0, f64::max));
    let by_round = courses.iter().enumerate().map(|course| line(course, None)).collect();
    let by_bytes: Vec<Series> = courses
        .iter()
        .enumerate()
        .filter(|(_, course)| course.points.last().is_some_and(|last| last.1 > 0.0))
        .map(|course| line(course, Some(size)))
        .collect();
    // Weights of one and states of another may be a hundred times apart.
    let ends: Vec<f64> =
        courses.iter().filter_map(|course| course.points.last()).map(|last| last.1).collect();
    let least = ends.iter().copied().filter(|spent| *spent > 0.0).fold(f64::INFINITY, f64::min);
    let is_wide = ends.iter().copied().fold(0.0, f64::max) > FAR_APART * least;
    let across = if is_wide { Scale::Log } else { Scale::Linear };
    let chart =
        |title: &str, caption: &str, (x, scale): (String, Scale), series: Vec<Series>| Chart {
            title: title.to_owned(),
            caption: format!("{caption}{few}"),
            x: (x, scale),
            y: (format!("{}, {}", spoken(&name), on.replace('_', " ")), Scale::Linear),
            series,
        };
    let charts = [
        chart(
            "Score by round",
            "Mean over runs; bands go from the lowest to the highest.",
            ("round".to_owned(), Scale::Linear),
            by_round,
        ),
        chart(
            "Score against bytes",
            "What had travelled, up and down, when a score was reached. Who sent nothing is left out.",
            (format!("{unit} so far"), across),
            by_bytes,
        ),
    ];
    let charts = charts.into_iter().filter(|chart| !chart.series.is_empty()).map(Content::Lines);
    charts.chain(left_out).collect()
}

fn run_name(variant: &Variant, run: &str) -> String {
    if run.is_empty() { variant.name.clone() } else { format!("{}, {run}", variant.name) }
}

fn links(variants: &[Variant], folder: &Path) -> Vec<Content> {
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
