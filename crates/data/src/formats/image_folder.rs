//! A folder of images: what they show, whose they are and which part they belong to is in their paths.
//!
//! ```text
//! class/image.png             split/class/image.png
//! client/class/image.png      split/client/class/image.png      client/split/class/image.png
//! ```
//! One arrangement holds for the whole folder. A folder level is the split where every name on it is one
//! (`train`, `test`, `val`). Images come in the order of their paths.

use std::fs;
use std::path::{Path, PathBuf};

use super::reader::Reader;
use crate::error::Mismatch;
use crate::work::CHUNK;
use crate::{Body, DataError, Image, Result, Row, Split, Stage, TableBuilder, Work};

/// Folders between the named one and an image.
const DEEPEST: usize = 3;
/// Files that are opened by one thread at a time.
const AT_ONCE: usize = CHUNK / 8;
const READ: [&str; 3] = ["png", "jpg", "jpeg"];
/// Endings of images that are not read.
const UNREAD: [&str; 11] =
    ["gif", "bmp", "tif", "tiff", "webp", "dcm", "heic", "avif", "jp2", "svg", "ppm"];

/// An image of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it shows; none for images that lie in no folder of their own.
    pub label: Option<String>,
    /// Whose it is, where the folder says so.
    pub client: Option<String>,
    /// Which part it belongs to, where the folder says so.
    pub split: Option<Split>,
}

/// What becomes of images in formats that are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherFormats {
    /// The first one is refused: to pass over them in silence would lose rows.
    Refused,
    /// They are among the others: whoever opens them finds out, file by file.
    Listed,
}

/// The images of a folder, in the order of their paths.
pub fn image_files(folder: &Path, others: OtherFormats) -> Result<Vec<ImageFile>> {
    let mut found = Vec::new();
    walk((folder, others), &mut Vec::new(), &mut found)?;
    arranged(folder, found)
}

/// Reads every image of a folder.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
) -> Result<()> {
    let files = image_files(path, OtherFormats::Refused)?;
    if let Some(bare) = files.iter().find(|file| file.label.is_none()) {
        let found = format!("{}, in no folder of a class", bare.path.display());
        return Err(DataError::file(path, found, "a folder for each class"));
    }
    // Told in bytes of the folder's own entry, as callers add up files.
    let total = fs::metadata(path).map_or(0, |about| about.len());
    let share = |done: usize| total * done as u64 / files.len().max(1) as u64;
    let (mut parts, mut done) = (files.chunks(AT_ONCE), 0);
    work.in_order(
        || Ok(parts.next()),
        |part| {
            let body =
                |file: &ImageFile| Image::file(&file.path).and_then(|image| reader.checked(image));
            Ok(part.iter().map(|file| (file, body(file))).collect::<Vec<_>>())
        },
        |made: Vec<(&ImageFile, Result<Body, Mismatch>)>| {
            done += made.len();
            for (file, body) in made {
                push(reader, (file, body), builder)?;
            }
            work.tell(Stage::Reading, share(done), total)
        },
    )
}

fn push(
    reader: &Reader,
    (file, body): (&ImageFile, Result<Body, Mismatch>),
    builder: &mut TableBuilder,
) -> Result<()> {
    let row = body.map(|body| Row {
        labels: file.label.iter().cloned().collect(),
        client: file.client.clone(),
        split: file.split,
        ..Row::of(body)
    });
    let row =
        row.map_err(|mismatch| super::fields::NoRow { mismatch, is_missing: true, advice: None });
    reader.push(row, (&file.path, 0), builder)
}

/// An image and the folders that it lies in.
type Found = (PathBuf, Vec<String>);

fn walk(
    (folder, others): (&Path, OtherFormats),
    above: &mut Vec<String>,
    found: &mut Vec<Found>,
) -> Result<()> {
    let io = |error| DataError::io("open", folder, error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        entries.push(entry.map_err(io)?.file_name());
    }
    entries.sort();
    for entry in entries {
        let path = folder.join(&entry);
        let Some(name) = entry.to_str() else {
            return Err(DataError::file(&path, "a name that is not UTF-8", "UTF-8"));
        };
        if name.starts_with('.') || name == "__MACOSX" {
            continue;
        }
        let about = fs::metadata(&path).map_err(|error| DataError::io("open", &path, error))?;
        if about.is_dir() {
            if above.len() == DEEPEST {
                let expected = "at most a client, a split and a class above an image";
                return Err(DataError::file(&path, "a folder too deep", expected));
            }
            above.push(name.to_owned());
            walk((&path, others), above, found)?;
            above.pop();
            continue;
        }
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let end = end.to_ascii_lowercase();
        let is_other = UNREAD.contains(&end.as_str());
        if READ.contains(&end.as_str()) || is_other && others == OtherFormats::Listed {
            found.push((path, above.clone()));
        } else if is_other {
            return Err(DataError::file(&path, format!("a .{end} file"), "PNG or JPEG images"));
        }
    }
    Ok(())
}

