//! Models are fetched, resumed, checked and found again, against a hub on this machine.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

#[expect(dead_code, reason = "other tests use the rest of it")]
mod server;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fedra_hub::{Fetched, Hub, HubError, ModelName, Progress};
use server::{COMMIT, FakeHub, Faults, git, sha256};
use tempfile::TempDir;

const NAME: &str = "hf:org/tiny";
const TOKEN: &str = "hf_secret";
/// Bytes of the weights: several pieces of a read.
const WEIGHTS: usize = 300_000;

fn files() -> BTreeMap<String, Vec<u8>> {
    let weights: Vec<u8> = (0..WEIGHTS).map(|byte| (byte * 31 % 251) as u8).collect();
    let files: [(&str, &[u8]); 9] = [
        ("config.json", b"{}"),
        ("tokenizer.json", &[b' '; 5000]),
        ("generation_config.json", b"{ }"),
        ("chat_template.jinja", b""),
        ("model.safetensors", &weights),
        ("pytorch_model.bin", b"pickle"),
        ("tf_model.h5", b"other"),
        ("README.md", b"words"),
        ("model.onnx", b"other"),
    ];
    files.into_iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect()
}

fn hub_at(endpoint: &str, home: &Path, more: &[(&str, &str)]) -> Hub {
    let home = home.to_str().unwrap();
    let variables = [("HF_HOME", home), ("HF_ENDPOINT", endpoint)];
    Hub::from_variables(&|name| {
        let mut all = variables.iter().chain(more);
        all.find(|(known, _)| *known == name).map(|(_, value)| value.into())
    })
    .unwrap()
    .with_pause(Duration::from_millis(1))
}

/// A hub with these files, and an empty home.
struct Place {
    server: FakeHub,
    home: TempDir,
}

impl Place {
    fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        Self { server: FakeHub::start("org/tiny", files), home: tempfile::tempdir().unwrap() }
    }

    fn new() -> Self {
        Self::with(files())
    }

    fn hub(&self, more: &[(&str, &str)]) -> Hub {
        hub_at(&self.server.endpoint, self.home.path(), more)
    }

    fn fetch(&self) -> Result<Fetched, HubError> {
        self.fetch_named(NAME)
    }

    fn fetch_named(&self, name: &str) -> Result<Fetched, HubError> {
        self.hub(&[]).fetch(&name.parse().unwrap(), &|_| true)
    }

    fn refused(&self) -> String {
        self.fetch().unwrap_err().to_string()
    }

    fn repository(&self) -> std::path::PathBuf {
        self.home.path().join("hub/models--org--tiny")
    }
}

fn name() -> ModelName {
    NAME.parse().unwrap()
}

#[test]
fn only_what_is_needed_is_fetched_and_lies_where_other_libraries_look() {
    let place = Place::new();
    let steps = RefCell::new(Vec::new());
    let follow = |step: Progress<'_>| {
        steps.borrow_mut().push((step.file.map(str::to_owned), step.done, step.total));
        true
    };
    let fetched = place.hub(&[]).fetch(&name(), &follow).unwrap();
    let wanted = [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ];
    let all = files();
    let size: u64 = wanted.iter().map(|file| all[*file].len() as u64).sum();
    assert_eq!((fetched.bytes, place.server.sent()), (size, size));
    assert_eq!(fetched.snapshot.name.to_string(), format!("{NAME}@{COMMIT}"));
    assert_eq!(fetched.endpoint, place.server.endpoint);
    let last = steps.borrow().last().cloned().unwrap();
    assert_eq!((last.1, last.2), (size, size));

    let repository = place.repository();
    let folder = repository.join("snapshots").join(COMMIT);
    assert_eq!(fetched.snapshot.folder, folder);
    let mut found: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, wanted);
    for file in wanted {
        assert_eq!(fs::read(folder.join(file)).unwrap(), all[file]);
        let is_large = ["model.safetensors", "tokenizer.json"].contains(&file);
        let hash = if is_large { sha256(&all[file]) } else { git(&all[file]) };
        let target = fs::read_link(folder.join(file)).unwrap();
        assert_eq!(target, Path::new("../../blobs").join(hash));
    }
    assert_eq!(fs::read_to_string(repository.join("refs/main")).unwrap(), COMMIT);
    assert!(repository.join(".no_exist").join(COMMIT).join("preprocessor_config.json").is_file());
    let incomplete =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains("incomplete");
    assert!(
        !fs::read_dir(repository.join("blobs")).unwrap().any(|entry| incomplete(&entry.unwrap()))
    );
}

