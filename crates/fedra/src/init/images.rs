//! Rows that are images, as `fedra init` finds them: a folder, IDX files, or a column of a table.
//!
//! What their folders and labels say becomes columns of a survey, so that everything behind it (clients, splits,
//! labels, notes) is found as in a table.

use std::collections::BTreeSet;
use std::path::Path;

use fedra_data::{
    ColumnSurvey, Columns, Format, FoundFormat, Image, ImageFile, OtherFormats, Reader, Survey,
    TableBuilder, Task, idx_files, image_columns, image_files,
};

use crate::error::Result;

/// Images that are opened to see how large they are and whether they have colours.
const LOOKED_AT: usize = 40;
/// Endings of images.
const ENDINGS: [&str; 3] = [".png", ".jpg", ".jpeg"];
/// Sides of images that fresh models are proposed for, each with its patch.
const SIZES: [(usize, usize); 4] = [(28, 7), (32, 8), (64, 8), (96, 12)];

/// Images, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSight {
    /// The column of a table that holds them.
    pub column: Option<String>,
    /// The median of their shorter sides.
    pub side: usize,
    /// Whether some have colours.
    pub has_colours: bool,
}

impl ImageSight {
    /// Size, patch and channels of a fresh model for them.
    pub fn shape(&self) -> (usize, usize, usize) {
        let fits = |(size, _): &&(usize, usize)| *size <= self.side.max(SIZES[0].0);
        let (size, patch) = SIZES.iter().rfind(fits).copied().unwrap_or(SIZES[0]);
        (size, patch, if self.has_colours { 3 } else { 1 })
    }

    fn of(images: impl IntoIterator<Item = Image>, column: Option<String>) -> Self {
        let (mut sides, mut has_colours) = (Vec::new(), false);
        for image in images {
            let (width, height) = image.size();
            sides.push(width.min(height) as usize);
            has_colours |= image.has_colours().unwrap_or(false);
        }
        sides.sort_unstable();
        Self { column, side: sides.get(sides.len() / 2).copied().unwrap_or(0), has_colours }
    }
}

/// A folder of images or IDX files, where it is one.
pub(super) fn folder(path: &Path) -> Option<Result<(FoundFormat, Survey, ImageSight)>> {
    let found = |format| FoundFormat { format, delimiter: None, encoding: None };
    if idx_files(path).is_ok() {
        return Some(of_idx(path).map(|(survey, sight)| (found(Format::Idx), survey, sight)));
    }
    let files = path.is_dir().then(|| image_files(path, OtherFormats::Refused))?.ok()?;
    // One folder of images beside a table of their labels is no class.
    let labels: BTreeSet<&str> = files.iter().filter_map(|file| file.label.as_deref()).collect();
    if labels.len() < 2 {
        return None;
    }
    let step = files.len().div_ceil(LOOKED_AT).max(1);
    let some = files.iter().step_by(step).filter_map(|file| Image::file(&file.path).ok());
    let sight = ImageSight::of(some, None);
    Some(Ok((found(Format::Images), survey(&files), sight)))
}

fn survey(files: &[ImageFile]) -> Survey {
    let mut survey = Survey::default();
    for file in files {
        let split = file.split.map(fedra_data::Split::name);
        let cells = [
            ("label", file.label.as_deref()),
            ("client", file.client.as_deref()),
            ("split", split),
        ];
        survey.add(&cells);
    }
    survey
}

fn of_idx(path: &Path) -> Result<(Survey, ImageSight)> {
    let mut builder = TableBuilder::new(Task::Classes);
    Reader::default().read(Format::Idx, path, &mut builder)?;
    let table = builder.finish();
    let mut survey = Survey::default();
    for example in &table.examples {
        let label = example.labels.numbers().first().map(|label| table.labels.name(*label));
        let split = example.split.map(fedra_data::Split::name);
        survey.add(&[("label", label), ("split", split)]);
    }
    let images = table.examples.into_iter().take(LOOKED_AT).filter_map(|it| it.body.into_image());
    Ok((survey, ImageSight::of(images, None)))
}

/// The column of a Parquet file that holds encoded images; bytes may be text too.
pub(super) fn bytes_column(format: Format, path: &Path) -> Option<String> {
    let names = if format == Format::Parquet { image_columns(path).ok()? } else { Vec::new() };
    names.into_iter().find(|name| !of_bytes(path, name).is_empty())
}

/// The first images of such a column.
fn of_bytes(path: &Path, name: &str) -> Vec<Image> {
    let mut builder = TableBuilder::new(Task::Diagnosis);
    let columns = Columns { image: Some(name.to_owned()), ..Columns::default() };
    let reader = Reader { columns, ..Reader::default() };
    if reader.read(Format::Parquet, path, &mut builder).is_err() {
        return Vec::new();
    }
    let examples = builder.finish().examples.into_iter().take(LOOKED_AT);
    examples.filter_map(|example| example.body.into_image()).collect()
}

/// The images of a table: those of a column with their bytes, or of one with paths to them.
pub(super) fn of_table(path: &Path, bytes: Option<&str>, survey: &Survey) -> Option<ImageSight> {
    if let Some(name) = bytes {
        return Some(ImageSight::of(of_bytes(path, name), Some(name.to_owned())));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_path = |value: &String| {
        let value = value.to_lowercase();
        ENDINGS.iter().any(|end| value.ends_with(end))
    };
    let has_paths = |column: &&ColumnSurvey| {
        let mut values = column.values.keys();
        !column.is_list() && !column.values.is_empty() && values.all(is_path)
    };
    let column = survey.columns.iter().find(has_paths)?;
    let values = column.values.keys().take(LOOKED_AT);
    let images: Vec<Image> =
        values.filter_map(|value| Image::file(folder.join(value)).ok()).collect();
    // Paths to nothing are texts.
    (!images.is_empty()).then(|| ImageSight::of(images, Some(column.name.clone())))
}
