//! Models of a hub that a test makes: commands fetch what they lack, once, and name what they used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::place::{Place, text};
use crate::server::{COMMIT, FakeHub, Faults};

const NAME: &str = "hf:org/tiny";

/// A place with a hub that has the model of a run, and what a run without a hub came to.
struct WithHub {
    place: Place,
    hub: Option<FakeHub>,
    endpoint: String,
}

fn pinned() -> String {
    format!("{NAME}@{COMMIT}")
}

fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

/// The tiny experiment with a model in the place of its preset.
fn with_model(path: &str) -> String {
    let text = include_str!("../../../fedra/tests/tiny.toml");
    let (before, after) = text.split_once("preset = ").unwrap();
    let (_, after) = after.split_once("vocabulary = 200\n").unwrap();
    format!("{before}path = {path:?}\n{after}")
}

impl WithHub {
    fn new() -> Self {
        let place = Place::new();
        place.succeed(&[
            "run",
            "tiny.toml",
            "--out",
            "base",
            "--quiet",
            "--set",
            "federation.rounds=1",
        ]);
        let hub = FakeHub::start("org/tiny", files_of(&place.path("base/model")));
        let endpoint = hub.endpoint.clone();
        fs::write(place.path("hub.toml"), with_model(NAME)).unwrap();
        Self { place, hub: Some(hub), endpoint }
    }

    fn hub(&self) -> &FakeHub {
        self.hub.as_ref().unwrap()
    }

    fn command(&self, arguments: &[&str], more: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.current_dir(self.place.folder.path()).args(arguments);
        for variable in
            ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "COLUMNS"]
        {
            command.env_remove(variable);
        }
        command.env("HF_HOME", self.place.path("home")).env("HF_ENDPOINT", &self.endpoint);
        command.envs(more.iter().copied()).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.command(arguments, &[]);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], more: &[(&str, &str)]) -> String {
        let output = self.command(arguments, more);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }
}

#[test]
fn a_run_fetches_its_model_names_the_commit_and_repeats_offline_to_the_bit() {
    let mut with = WithHub::new();
    // What only looks makes no connection.
    for command in ["plan", "data"] {
        let refused = with.refused(&[command, "hub.toml"], &[]);
        let told = format!("model.path: {NAME} is not in the Hugging Face cache");
        assert!(refused.contains(&told), "{refused}");
        assert!(refused.contains(&format!("hint: fedra fetch {NAME} fetches it")), "{refused}");
    }
    let offline = with.refused(&["run", "hub.toml"], &[("HF_HUB_OFFLINE", "1")]);
    assert!(offline.contains("HF_HUB_OFFLINE forbids to fetch it"), "{offline}");
    assert!(with.hub().asked().is_empty());

    let (_, said) = with.succeed(&["run", "hub.toml", "--out", "first"]);
    let announced = format!("note: fetching {NAME} from {}", with.endpoint);
    let fetched = format!("of {} from {} into ", pinned(), with.endpoint);
    assert!(said.contains(&announced) && said.contains(&fetched), "{said}");
    let written = fs::read_to_string(with.place.path("first/experiment.toml")).unwrap();
    assert!(written.contains(&format!("path = \"{}\"", pinned())), "{written}");
    let requests = with.hub().asked().len();
    with.succeed(&["plan", "hub.toml"]);
    with.succeed(&["run", "first/experiment.toml", "--out", "second", "--quiet"]);
    assert_eq!(with.hub().asked().len(), requests);

    with.hub = None;
    let (_, said) = with.succeed(&["run", "hub.toml", "--out", "third"]);
    assert!(!said.contains("fetch"), "{said}");
    assert_eq!(with.place.weights("first"), with.place.weights("second"));
    assert_eq!(with.place.weights("first"), with.place.weights("third"));
    // The same as from the folder that the hub's files came from.
    fs::write(with.place.path("folder.toml"), with_model("base/model")).unwrap();
    with.succeed(&["run", "folder.toml", "--out", "fourth", "--quiet"]);
    assert_eq!(with.place.weights("first"), with.place.weights("fourth"));
}

