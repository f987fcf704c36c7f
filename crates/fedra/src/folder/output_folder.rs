//! Whether a run may begin in a folder.
//!
//! A result may be hours of work, so a folder that holds one is refused unless somebody says that
//! it may be replaced, and even then only what a run wrote is taken for a run: its files are read,
//! because names prove nothing. Folders in which our names stand without one (a `model/` of
//! somebody's own) are refused whatever is said. Folders with other files alone are refused until somebody
//! says that a run may begin among them: a mistyped path would fill a home folder.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use fedra_engine::RoundReport;
use fedra_privacy::{Ledger, shown};

use crate::config::{ConfigError, Experiment, ModelSource};
use crate::error::occupied::{Forced, Occupied, ResumedBy};
use crate::error::{Context, Error, Result, refuse};
use crate::folder::lock::{self, Lock};
use crate::folder::summary::Summary;
use crate::folder::{json_file, regular_file, run_folder};
use crate::prepare::fingerprint::Inputs;
use crate::prepare::partitioned_data::PartitionedData;
use crate::run_files::{
    CHECKPOINT, COMPARISON, EARLY, EXPERIMENT, FILES, FOLDERS, LEDGER, ROUNDS, SCRATCH, SITES,
    SUMMARY, TENSORBOARD,
};
use crate::text::grid::joined;

/// How a checkpoint of any version begins.
const CHECKPOINT_MAGIC: [u8; 4] = *b"FDCK";

/// What may be written over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverwritePolicy {
    /// Nothing.
    Nothing,
    /// An earlier run of the same name: a command that keeps its own folder begins again.
    Namesake,
    /// Any run.
    AnyRun,
}

/// Refuses a folder in which the experiment may not begin.
pub fn check(path: &Path, experiment: &Experiment, over: OverwritePolicy) -> Result<()> {
    Lock::check(path)?;
    check_held(path, experiment, over)
}

/// The same for a folder whose lock is held by this process.
pub fn check_held(path: &Path, experiment: &Experiment, over: OverwritePolicy) -> Result<()> {
    let shown = path.display();
    if path.exists() && !path.is_dir() {
        refuse!("found the file {shown}, expected a folder");
    }
    run_folder::check_model(path)?;
    let has = |name: &str| path.join(name).exists();
    // Events of other programs stay beside ours; only those of a run are anybody's result here.
    let events = || (!run_folder::event_files(path).is_empty()).then_some(TENSORBOARD);
    let mut names = FILES.into_iter().chain(FOLDERS).filter(|name| has(name));
    let Some(found) = names.next().or_else(events) else {
        return check_foreign(path, over);
    };
    let same = is_written(path, experiment);
    let begun_only = FOLDERS.iter().chain(&[SUMMARY, CHECKPOINT]).all(|name| !has(name));
    if same && begun_only {
        // Not one round was complete, so nothing is lost.
        return Ok(());
    }
    let free = next_free(path);
    if !holds_run(path, begun_only) {
        let found = match damage(path) {
            Some(damage) => format!("{EXPERIMENT} in {shown} with {damage}"),
            None => format!("{found} in {shown} but no run that wrote it"),
        };
        refuse!("found {found}, expected a free folder\nhint: {} is free", free.display());
    }
    check_model(path, experiment)?;
    match over {
        OverwritePolicy::AnyRun => return Ok(()),
        OverwritePolicy::Namesake if name_in(path).as_ref() == Some(&experiment.name) => {
            return Ok(());
        }
        OverwritePolicy::Namesake => {
            refuse!("{shown} contains a run of another experiment")
        }
        OverwritePolicy::Nothing => {}
    }
    let (is_complete, is_served) = (has(SUMMARY), has(SITES));
    let kind = match (is_complete, is_served) {
        (true, _) => "a complete run",
        (false, true) => "an unfinished run over a network",
        (false, false) => "an unfinished run",
    };
    let (whose, may_go_on) = match (same, is_served) {
        (false, _) => (String::new(), true),
        // A server has no rows that it could compare.
        (true, true) => (" of the same file".to_owned(), true),
        (true, false) => whose(path, experiment),
    };
    let how = if is_served { ResumedBy::Serve } else { ResumedBy::Resume };
    let resumed_by = (may_go_on && !is_complete).then_some(how);
    let (folder, found) = (path.to_owned(), format!("{kind}{whose}"));
    let forced = Forced::Replaced;
    Err(Error::Occupied(Box::new(Occupied { folder, found, resumed_by, forced, free })))
}

