//! A file that is written row by row and is there whole or not at all.
//!
//! Rows go to a file beside its place, which moves there at the end; a program that stops on the way
//! leaves neither half a file nor a lost one. A pipe or a device is written as it is.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::config::ConfigError;
use crate::error::{Context, Error, Result};
use fedra_engine::durable;

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the new one is refused, with advice.
    Refused(&'static str),
    /// The new one takes its place.
    Replaced,
}

/// A file on its way.
#[derive(Debug)]
pub struct OutputFile {
    file: BufWriter<File>,
    /// Where it is asked for, as messages name it.
    path: PathBuf,
    /// Where it is written until it is whole; `None` for what is written in place.
    part: Option<PartialFile>,
}

/// The file until it is whole: nobody else may read it.
#[derive(Debug)]
struct PartialFile {
    path: PathBuf,
    /// What a plain file would have here.
    permissions: Permissions,
}

impl OutputFile {
    /// Begins the file that an argument of this name asks for. One that is there already is refused, unless
    /// it may be replaced.
    pub fn create(name: &str, path: &Path, existing: Existing) -> Result<Self> {
        let shown = path.display();
        let found = fs::metadata(path);
        ConfigError::new(name, format_args!("the folder {shown}"), "a file")
            .when(found.as_ref().is_ok_and(fs::Metadata::is_dir))?;
        let path = path.to_owned();
        if found.as_ref().is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(&path);
            let file = file.with_context(|| format!("{name}: cannot open {shown}"))?;
            return Ok(Self { file: BufWriter::new(file), path, part: None });
        }
        if let (Ok(_), Existing::Refused(hint)) = (found, existing) {
            return Err(ConfigError::new(name, shown, "no such file").with_hint(hint).into());
        }
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        // Of this process alone, so that nobody else's rows or file can be in it.
        let part = path.with_file_name(format!(".{own}.{}.part", std::process::id()));
        let created = create_private(&part);
        let (file, permissions) =
            created.with_context(|| format!("{name}: cannot write {shown}"))?;
        let part = Some(PartialFile { path: part, permissions });
        Ok(Self { file: BufWriter::new(file), path, part })
    }

    /// Where it is written until it is whole, if not in its place.
    pub fn part(&self) -> Option<&Path> {
        self.part.as_ref().map(|part| part.path.as_path())
    }

    /// Puts the file in its place.
    pub fn finish(mut self) -> Result<()> {
        let Some(part) = self.part.take() else {
            let written = self.file.flush();
            return written.map_err(|source| self.unwritten(source));
        };
        let moved = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().set_permissions(part.permissions))
            .and_then(|()| self.file.get_ref().sync_all())
            .and_then(|()| fs::rename(&part.path, &self.path));
        if moved.is_err() {
            // What was cut short only takes room.
            let _absent = fs::remove_file(&part.path);
        }
        moved.map_err(|source| self.unwritten(source))?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok(durable::sync_folder(folder.unwrap_or(Path::new(".")))?)
    }

    /// An error that names the file; whoever writes to it need not know its name.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    fn unwritten(&self, source: io::Error) -> Error {
        Error::Unwritten { what: self.path.display().to_string(), source }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        written.map_err(|error| self.named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.flush();
        written.map_err(|error| self.named(&error))
    }
}

/// Creates an empty file that only its owner may read, and says what a plain file would have allowed.
fn create_private(path: &Path) -> io::Result<(File, Permissions)> {
    let create = || {
        let mut options = File::options();
        options.write(true).create_new(true);
        options
    };
    let permissions = create().open(path)?.metadata()?.permissions();
    fs::remove_file(path)?;
    let mut options = create();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok((options.open(path)?, permissions))
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let _absent = fs::remove_file(&part.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Existing = Existing::Refused("--force replaces it");

    #[test]
    fn a_file_is_there_once_it_is_whole_and_is_not_written_over_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let mut file = OutputFile::create("--output", &path, REFUSED).unwrap();
        file.write_all(b"one").unwrap();
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut file = OutputFile::create("--output", &path, REFUSED).unwrap();
        file.write_all(b"two").unwrap();
        assert!(!path.exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(file.part().unwrap()), 0o600);
            let plain = folder.path().join("plain");
            fs::write(&plain, "").unwrap();
            file.finish().unwrap();
            assert_eq!(mode(&path), mode(&plain));
        }
        #[cfg(not(unix))]
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let refused = OutputFile::create("--output", &path, REFUSED).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        OutputFile::create("--output", folder.path(), REFUSED).unwrap_err();
        // A file of somebody else beside it stays, whatever it is called.
        fs::write(folder.path().join("out.csv.part"), "precious").unwrap();
        OutputFile::create("--output", &path, Existing::Replaced).unwrap().finish().unwrap();
        assert_eq!(fs::read(folder.path().join("out.csv.part")).unwrap(), b"precious");
    }
}