#[test]
fn what_is_in_the_cache_costs_no_connection_with_and_without_offline_mode() {
    let place = Place::new();
    assert_eq!(place.hub(&[]).cached(&name()), None);
    assert!(place.server.asked().is_empty());
    let offline = [("HF_HUB_OFFLINE", "1")];
    let refused = place.hub(&offline).fetch(&name(), &|_| true).unwrap_err();
    assert!(matches!(refused, HubError::Offline { .. }), "{refused}");
    assert!(refused.to_string().contains("hf:org/tiny is not in the cache"), "{refused}");
    assert!(place.server.asked().is_empty());

    let snapshot = place.fetch().unwrap().snapshot;
    let requests = place.server.asked().len();
    let pinned = snapshot.name.clone();
    assert_eq!(place.hub(&offline).cached(&name()), Some(snapshot.clone()));
    assert_eq!(place.hub(&[]).cached(&pinned), Some(snapshot.clone()));
    assert_eq!(place.hub(&offline).fetch(&pinned, &|_| true).unwrap().bytes, 0);
    // A branch is what it was when it was last fetched.
    let unpinned = place.hub(&offline).fetch(&name(), &|_| true).unwrap();
    assert_eq!((unpinned.snapshot, unpinned.bytes), (snapshot.clone(), 0));
    assert_eq!(place.hub(&[]).fetch(&pinned, &|_| true).unwrap().files, 0);
    assert_eq!(place.server.asked().len(), requests);
    // A branch is asked for again, and the length of each of its five files; nothing of it is fetched twice.
    let sent = place.server.sent();
    assert_eq!(place.fetch().unwrap().bytes, 0);
    assert_eq!((place.server.asked().len(), place.server.sent()), (requests + 1 + 5, sent));
    // A server that is gone changes nothing.
    let Place { server, home } = place;
    let endpoint = server.endpoint.clone();
    drop(server);
    assert_eq!(hub_at(&endpoint, home.path(), &[]).cached(&name()), Some(snapshot.clone()));
    fs::remove_file(snapshot.folder.join("config.json")).unwrap();
    let alone = hub_at(&endpoint, home.path(), &offline);
    let refused = alone.fetch(&name(), &|_| true).unwrap_err().to_string();
    assert!(refused.contains("hf:org/tiny is incomplete in the cache"), "{refused}");
}

#[test]
fn a_broken_connection_is_resumed_and_no_byte_is_sent_twice() {
    let place = Place::new();
    let breaks = vec![100_000, 0, 50_000, 0, 0, 1];
    place.server.fail(Faults { breaks, ..Faults::default() });
    let fetched = place.fetch().unwrap();
    assert_eq!(fetched.bytes, place.server.sent());
    let asked = place.server.asked();
    let ranges: Vec<&str> = asked.iter().filter_map(|asked| asked.range.as_deref()).collect();
    assert!(!ranges.is_empty(), "{asked:?}");
    let needed = ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"];
    let size: usize = needed.iter().map(|file| files()[*file].len()).sum();
    assert_eq!(place.server.sent(), size as u64);
}

#[test]
fn a_download_that_was_stopped_goes_on_where_it_was() {
    let place = Place::new();
    let stops = |step: Progress<'_>| step.file != Some("model.safetensors") || step.done < 150_000;
    let stopped = place.hub(&[]).fetch(&name(), &stops).unwrap_err();
    assert!(stopped.is_stop(), "{stopped}");
    let all = files();
    let hash = sha256(&all["model.safetensors"]);
    let part = place.repository().join("blobs").join(format!("{hash}.incomplete"));
    let kept = fs::metadata(&part).unwrap().len();
    assert!(kept > 100_000 && kept < WEIGHTS as u64, "{kept}");
    // The branch does not yet stand for half a model.
    assert!(!place.repository().join("refs/main").exists());
    assert_eq!(place.hub(&[]).cached(&name()), None);
    let first = Cell::new(None);
    let follow = |step: Progress<'_>| {
        if step.file == Some("model.safetensors") && first.get().is_none() {
            first.set(Some(step.done));
        }
        true
    };
    let fetched = place.hub(&[]).fetch(&name(), &follow).unwrap();
    assert_eq!((fetched.files, fetched.bytes), (1, WEIGHTS as u64 - kept));
    assert_eq!(first.get(), Some(kept));
    assert!(!part.exists());
}