/// Refuses a folder with files of no run, unless a run may begin among them.
fn check_foreign(path: &Path, over: OverwritePolicy) -> Result<()> {
    let foreign = foreign(path)?;
    let Some(name) = foreign.first() else { return Ok(()) };
    match over {
        OverwritePolicy::AnyRun => Ok(()),
        OverwritePolicy::Namesake => refuse!(
            "found {name} and no run in {}, expected an empty folder or one of an earlier run",
            path.display()
        ),
        OverwritePolicy::Nothing => {
            let found = format!("{name} and no run");
            let (folder, free, resumed_by) = (path.to_owned(), next_free(path), None);
            let forced = Forced::Kept;
            Err(Error::Occupied(Box::new(Occupied { folder, found, resumed_by, forced, free })))
        }
    }
}

/// Refuses a folder in which runs shall have folders of their own: a single run's, and one with other
/// files that has none of theirs. `what` is what makes them.
pub fn check_for_several(path: &Path, what: &str) -> Result<(), ConfigError> {
    let shown = path.display();
    ConfigError::new("out", format_args!("the file {shown}"), "a folder")
        .when(path.exists() && !path.is_dir())?;
    let problem = format!("{shown} contains a run; name a folder for {what}");
    ConfigError::sentence("out", problem).when(path.join(EXPERIMENT).exists())?;
    let refused = |error: Error| ConfigError::sentence("out", error);
    if path.join(COMPARISON).exists() || holds_runs(path) {
        return Ok(());
    }
    let foreign = foreign(path).map_err(refused)?;
    let Some(name) = foreign.first() else { return Ok(()) };
    let free = next_free(path);
    let problem = format!("{shown} contains {name} and no run; name an empty folder for {what}");
    Err(ConfigError::sentence("out", problem).with_hint(format_args!("{} is free", free.display())))
}

/// Whether a folder holds runs as a comparison or the quickstart puts them there: of a name, of a variant and a
/// seed, or of what a variant is tuned with.
fn holds_runs(path: &Path) -> bool {
    let is_run = |path: &PathBuf| path.join(EXPERIMENT).exists();
    let deeper = |path: &PathBuf| folders_in(path).iter().any(is_run);
    let is_tuned = |path: &PathBuf| folders_in(&path.join("tune")).iter().any(deeper);
    let own = folders_in(path);
    own.iter().any(is_run) || own.iter().any(deeper) || own.iter().any(is_tuned)
}

