//! IDX: the files of MNIST and its kin, gzip or not.
//!
//! ```text
//! images   0 0 8 3 | count | height | width | pixels          labels   0 0 8 1 | count | labels
//! ```
//! A folder has the usual four files; one file of images has its labels beside it, under the same name with
//! `labels-idx1` for `images-idx3`. A label is the number that stands there. Rows are counted from 1.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::fields::NoRow;
use super::reader::{Limits, Reader};
use crate::error::counted;
use crate::work::CHUNK;
use crate::{Body, DataError, Image, Result, Row, Split, Stage, TableBuilder, Work};

/// Images and their labels, and the part that their name says.
pub type IdxFiles = (PathBuf, PathBuf, Option<Split>);

/// The files of a folder, or those that belong to one file of images.
pub fn idx_files(path: &Path) -> Result<Vec<IdxFiles>> {
    if path.is_file() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let labels = name.replace("images", "labels").replace("idx3", "idx1");
        let beside = path.with_file_name(&labels);
        if !name.contains("idx3") || labels == name || !beside.is_file() {
            let found = format!("no labels beside {name}");
            let expected = "a file like train-images-idx3-ubyte beside train-labels-idx1-ubyte";
            return Err(DataError::file(path, found, expected));
        }
        return Ok(vec![(path.to_owned(), beside, None)]);
    }
    let mut files = Vec::new();
    for (start, split) in [("train", Split::Train), ("t10k", Split::Test), ("test", Split::Test)] {
        let find = |what: &str, dimensions: &str| {
            let names = ["-", "."].into_iter().flat_map(|dash| {
                ["", ".gz"].map(|end| format!("{start}-{what}{dash}{dimensions}-ubyte{end}"))
            });
            names.map(|name| path.join(name)).find(|file| file.is_file())
        };
        match (find("images", "idx3"), find("labels", "idx1")) {
            (Some(images), Some(labels)) => files.push((images, labels, Some(split))),
            (None, None) => {}
            (images, _) => {
                let lacks = if images.is_some() { "labels" } else { "images" };
                let found = format!("no {start}-{lacks}");
                return Err(DataError::file(path, found, "images and labels"));
            }
        }
    }
    if files.is_empty() {
        let expected = "train-images-idx3-ubyte and train-labels-idx1-ubyte, gzip or not";
        return Err(DataError::file(path, "no IDX files", expected));
    }
    Ok(files)
}

/// Reads all images with their labels.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
) -> Result<()> {
    let files = idx_files(path)?;
    let told = std::fs::metadata(path).map_or(0, |about| about.len());
    for (number, (images, labels, split)) in (0..).zip(&files) {
        let (labels, [count, ..]) = Idx::open(labels, 1, reader.limits)?.values()?;
        let mut pixels = Idx::open(images, 3, reader.limits)?;
        if pixels.shape[0] != count {
            let (pixels, labels) = (counted(pixels.shape[0], "image"), counted(count, "label"));
            let found = format!("{pixels} beside {labels}");
            return Err(DataError::file(images, found, "as many of both"));
        }
        let [_, height, width] = pixels.shape;
        for (place, label) in (1..).zip(labels) {
            let image = pixels.next(height * width)?;
            let image = Image::plain((width as u32, height as u32, 1), image);
            let row = image.map_err(NoRow::from).map(|image| Row {
                labels: vec![label.to_string()],
                split: *split,
                ..Row::of(Body::Image(image))
            });
            reader.push(row, (images, place), builder)?;
            if place.is_multiple_of(CHUNK as u64) {
                let share = (number * count + place) as u128 * u128::from(told);
                let all = u128::from(count.max(1)) * files.len() as u128;
                work.tell(Stage::Reading, (share / all).min(u128::from(told)) as u64, told)?;
            }
        }
        pixels.end()?;
    }
    Ok(())
}

/// An open file whose header was checked.
struct Idx {
    file: PathBuf,
    input: Box<dyn Read>,
    /// How many values along each of up to three dimensions.
    shape: [u64; 3],
}

impl Idx {
    fn open(file: &Path, dimensions: u8, limits: Limits) -> Result<Self> {
        let io = |error| DataError::io("read", file, error);
        let opened = || File::open(file).map_err(|error| DataError::io("open", file, error));
        let mut start = [0; 2];
        let is_gzip = opened()?.read_exact(&mut start).is_ok() && start == [0x1f, 0x8b];
        let plain = BufReader::new(opened()?);
        let mut input: Box<dyn Read> = if is_gzip {
            Box::new(BufReader::new(MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(io)?;
        if magic != [0, 0, 8, dimensions] {
            let expected = format!("[0, 0, 8, {dimensions}]: bytes along {dimensions} dimensions");
            return Err(DataError::file(file, format!("the first bytes {magic:?}"), expected));
        }
        let mut shape = [1; 3];
        for length in &mut shape[..usize::from(dimensions)] {
            let mut bytes = [0; 4];
            input.read_exact(&mut bytes).map_err(io)?;
            *length = u64::from(u32::from_be_bytes(bytes));
        }
        let all = shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length));
        if all.is_none_or(|all| all > limits.expanded_bytes) {
            let limit = limits.expanded_bytes;
            let (file, what) = (file.to_owned(), "expanded data");
            return Err(DataError::TooLarge { file, line: 1, what, limit });
        }
        Ok(Self { file: file.to_owned(), input, shape })
    }

    /// The next values. Memory is taken as they come, whatever the header said.
    fn next(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(count).read_to_end(&mut bytes);
        read.map_err(|error| DataError::io("read", &self.file, error))?;
        if bytes.len() as u64 != count {
            let expected =
                format!("{} values", self.shape.map(|length| length.to_string()).join(" x "));
            return Err(DataError::file(&self.file, "fewer values", expected));
        }
        Ok(bytes)
    }

    /// All values of a file of one dimension.
    fn values(mut self) -> Result<(Vec<u8>, [u64; 3])> {
        let values = self.next(self.shape[0])?;
        let shape = self.shape;
        self.end()?;
        Ok((values, shape))
    }

    fn end(mut self) -> Result<()> {
        let rest = self.input.read(&mut [0]);
        if rest.map_err(|error| DataError::io("read", &self.file, error))? > 0 {
            return Err(DataError::file(&self.file, "more values", "those of its header"));
        }
        Ok(())
    }
}
