//! `report.html` of a comparison: its tables, intervals by variant, curves, and links to its runs.

use std::path::{Component, Path};

use fedra_report::{Content, Document, Freshness, PlotRow, RowPlot, Section};

use super::comparison::{Comparison, Line};
use super::page::Page;
use crate::error::Result;
use crate::folder::json_file;
use crate::report::{Variant, curves, links, spoken};
use crate::run_files::{COMPARISON, EXPERIMENT};
use crate::text::grid::counted;

/// The page of the comparison in a folder.
pub(crate) fn of_folder(folder: &Path) -> Result<Document> {
    let comparison = read(folder)?;
    let variants = variants_of(&comparison, folder);
    let page = Page::of(&comparison);
    // The first table is the result, the others ask other questions, and notes come last.
    let (mut result, notes) = page.contents();
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

/// The variants of the comparison in a folder, with those of their runs that are there.
pub(crate) fn variants_in(folder: &Path) -> Result<Vec<Variant>> {
    Ok(variants_of(&read(folder)?, folder))
}

fn read(folder: &Path) -> Result<Comparison> {
    json_file::read(&folder.join(COMPARISON), "comparison")
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
            "Mean of {seeds} seeds and its 95 % interval. Verdicts are about paired differences per seed, which \
             may be significant even where intervals overlap."
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