#[test]
fn a_part_of_other_content_is_thrown_away_and_fetched_again() {
    let place = Place::new();
    let blobs = place.repository().join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", sha256(&files()["model.safetensors"])));
    for (length, byte) in [(1000, 7_u8), (WEIGHTS, 7), (WEIGHTS + 1, 7)] {
        fs::write(&part, vec![byte; length]).unwrap();
        let folder = place.fetch().unwrap().snapshot.folder;
        assert_eq!(
            fs::read(folder.join("model.safetensors")).unwrap(),
            files()["model.safetensors"]
        );
        fs::remove_dir_all(place.repository()).unwrap();
        fs::create_dir_all(&blobs).unwrap();
    }
}

#[test]
fn files_of_the_cache_with_another_length_are_fetched_again() {
    for links in [true, false] {
        let place = Place::new();
        let more: &[(&str, &str)] = &[("HF_HUB_DISABLE_SYMLINKS", "1")];
        let hub = place.hub(if links { &[] } else { more });
        let folder = hub.fetch(&name(), &|_| true).unwrap().snapshot.folder;
        for file in ["model.safetensors", "config.json"] {
            // Through the link, where there is one.
            let cut = fs::OpenOptions::new().write(true).open(folder.join(file)).unwrap();
            cut.set_len(1).unwrap();
        }
        let again = hub.fetch(&name(), &|_| true).unwrap();
        assert_eq!((again.files, again.bytes), (2, WEIGHTS as u64 + 2), "links: {links}");
        for file in ["model.safetensors", "config.json"] {
            assert!(
                fs::read(folder.join(file)).unwrap() == files()[file],
                "{file}, links: {links}"
            );
        }
    }
}

#[test]
fn servers_without_ranges_or_with_wrong_ones_are_asked_for_everything() {
    for faults in [
        Faults { breaks: vec![90_000], ignores_ranges: true, ..Faults::default() },
        Faults { breaks: vec![90_000], wrong_ranges: 1, ..Faults::default() },
    ] {
        let place = Place::new();
        place.server.fail(faults);
        let folder = place.fetch().unwrap().snapshot.folder;
        assert_eq!(
            fs::read(folder.join("model.safetensors")).unwrap(),
            files()["model.safetensors"]
        );
    }
}

#[test]
fn a_wrong_hash_is_an_error_and_leaves_nothing() {
    let place = Place::new();
    place.server.fail(Faults { changes_content: true, ..Faults::default() });
    let refused = place.refused();
    assert!(refused.contains("found the hash") && refused.contains("removed"), "{refused}");
    let blobs = fs::read_dir(place.repository().join("blobs")).unwrap();
    let hashes = [sha256(&files()["model.safetensors"]), sha256(&files()["tokenizer.json"])];
    for blob in blobs {
        let blob = blob.unwrap().file_name().into_string().unwrap();
        assert!(!hashes.iter().any(|hash| blob.starts_with(hash)), "{blob}");
    }
    assert_eq!(place.hub(&[]).cached(&name()), None);
    // A tag that is no hash cannot be checked.
    place.server.fail(Faults { etag: Some("../../escaped".to_owned()), ..Faults::default() });
    assert!(place.refused().contains("nothing can be checked"), "{}", place.refused());
}

#[test]
fn sizes_that_are_absurd_or_not_kept_are_refused() {
    let place = Place::new();
    for (size, told) in [
        ("18446744073709551615", "expected at most"),
        ("-1", "found no size"),
        ("100", "more than the 100 bytes"),
    ] {
        place.server.fail(Faults { size: Some(size), ..Faults::default() });
        assert!(place.refused().contains(told), "{size}: {}", place.refused());
    }
    assert_eq!(place.hub(&[]).cached(&name()), None);
}

#[test]
fn the_token_goes_to_the_hub_and_to_nobody_else() {
    let place = Place::new();
    place.server.fail(Faults { token: Some(TOKEN), ..Faults::default() });
    place.hub(&[("HF_TOKEN", TOKEN)]).fetch(&name(), &|_| true).unwrap();
    let asked = place.server.asked();
    assert!(asked.iter().any(|asked| asked.at_storage));
    for asked in asked {
        assert_eq!(asked.token.is_some(), !asked.at_storage, "{asked:?}");
    }
}

