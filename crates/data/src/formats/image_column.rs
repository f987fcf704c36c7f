//! A column of a table that holds images: as paths, or as their bytes.
//!
//! A path is relative to the table, or an absolute one inside the table's folder. One that leads out of
//! that folder is refused: a table from elsewhere must not decide which other files are read.

use std::path::{Component, Path, PathBuf};

use super::fields::{Fields, NoRow, absent, single};
use super::reader::{Missing, Reader};
use crate::error::Mismatch;
use crate::images::Transparency;
use crate::{Body, Image};

impl Reader {
    /// The image of a record. One that cannot be read is like one that is not there: whether it ends the
    /// reading is for `data.missing` to say.
    pub(super) fn image(&self, column: &str, fields: &mut dyn Fields) -> Result<Body, NoRow> {
        let missing = |mismatch| NoRow { mismatch, is_missing: true, advice: None };
        for name in [column.to_owned(), format!("{column}.bytes")] {
            if let Some(bytes) = fields.bytes(&name)? {
                let image = Image::encoded(bytes).map_err(missing)?;
                return self.checked(image).map_err(missing);
            }
        }
        // A structure with bytes may have a path in their place.
        let inner = fields.take(&format!("{column}.path"))?;
        let cell = if inner.is_some() { inner } else { fields.take(column)? };
        let Some(cell) = cell.map(|cell| single(cell, " ")).filter(|cell| !cell.trim().is_empty())
        else {
            return Err(absent(fields, &[column], Some("image")));
        };
        let folder = self.images.as_deref().unwrap_or(Path::new(""));
        let path = inside(folder, cell.trim())?;
        let named = |(found, expected): Mismatch| missing((format!("{cell:?}, {found}"), expected));
        let image = Image::file(path).map_err(named)?;
        self.checked(image).map_err(named)
    }

    /// Where broken images are left out, they have to be known before rows are divided.
    pub(super) fn checked(&self, image: Image) -> Result<Body, Mismatch> {
        if self.missing == Missing::Drop {
            image.raster(Transparency::Dropped)?;
        }
        Ok(Body::Image(image))
    }
}

/// The file of a path in a table.
pub(super) fn inside(folder: &Path, written: &str) -> Result<PathBuf, Mismatch> {
    let path = Path::new(written);
    let leads_out = || {
        let expected = "a path inside the folder of the table".to_owned();
        (format!("the path {written:?}"), expected)
    };
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(leads_out());
    }
    if !path.has_root() && !path.is_absolute() {
        return Ok(folder.join(path));
    }
    let whole = std::path::absolute(folder).map_err(|_| leads_out())?;
    let real = folder.canonicalize().map_err(|_| leads_out())?;
    if path.starts_with(whole) || path.starts_with(real) {
        Ok(path.to_owned())
    } else {
        Err(leads_out())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_the_folder_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert_eq!(inside(at, "a/b.png").unwrap(), at.join("a/b.png"));
        assert_eq!(inside(at, "./a.png").unwrap(), at.join("a.png"));
        let whole = at.join("c.png").display().to_string();
        assert_eq!(inside(at, &whole).unwrap(), at.join("c.png"));
        for out in ["../a.png", "a/../../b.png", "/etc/passwd", "/a.png", "a/.."] {
            assert!(inside(at, out).is_err(), "{out}");
        }
        let climbing = at.join("../x.png").display().to_string();
        assert!(inside(at, &climbing).is_err());
    }
}