fn folders_in(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

/// What a folder holds that no run left there, by name; hidden files are nobody's result.
fn foreign(path: &Path) -> Result<Vec<String>> {
    let reading = || format!("cannot read {}", path.display());
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(reading),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.with_context(reading)?.file_name().to_string_lossy().into_owned();
        let is_left = [lock::FILE, SCRATCH, EARLY].contains(&name.as_str());
        if !is_left && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whose run a folder holds of a file with the same words, and whether the experiment could go on with it: it
/// compares what the run began with and what the experiment would begin with now. Data that cannot be read are
/// the run's to complain about.
fn whose(path: &Path, experiment: &Experiment) -> (String, bool) {
    let unknown = (" of the same file".to_owned(), true);
    let Ok(Some(held)) = run_folder::Folder::inputs(path) else { return unknown };
    let now = PartitionedData::of(experiment).and_then(|rows| Inputs::of(experiment, &rows));
    let Ok(now) = now else { return unknown };
    let changes: Vec<&str> = held.changes(&now).iter().map(|change| change.what).collect();
    if changes.is_empty() {
        return (" of this very experiment".to_owned(), true);
    }
    (format!(" of the same file with other {}", joined(&changes, "and")), false)
}

/// What a person should know before a private run is replaced: its ledger goes, and what it spent stays spent.
pub fn forgotten_ledger(path: &Path) -> Option<String> {
    let lines = BufReader::new(fs::File::open(path.join(LEDGER)).ok()?);
    let ledger = Ledger::read(lines, None).ok().filter(|ledger| !ledger.events().is_empty())?;
    let spent = shown::up(ledger.spent().map_or(f64::INFINITY, |spent| spent.pld), 3);
    Some(format!(
        "warning: the private run in {} is replaced, and its ledger with it: the epsilon of {spent} that it \
         spent on its rows remains spent, and the epsilons of runs on the same rows add up",
        path.display()
    ))
}

/// Whether a run wrote what the folder holds: its experiment can be read, and so can its summary,
/// the first line of its log or the start of its checkpoint. Where it has only begun, an empty log
/// will do: there is nothing else to lose.
fn holds_run(path: &Path, begun_only: bool) -> bool {
    let text = |name: &str| regular_file::read_to_string(&path.join(name)).ok();
    let open = |name: &str| regular_file::open(&path.join(name)).map(BufReader::new);
    let summed = || json_file::read::<Summary>(&path.join(SUMMARY), "summary").is_ok();
    let logged = || {
        let mut line = String::new();
        match open(ROUNDS).and_then(|mut log| log.read_line(&mut line)) {
            Ok(0) => begun_only,
            Ok(_) => serde_json::from_str::<RoundReport>(&line).is_ok(),
            Err(_) => false,
        }
    };
    let kept = || {
        let mut start = [0; 4];
        let read = open(CHECKPOINT).and_then(|mut checkpoint| checkpoint.read_exact(&mut start));
        read.is_ok() && start == CHECKPOINT_MAGIC
    };
    let spelt = text(EXPERIMENT).is_some_and(|experiment| Experiment::is_spelt(&experiment));
    spelt && (summed() || logged() || kept())
}

/// What is wrong with the folder's experiment, where it has one that nobody can read.
fn damage(path: &Path) -> Option<String> {
    let file = path.join(EXPERIMENT);
    let text = match regular_file::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return Some(format!("content that cannot be read ({error})")),
    };
    match text.parse::<toml::Table>() {
        Err(error) => Some(format!("TOML that cannot be read ({})", error.message())),
        Ok(_) if Experiment::is_spelt(&text) => None,
        Ok(_) => Some("keys that no experiment has".to_owned()),
    }
}

/// Whether the folder's experiment is, to the letter, the one that would be written.
fn is_written(path: &Path, experiment: &Experiment) -> bool {
    let held = fs::read_to_string(path.join(EXPERIMENT));
    matches!((held, experiment.to_toml()), (Ok(held), Ok(new)) if held == new)
}

/// A run may not replace the model that it starts from.
fn check_model(path: &Path, experiment: &Experiment) -> Result<(), ConfigError> {
    let ModelSource::Folder(model) = &experiment.model else { return Ok(()) };
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let adapter = experiment.raw.model.adapter.as_ref().map(|path| ("model.adapter", path));
    for (key, model) in [("model.path", model)].into_iter().chain(adapter) {
        let expected = "a model outside of the folder that the run writes to";
        ConfigError::new(key, model.display(), expected)
            .when(FOLDERS.iter().any(|name| real(model) == real(&path.join(name))))?;
    }
    Ok(())
}

fn name_in(path: &Path) -> Option<String> {
    let table: toml::Table = fs::read_to_string(path.join(EXPERIMENT)).ok()?.parse().ok()?;
    table.get("name")?.as_str().map(str::to_owned)
}

/// The folder's name with the first number behind it that is not taken.
fn next_free(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| "run".to_owned());
    let numbered = |number: u32| path.with_file_name(format!("{name}-{number}"));
    (2..=u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use crate::run_files::MODEL;

    #[test]
    fn several_runs_have_a_folder_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let told = |name: &str| check_for_several(&place.path().join(name), "the comparison");
        fs::create_dir_all(place.path().join("mine")).unwrap();
        for accepted in ["absent", "mine"] {
            told(accepted).unwrap();
        }
        // What hides is nobody's result.
        fs::write(place.path().join("mine/.gitkeep"), "").unwrap();
        told("mine").unwrap();
        fs::write(place.path().join("mine/keep.txt"), "mine").unwrap();
        let refused = told("mine").unwrap_err().to_string();
        assert!(refused.contains("mine contains keep.txt and no run"), "{refused}");
        assert!(refused.contains("mine-2 is free"), "{refused}");
        // A comparison that was stopped has runs and no tables yet.
        for run in ["mine/fedavg/tune/rate=1/seed-1", "mine/fedavg/seed-1"] {
            fs::create_dir_all(place.path().join(run)).unwrap();
            told("mine").unwrap_err();
            fs::write(place.path().join(run).join(EXPERIMENT), "").unwrap();
            told("mine").unwrap();
            if run.contains("tune") {
                fs::remove_dir_all(place.path().join("mine/fedavg")).unwrap();
            }
        }
        let refused = told("mine/fedavg/seed-1").unwrap_err().to_string();
        assert!(refused.contains("contains a run"), "{refused}");
    }

    #[test]
    fn a_namesake_may_be_replaced_and_the_model_that_is_started_from_may_not() {
        let named = |name: &str| {
            let sets = vec![format!("name={name}")];
            let text = include_str!("../../tests/tiny.toml");
            Experiment::from_text(text, "tiny.toml", "tiny", &Overrides::new(sets, None)).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let first = named("quickstart-fedavg");
        fs::write(folder.path().join(EXPERIMENT), first.to_toml().unwrap()).unwrap();
        let summary = serde_json::to_string(&Summary::of_nothing(3)).unwrap();
        fs::write(folder.path().join(SUMMARY), summary).unwrap();
        assert!(check(folder.path(), &first, OverwritePolicy::Namesake).is_ok());
        assert!(check(folder.path(), &first, OverwritePolicy::Nothing).is_err());
        assert!(check(folder.path(), &named("other"), OverwritePolicy::Namesake).is_err());
        assert!(check(folder.path(), &named("other"), OverwritePolicy::AnyRun).is_ok());

        let mut second = named("other");
        second.model = ModelSource::Folder(folder.path().join(MODEL));
        let refused = check(folder.path(), &second, OverwritePolicy::AnyRun).unwrap_err();
        assert!(refused.to_string().starts_with("model.path: found"), "{refused}");
    }
}