#[test]
fn who_may_not_read_is_told_why() {
    let place = Place::new();
    let private = Faults { token: Some(TOKEN), code: "RepoNotFound", ..Faults::default() };
    place.server.fail(private.clone());
    let refused = place.refused();
    assert!(refused.contains("HF_TOKEN") && refused.contains("private or gated"), "{refused}");
    place.server.fail(Faults { code: "GatedRepo", ..private });
    let refused = place.refused();
    assert!(refused.contains("accept its terms at") && refused.contains("HF_TOKEN"), "{refused}");
    let hub = place.hub(&[("HF_TOKEN", "hf_other")]);
    let refused = hub.fetch(&name(), &|_| true).unwrap_err().to_string();
    assert!(
        refused.contains("the token has no access") && !refused.contains("hf_other"),
        "{refused}"
    );
    // It is not asked five times for what it refuses.
    assert_eq!(place.server.asked().len(), 3);
}

#[test]
fn a_missing_repository_revision_or_file_is_named() {
    let place = Place::new();
    let told = |name: &str| place.fetch_named(name).unwrap_err().to_string();
    assert!(told("hf:org/other").contains("org/other does not exist"), "{}", told("hf:org/other"));
    let revision = told("hf:org/tiny@v9");
    assert!(revision.contains("no revision \"v9\""), "{revision}");
    let listed = vec!["special_tokens_map.json".to_owned()];
    place.server.fail(Faults { listed, ..Faults::default() });
    assert!(place.refused().contains("lists special_tokens_map.json"), "{}", place.refused());
}

#[test]
fn a_busy_server_is_asked_again_and_a_dead_one_is_given_up() {
    let place = Place::new();
    place.server.fail(Faults { statuses: vec![429, 503, 500], ..Faults::default() });
    assert!(place.fetch().is_ok());
    let other = Place::new();
    other.server.fail(Faults { statuses: vec![503; 9], ..Faults::default() });
    let refused = other.refused();
    assert!(refused.contains("answered 503 to every attempt"), "{refused}");
    assert!(!refused.contains("cannot reach"), "{refused}");
    assert_eq!(other.server.asked().len(), 5);
    let broken = Place::new();
    broken.server.fail(Faults { breaks: [vec![7_000], vec![0; 9]].concat(), ..Faults::default() });
    let refused = broken.refused();
    assert!(
        refused.contains(" of 300000 of model.safetensors, in every attempt (it closed the"),
        "{refused}"
    );
    let closed = hub_at("http://127.0.0.1:1", other.home.path(), &[]);
    let refused = closed.fetch(&name(), &|_| true).unwrap_err().to_string();
    assert!(refused.starts_with("cannot reach http://127.0.0.1:1"), "{refused}");
}

#[test]
fn a_renamed_repository_is_followed_and_a_circle_is_not() {
    let place = Place::new();
    place.server.fail(Faults { old_name: Some("org/old"), ..Faults::default() });
    let fetched = place.fetch_named("hf:org/old").unwrap();
    assert_eq!(fetched.snapshot.name.to_string(), format!("hf:org/old@{COMMIT}"));
    let other = Place::new();
    let location = format!("{}/org/tiny/resolve/{COMMIT}/model.safetensors", other.server.endpoint);
    other.server.fail(Faults { location: Some(location), ..Faults::default() });
    assert!(other.refused().contains("redirects"), "{}", other.refused());
    for location in ["ftp://127.0.0.1/x", "https://user@127.0.0.1/x"] {
        other.server.fail(Faults { location: Some(location.to_owned()), ..Faults::default() });
        assert!(other.refused().contains("a redirect to "), "{}", other.refused());
    }
}

#[test]
fn names_that_climb_are_never_files() {
    let place = Place::new();
    let listed =
        ["../../escaped.json", "/etc/passwd", "a\\b.json", "onnx/model.onnx", "nul.json", "x\0y"];
    let listed = listed.map(str::to_owned).to_vec();
    place.server.fail(Faults { listed, ..Faults::default() });
    place.fetch().unwrap();
    // An index may not name them either.
    for shard in
        ["../../x.safetensors", "/x.safetensors", "absent.safetensors", "pytorch_model.bin"]
    {
        let mut files = files();
        files.remove("model.safetensors");
        let index = format!("{{\"weight_map\": {{\"a\": {shard:?}}}}}");
        files.insert("model.safetensors.index.json".to_owned(), index.into_bytes());
        let place = Place::with(files);
        let refused = place.refused();
        assert!(refused.contains("found the shard") && refused.contains("top folder"), "{refused}");
    }
}

