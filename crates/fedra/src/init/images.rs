//! Rows that are images, as `fedra init` finds them: a folder, IDX files, or a column of a table.
//!
//! What their folders and labels say becomes columns of a survey, so that everything behind it (clients, splits,
//! labels, notes) is found as in a table.

use std::path::Path;

use fedra_data::{
    Format, FoundFormat, Image, ImageFile, Reader, Survey, TableBuilder, Task, idx_files,
    image_columns, image_files,
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
    let files = path.is_dir().then(|| image_files(path))?.ok()?;
    // Images beside tables of clients, without a folder of their own, are no classes.
    files.first()?.label.as_ref()?;
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

/// The images of a table, where a column holds paths to some or their bytes.
pub(super) fn column(format: Format, path: &Path, survey: &mut Survey) -> Option<ImageSight> {
    let names = if format == Format::Parquet { image_columns(path).ok()? } else { Vec::new() };
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_path = |value: &str| {
        let value = value.to_lowercase();
        ENDINGS.iter().any(|end| value.ends_with(end))
    };
    let of_paths = survey.columns.iter().find(|column| {
        column.filled > 0
            && !column.is_list()
            && column.values.keys().all(|value| is_path(value))
            && !column.values.is_empty()
    });
    let (name, images): (String, Vec<Image>) = match (names.into_iter().next(), of_paths) {
        (Some(name), _) => {
            let mut builder = TableBuilder::new(Task::Diagnosis);
            let columns = fedra_data::Columns { image: Some(name.clone()), ..Default::default() };
            Reader { columns, ..Reader::default() }.read(format, path, &mut builder).ok()?;
            let examples = builder.finish().examples.into_iter().take(LOOKED_AT);
            (name, examples.filter_map(|example| example.body.into_image()).collect())
        }
        (None, Some(column)) => {
            let values = column.values.keys().take(LOOKED_AT);
            let images = values.filter_map(|value| Image::file(folder.join(value)).ok());
            (column.name.clone(), images.collect())
        }
        (None, None) => return None,
    };
    // Paths to nothing are texts.
    (!images.is_empty()).then(|| ImageSight::of(images, Some(name)))
}