/// What the folders of images mean.
fn arranged(folder: &Path, found: Vec<Found>) -> Result<Vec<ImageFile>> {
    let Some((first, folders)) = found.first() else {
        return Err(DataError::file(folder, "no image", "PNG or JPEG files in folders of classes"));
    };
    let depth = folders.len();
    if let Some((other, _)) = found.iter().find(|(_, folders)| folders.len() != depth) {
        let shown = |path: &Path| path.strip_prefix(folder).unwrap_or(path).display().to_string();
        let found = format!("{} beside {}", shown(first), shown(other));
        return Err(DataError::file(folder, found, "all images at the same depth"));
    }
    let is_split = |level: usize| {
        let split = |(_, folders): &Found| folders.get(level).and_then(|name| Split::parse(name));
        found.iter().all(|file| split(file).is_some())
    };
    // The last level is the class, unless it is all there is.
    let split_at = (0..depth.saturating_sub(1).max(depth.min(1))).find(|level| is_split(*level));
    let split_at = split_at.filter(|level| *level < 2);
    if depth - usize::from(split_at.is_some()) > 2 {
        let expected = "class, client/class, or one of them with a split";
        return Err(DataError::file(
            folder,
            format!("folders like {}", folders.join("/")),
            expected,
        ));
    }
    let file = |(path, mut folders): Found| {
        let split = split_at.map(|level| folders.remove(level));
        let label = folders.pop();
        let split = split.and_then(|name| Split::parse(&name));
        ImageFile { path, label, client: folders.pop(), split }
    };
    Ok(found.into_iter().map(file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Meaning = (Option<String>, Option<String>, Option<Split>);

    fn arrangement(paths: &[&str]) -> Result<Vec<Meaning>> {
        let folder = tempfile::tempdir().unwrap();
        for path in paths {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let files = image_files(folder.path(), OtherFormats::Refused)?;
        Ok(files.into_iter().map(|file| (file.label, file.client, file.split)).collect())
    }

    fn row(label: &str, client: &str, split: Option<Split>) -> Meaning {
        let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        (some(label), some(client), split)
    }

    #[test]
    fn folders_are_classes_clients_and_splits() {
        let train = Some(Split::Train);
        for (paths, expected) in [
            (
                vec!["b/1.png", "a/2.JPG", "a/.hidden.png", "README.md"],
                vec![row("a", "", None), row("b", "", None)],
            ),
            (
                vec!["train/a/1.png", "test/a/1.png"],
                vec![row("a", "", Some(Split::Test)), row("a", "", train)],
            ),
            (
                vec!["north/a/1.png", "south/a/1.png"],
                vec![row("a", "north", None), row("a", "south", None)],
            ),
            (vec!["train/north/a/1.png"], vec![row("a", "north", train)]),
            (vec!["north/train/a/1.png"], vec![row("a", "north", train)]),
            (vec!["1.png"], vec![row("", "", None)]),
            // A class may have the name of a split where not all names on its level are splits.
            (
                vec!["train/1.png", "plane/1.png"],
                vec![row("plane", "", None), row("train", "", None)],
            ),
        ] {
            assert_eq!(arrangement(&paths).unwrap(), expected, "{paths:?}");
        }
    }

    #[test]
    fn mixed_depths_other_formats_and_empty_folders_are_refused() {
        for (paths, part) in [
            (vec!["a/1.png", "1.png"], "at the same depth"),
            (vec!["a/b/c/1.png"], "folders like a/b/c"),
            (vec!["a/b/c/d/1.png"], "too deep"),
            (vec!["a/1.tif"], "a .tif file"),
            (vec!["a/notes.txt"], "no image"),
        ] {
            let error = arrangement(&paths).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
