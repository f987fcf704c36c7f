//! Several runs side by side: a comparison's page, or that of any runs with names.

use std::fs;
use std::path::{Component, Path, PathBuf};

use fedra_engine::EvaluationSet;
use fedra_report::{
    Chart, Content, Document, Freshness, PlotRow, Point, RowPlot, Scale, Section, Series, Stroke,
};

use crate::compare::{Comparison, Line, Page};
use crate::error::{Context, Result};
use crate::grid::counted;
use crate::report::curves::{spent, unit_of};
use crate::report::facts::spoken;
use crate::report::record::{Detail, RunRecord};
use crate::run_files::{COMPARISON, EXPERIMENT, REPORT};

/// Variants whose lines can be told apart.
const LINES: usize = 8;

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
    let mut contents = page.contents();
    let notes = contents.split_off(page.tables());
    let sections = vec![
        Section::new("Result", by_variant(&comparison).map(Content::Rows).into_iter().collect()),
        Section::new("Tables", contents),
        Section::new("Notes", notes),
        Section::new("Curves", curves(&variants)?),
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
) -> Result<Document> {
    Ok(Document {
        title: title.to_owned(),
        lead: vec![lead.to_owned()],
        sections: vec![
            Section::new("Result", own),
            Section::new("Curves", curves(variants)?),
            Section::new("Runs", links(variants, folder)),
        ],
        freshness: Freshness::Fixed,
    })
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
}

impl Course {
    /// `None` where nothing was scored. Rounds that not all runs reached are left out: the mean of those
    /// that go on is that of others.
    fn of(variant: &Variant) -> Result<(Option<Self>, Option<(String, EvaluationSet)>)> {
        let (mut runs, mut score) = (Vec::new(), None);
        for (_, folder) in &variant.runs {
            let record = RunRecord::read(folder, Detail::Means)?;
            score = record.last_score().map(|(name, _, on)| (name.to_owned(), on)).or(score);
            runs.push(spent(&record.rounds));
        }
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
        let name = variant.name.clone();
        Ok(((!points.is_empty()).then_some(Self { name, points }), score))
    }

    fn last(&self) -> f64 {
        self.points.last().map_or(f64::NEG_INFINITY, |(_, _, [mean, ..])| *mean)
    }
}

fn curves(variants: &[Variant]) -> Result<Vec<Content>> {
    let (mut courses, mut score) = (Vec::new(), None);
    for variant in variants {
        let (course, judged) = Course::of(variant)?;
        courses.extend(course);
        score = score.or(judged);
    }
    let Some((name, _)) = score else { return Ok(Vec::new()) };
    let all = courses.len();
    if all > LINES {
        courses.sort_by(|a, b| b.last().total_cmp(&a.last()));
        courses.truncate(LINES);
    }
    let few = if all > LINES {
        format!(" Shown: the {LINES} of {all} variants that end highest.")
    } else {
        String::new()
    };
    let line = |(colour, course): (usize, &Course), bytes: Option<f64>| Series {
        name: course.name.clone(),
        points: course
            .points
            .iter()
            .map(|(round, spent, [mean, least, most])| {
                let x = bytes.map_or(*round, |size| spent / size);
                Point::with_band(x, *mean, *least, *most)
            })
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
    let chart = |title: &str, caption: &str, x: String, series: Vec<Series>| Chart {
        title: title.to_owned(),
        caption: format!("{caption}{few}"),
        x: (x, Scale::Linear),
        y: (spoken(&name), Scale::Linear),
        series,
    };
    let charts = [
        chart(
            "Score by round",
            "Mean over runs; bands go from the lowest to the highest.",
            "round".to_owned(),
            by_round,
        ),
        chart(
            "Score against bytes",
            "What had travelled, up and down, when a score was reached. Who sent nothing is left out.",
            format!("{unit} so far"),
            by_bytes,
        ),
    ];
    Ok(charts.into_iter().filter(|chart| !chart.series.is_empty()).map(Content::Lines).collect())
}

fn links(variants: &[Variant], folder: &Path) -> Vec<Content> {
    let link = |variant: &Variant, (name, run): &(String, PathBuf)| {
        let below = run.strip_prefix(folder).ok()?;
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let name = if name.is_empty() {
            variant.name.clone()
        } else {
            format!("{}, {name}", variant.name)
        };
        Some((name, format!("{}/{REPORT}", parts.join("/"))))
    };
    let links: Vec<(String, String)> = variants
        .iter()
        .flat_map(|variant| variant.runs.iter().filter_map(move |run| link(variant, run)))
        .collect();
    if links.is_empty() { Vec::new() } else { vec![Content::Links(links)] }
}
