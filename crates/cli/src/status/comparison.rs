//! How the runs of a comparison stand, a line each.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fedra::run_files::{COMPARISON, EXPERIMENT, SUMMARY};
use fedra::text::grid::counted;

use super::picture::{Picture, plain};

/// Folders of runs below that of a comparison, by name: `VARIANT/seed-N`, and deeper for those that tune.
pub fn runs(folder: &Path) -> Vec<PathBuf> {
    /// `VARIANT/tune/VALUES/seed-N`.
    const DEEPEST: usize = 4;
    fn gather(folder: &Path, name: &Path, runs: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let (path, name) = (entry.path(), name.join(entry.file_name()));
            let is_seed = entry.file_name().to_string_lossy().starts_with("seed-");
            if is_seed && path.join(EXPERIMENT).is_file() {
                runs.push(name);
            } else if name.components().count() < DEEPEST {
                gather(&path, &name, runs);
            }
        }
    }
    let mut runs = Vec::new();
    if !folder.join(EXPERIMENT).is_file() {
        gather(folder, Path::new(""), &mut runs);
    }
    // A folder above or below that of a comparison is none.
    runs.retain(|run| match run.components().count() {
        2 => true,
        DEEPEST => run.components().nth(1).is_some_and(|part| part.as_os_str() == "tune"),
        _ => false,
    });
    runs.sort();
    runs
}

/// How the runs of a comparison stand, a line each.
pub fn text(folder: &Path, runs: &[PathBuf]) -> String {
    let is_over = |run: &&PathBuf| folder.join(run).join(SUMMARY).is_file();
    let complete = runs.iter().filter(is_over).count();
    let doing = match (fedra::is_at_work(folder), folder.join(COMPARISON).is_file()) {
        (true, _) => "is running",
        (false, true) => "has finished",
        (false, false) => "stopped before its end: no process is running here",
    };
    let mut text = format!(
        "a comparison, which {doing}; {} so far, of which {complete} complete",
        counted(runs.len() as u64, "run")
    );
    for run in runs {
        let stands = match Picture::read(&folder.join(run)) {
            Ok(picture) => picture.headline(),
            Err(error) => format!("{error:#}"),
        };
        let _ = write!(text, "\n  {}  {}", plain(&run.display().to_string()), plain(&stands));
    }
    text
}