#[test]
fn shards_are_fetched_by_their_index_and_a_missing_one_is_noticed() {
    let mut files = files();
    let weights = files.remove("model.safetensors").unwrap();
    for (number, half) in weights.chunks(WEIGHTS / 2).enumerate() {
        files.insert(format!("model-0000{}-of-00002.safetensors", number + 1), half.to_vec());
    }
    files.insert("other.safetensors".to_owned(), weights);
    let map = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    files.insert("model.safetensors.index.json".to_owned(), map.as_bytes().to_vec());
    let place = Place::with(files);
    let folder = place.fetch().unwrap().snapshot.folder;
    assert!(!folder.join("other.safetensors").exists());
    assert!(place.hub(&[]).cached(&name()).is_some());
    fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    assert_eq!(place.hub(&[]).cached(&name()), None);
    // Its content is still in the cache.
    assert_eq!(place.fetch().unwrap().bytes, 0);
    assert!(place.hub(&[]).cached(&name()).is_some());
}

#[test]
fn adapters_are_fetched_without_a_model() {
    let adapter = [("adapter_config.json", &b"{}"[..]), ("adapter_model.safetensors", b"abc")];
    let adapter: BTreeMap<_, _> =
        adapter.into_iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect();
    let place = Place::with(adapter);
    place.fetch().unwrap();
    assert!(place.hub(&[]).cached(&name()).is_some());
}

#[test]
fn pickles_and_repositories_without_a_model_are_refused() {
    let only = |names: &[&str]| {
        let files = names.iter().map(|name| ((*name).to_owned(), b"{}".to_vec())).collect();
        Place::with(files).refused()
    };
    let pickle = only(&["config.json", "pytorch_model.bin"]);
    assert!(pickle.contains("can run code") && pickle.contains("model.safetensors"), "{pickle}");
    assert!(only(&["config.json", "x.gguf"]).contains("only GGUF"));
    assert!(only(&["README.md"]).contains("no config.json"));
    assert!(only(&["config.json"]).contains("no weights"));
    assert!(only(&["adapter_config.json", "adapter_model.bin"]).contains("can run code"));
}

#[test]
fn a_model_without_tokenizer_is_complete_once_that_is_known() {
    let mut files = files();
    files.remove("tokenizer.json");
    let place = Place::with(files);
    place.fetch().unwrap();
    assert!(place.hub(&[]).cached(&name()).is_some());
    // Another library that fetched only the weights left no such note.
    fs::remove_dir_all(place.repository().join(".no_exist")).unwrap();
    assert_eq!(place.hub(&[]).cached(&name()), None);
}

#[test]
fn without_links_files_lie_in_the_snapshot_itself() {
    let place = Place::new();
    let hub = place.hub(&[("HF_HUB_DISABLE_SYMLINKS", "1")]);
    let folder = hub.fetch(&name(), &|_| true).unwrap().snapshot.folder;
    let weights = folder.join("model.safetensors");
    assert!(!fs::symlink_metadata(&weights).unwrap().is_symlink());
    assert_eq!(fs::read(&weights).unwrap(), files()["model.safetensors"]);
    assert!(hub.cached(&name()).is_some());
    assert_eq!(hub.fetch(&name(), &|_| true).unwrap().bytes, 0);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let place = Place::new();
    // A file where the folder should be, which refuses even an administrator.
    fs::write(place.home.path().join("hub"), "").unwrap();
    let refused = place.refused();
    assert!(refused.starts_with("cannot make the folder") && refused.contains("hub"), "{refused}");
}

/// Run by the next test in processes of their own.
#[test]
fn fetches_for_another_test() {
    let (Ok(endpoint), Ok(home)) = (std::env::var("FAKE_HUB"), std::env::var("FAKE_HOME")) else {
        return;
    };
    let fetched = hub_at(&endpoint, Path::new(&home), &[]).fetch(&name(), &|_| true).unwrap();
    let found = fs::read(fetched.snapshot.folder.join("model.safetensors")).unwrap();
    assert_eq!(found, files()["model.safetensors"]);
}

#[test]
fn processes_that_fetch_the_same_model_at_once_fetch_it_once() {
    let place = Place::new();
    let program = std::env::current_exe().unwrap();
    let start = || {
        Command::new(&program)
            .args(["--exact", "fetches_for_another_test"])
            .env("FAKE_HUB", &place.server.endpoint)
            .env("FAKE_HOME", place.home.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut processes: Vec<_> = (0..4).map(|_| start()).collect();
    assert!(processes.iter_mut().all(|process| process.wait().unwrap().success()));
    let needed = ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"];
    let size: usize = needed.iter().map(|file| files()[*file].len()).sum();
    assert_eq!(place.server.sent(), size as u64);
}
