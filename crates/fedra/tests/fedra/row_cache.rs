//! Rows that were tokenised once are not tokenised again, and a cache changes no result.

use std::fs;
use std::path::{Path, PathBuf};

use fedra::client::{Examples, Shards};
use fedra::prepare::row_cache::RowCache;
use fedra::{Experiment, Overrides, Run};

fn experiment(sets: &[&str], cache: Option<&Path>) -> Experiment {
    let mut overrides = sets.iter().fold(Overrides::default(), |all, set| all.set(set));
    if let Some(cache) = cache {
        overrides = overrides.set(&format!("data.cache='{}'", cache.display()));
    }
    Experiment::from_toml(include_str!("../tiny.toml"), &overrides).expect("it is legal")
}

fn parts(shards: &Shards) -> Vec<Examples> {
    let clients = shards.clients.iter();
    let parts = clients.flat_map(|shard| [&shard.train, &shard.validation, &shard.test]);
    parts.chain([&shards.central_test]).cloned().collect()
}

fn prepared(sets: &[&str], cache: Option<&Path>) -> Vec<Examples> {
    let experiment = experiment(sets, cache);
    let run = Run::prepare(&experiment).expect("it is legal");
    parts(&run.prepared.shards)
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).expect("it is there");
    let all = all.map(|entry| entry.expect("it is readable").path());
    let mut found: Vec<PathBuf> =
        all.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

#[test]
fn rows_come_from_the_cache_where_nothing_changed_and_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, plain) = (Some(folder.path()), prepared(&[], None));
    assert_eq!(prepared(&[], cache), plain);
    let (rows, text) = (files(folder.path(), ".rows"), files(folder.path(), ".text"));
    assert_eq!((rows.len(), text.len()), (1, 1));
    assert_eq!(prepared(&[], cache), plain);
    assert_eq!(files(folder.path(), "").len(), 2);

    // What is there is what is taken: other tokens under the same name are the run's.
    let stem = rows[0].file_stem().unwrap().to_str().unwrap();
    let (key, kept) = (stem.parse().unwrap(), RowCache::new(folder.path()));
    let count: usize = plain.iter().map(Examples::len).sum();
    let mut sequences = kept.sequences(key, count).unwrap();
    sequences[0][0].ids[1] += 1;
    kept.keep_sequences(key, &sequences).unwrap();
    assert_ne!(prepared(&[], cache), plain);

    // And what is damaged is not.
    let mut bytes = fs::read(&rows[0]).unwrap();
    bytes[20] ^= 4;
    fs::write(&rows[0], &bytes).unwrap();
    assert_eq!(prepared(&[], cache), plain);
    assert_eq!(kept.sequences(key, count).map(|rows| rows.len()), Some(count));
}

#[test]
fn other_rows_lengths_or_pieces_are_prepared_anew() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path());
    prepared(&[], cache);
    for (sets, expected) in [
        (&["data.max_tokens=16"][..], 2),
        (&["model.vocabulary=180"], 3),
        (&["data.clinic.notes=25"], 4),
        // These decide about no token.
        (&["work.batch=4", "federation.rounds=9", "threads=1"], 4),
    ] {
        assert_eq!(prepared(sets, cache), prepared(sets, None), "{sets:?}");
        assert_eq!(files(folder.path(), ".rows").len(), expected, "{sets:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_costs_a_note_and_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let experiment = experiment(&[], Some(&gone));
    fs::remove_dir(&gone).unwrap();
    let run = Run::prepare(&experiment).unwrap();
    assert!(run.notes().any(|note| note.contains("data.cache: cannot write to")));
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let overrides = Overrides::default().set("data.cache=/nowhere/at/all");
    let refused = Experiment::from_toml(include_str!("../tiny.toml"), &overrides);
    let words = refused.unwrap_err().in_words();
    assert!(
        words.contains("data.cache") && words.contains("there is no file or folder"),
        "{words}"
    );
}