#[test]
fn init_writes_the_commit_and_a_cached_model_is_found_by_its_name() {
    let with = WithHub::new();
    let row = |row: usize| format!("chest pain number {row},{}", row % 2);
    let rows = (0..40).map(row).collect::<Vec<_>>().join(
        "
",
    );
    fs::write(with.place.path("n.csv"), format!("text,label\n{rows}\n")).unwrap();
    let (toml, said) = with.succeed(&["init", "n.csv", "--yes", "--model", NAME, "--out", "-"]);
    let path = format!("path = \"{}\"", pinned());
    assert!(toml.contains(&path) && said.contains("note: fetched"), "{toml}{said}");
    let requests = with.hub().asked().len();
    let (toml, said) = with.succeed(&["init", "n.csv", "--yes", "--out", "-"]);
    assert!(toml.contains(&path) && said.contains("org/tiny (cached)"), "{toml}{said}");
    assert!(
        said.lines().any(|line| line.contains("org/tiny") && line.ends_with("proposed")),
        "{said}"
    );
    assert_eq!(with.hub().asked().len(), requests);
}

#[test]
fn commands_with_a_model_flag_fetch_it_and_fetch_prints_the_name_to_write_down() {
    let with = WithHub::new();
    let (answers, said) = with.succeed(&["predict", "--model", NAME, "--text", "no chest pain"]);
    assert!(answers.contains("\"text\"") && said.contains("note: fetched"), "{answers}{said}");
    let sent = with.hub().sent();
    let (name, said) = with.succeed(&["fetch", NAME]);
    assert_eq!(name.trim(), pinned());
    assert!(said.contains("nothing had to be fetched"), "{said}");
    assert_eq!(with.hub().sent(), sent);
    with.succeed(&["evaluate", "--model", &pinned(), "hub.toml"]);
    with.succeed(&[
        "compare",
        "hub.toml",
        "--seeds",
        "1",
        "--set",
        "federation.rounds=1",
        "--quiet",
    ]);
    assert_eq!(with.hub().sent(), sent);
    let run = fs::read_dir(with.place.path("runs")).unwrap().next().unwrap().unwrap().path();
    assert!(run.is_dir());

    for (name, told) in [
        ("hf:org/absent", "does not exist"),
        ("hf:org/../x", "expected hf:ORG/NAME"),
        ("hf:org/tiny@v9", "no revision \"v9\""),
    ] {
        let refused = with.refused(&["predict", "--model", name, "--text", "x"], &[]);
        assert!(refused.contains(told), "{refused}");
    }
    let gated = Faults { token: Some("hf_right"), code: "GatedRepo", ..Faults::default() };
    with.hub().fail(gated);
    let refused = with.refused(&["fetch", NAME], &[("HF_TOKEN", "hf_wrong")]);
    assert!(refused.contains("accept its terms") && !refused.contains("hf_wrong"), "{refused}");
    let output = with.command(&["fetch", NAME], &[("HF_TOKEN", "hf_right")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn adapters_of_a_run_name_their_base_as_the_hub_does() {
    let with = WithHub::new();
    let lora = ["--set", "model.lora.rank=2", "--set", "federation.rounds=1"];
    with.succeed(&[&["run", "hub.toml", "--out", "lora", "--quiet"], &lora[..]].concat());
    let config = fs::read_to_string(with.place.path("lora/adapter/adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["base_model_name_or_path"], "org/tiny");
    assert_eq!(config["revision"], COMMIT);
    let adapter = ["predict", "--model", "lora/adapter", "--text", "no chest pain"];
    let requests = with.hub().asked().len();
    with.succeed(&adapter);
    // Without its base in the cache nobody asked to fetch it.
    fs::remove_dir_all(with.place.path("home")).unwrap();
    let refused = with.refused(&adapter, &[]);
    assert!(refused.contains(&format!("--base {}", pinned())), "{refused}");
    assert_eq!(with.hub().asked().len(), requests);
    with.succeed(&[&adapter[..], &["--base", &pinned()]].concat());
}
