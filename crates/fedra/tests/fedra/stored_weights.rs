//! Runs whose frozen weights are stored as bf16, int8 or int4: adapters learn on top of them, with every method.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedra::apply::evaluate::EvaluationData;
use fedra::apply::predict::Prediction;
use fedra::apply::trained_model::WhichRound;
use fedra::client::Observer;
use fedra::compute::WeightFormat;
use fedra::data::Body;
use fedra::engine::ClientId;
use fedra::listener::{Event, Rounds};
use fedra::{Ending, Experiment, Listener, ModelChoice, Output, Overrides, Silent, TrainedModel};
use serde_json::{Value, json};

use crate::encoder_place;

const ROUNDS: u32 = 3;
const ROWS: usize = 48;
const FORMATS: [&str; 3] = ["bf16", "int8", "int4"];

fn place() -> tempfile::TempDir {
    encoder_place::with_rows(ROWS, &["east", "west"])
}

fn experiment(place: &Path, sets: &[&str]) -> Experiment {
    let (rows, base) = (place.join("rows.jsonl"), place.join("base"));
    let text = format!(
        "seed = 5\n[data]\ntask = 'classes'\nsource = 'jsonl'\npath = '{}'\n\
         labels = ['heart', 'lung', 'skin']\nmax_tokens = 16\n\
         shares = {{ central = 0.25, validation = 0.0, test = 0.0 }}\n[model]\npath = '{}'\n\
         [federation]\nrounds = {ROUNDS}\n[work]\nbatch = 8\nmax_steps = 2\n\
         optimiser = {{ name = 'adamw', rate = 0.01 }}\n[evaluate]\npredictions = true\n",
        rows.display(),
        base.display(),
    );
    let sets = sets.iter().fold(Overrides::default(), |sets, set| sets.set(set));
    Experiment::from_toml(&text, &sets).unwrap()
}

/// Adapters over weights in a format, and what is set besides.
fn adapted(place: &Path, format: &str, more: &[&str]) -> Experiment {
    let weights = format!("model.weights='{format}'");
    experiment(place, &[&["model.lora.rank=2", weights.as_str()], more].concat())
}

fn run(place: &Path, name: &str, experiment: &Experiment) -> (PathBuf, fedra::Summary) {
    let folder = place.join(name);
    let ending = fedra::run(experiment, &Output::new(&folder), &Silent)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    (folder, ending.complete().unwrap())
}

fn adapter(run: &Path) -> Vec<u8> {
    fs::read(run.join("adapter/adapter_model.safetensors")).unwrap()
}

/// Stops after the first round.
#[derive(Default)]
struct Impatient(Cell<bool>);

impl Listener for Impatient {
    fn hear(&self, event: Event<'_>) {
        if let Event::Round(_) = event {
            self.0.set(true);
        }
    }

    fn begin(&self, _rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        Arc::new(fedra::client::Silent)
    }

    fn stops(&self) -> bool {
        self.0.get()
    }
}

#[test]
fn a_run_over_stored_weights_leaves_adapters_that_answer_over_the_same_weights_as_it_scored() {
    let place = place();
    let (_, in_f32) = run(place.path(), "f32", &adapted(place.path(), "f32", &[]));
    assert_eq!(in_f32.model.as_deref(), Some("model"));
    for format in FORMATS {
        let experiment = adapted(place.path(), format, &[]);
        let (folder, summary) = run(place.path(), format, &experiment);
        assert_eq!(summary.model.as_deref(), Some("adapter"));
        assert!(!folder.join("model").exists() && folder.join("adapter").is_dir());
        assert_ne!(summary.scores, in_f32.scores, "{format}: other weights");
        let choice = ModelChoice {
            path: folder.clone(),
            round: WhichRound::Last,
            base: None,
            weights: None,
        };
        let folders = choice.folders().unwrap();
        assert_eq!(folders.weights.name(), format);
        let trained = TrainedModel::open(&folders).unwrap();
        assert_eq!(trained.model.storage().format().name(), format);
        let noted = fs::read_to_string(folder.join("predictions.jsonl")).unwrap();
        assert!(noted.lines().count() > 5);
        for line in noted.lines() {
            let noted: Value = serde_json::from_str(line).unwrap();
            let row = noted["row"].as_u64().unwrap() as usize - 1;
            let body = Body::Text(encoder_place::texts().swap_remove(row));
            let answer = trained.predict(&[body], 0.5).unwrap().remove(0);
            let Prediction::One { labels, .. } = answer.unwrap() else { panic!("one label") };
            assert_eq!(json!(labels[0].label), noted["predicted"], "{format}, row {row}");
            let probability = noted["probability"].as_f64().unwrap();
            assert!((labels[0].probability - probability).abs() < 1e-5, "{format}, row {row}");
        }
        let data = EvaluationData::Experiment(Box::new(experiment));
        let report = fedra::evaluate(&choice, &data, None, &Silent).unwrap();
        let (found, expected) =
            (report.sets["central_test"].scores["loss"], summary.scores["central_test"]["loss"]);
        assert!((found - expected).abs() < 1e-6, "{format}: {found} and {expected}");
        let other = ModelChoice { weights: Some(WeightFormat::F32), ..choice };
        let report = fedra::evaluate(&other, &data, None, &Silent).unwrap();
        assert_ne!(report.sets["central_test"].scores["loss"], found, "{format}");
    }
}

#[test]
fn a_run_over_stored_weights_resumes_to_the_same_bytes_and_not_over_others() {
    let place = place();
    for (format, other) in [("int4", "int8"), ("int8", "f32"), ("bf16", "int4")] {
        let experiment = adapted(place.path(), format, &[]);
        let (whole, _) = run(place.path(), format, &experiment);
        let parts = place.path().join(format!("{format}-parts"));
        let ending = fedra::run(&experiment, &Output::new(&parts), &Impatient::default()).unwrap();
        assert!(matches!(ending, Ending::Interrupted { rounds: 1, of: ROUNDS }));
        let file = parts.join("experiment.toml");
        let text = fs::read_to_string(&file).unwrap();
        let line = format!("weights = \"{format}\"");
        assert!(text.contains(&line), "{text}");
        fs::write(&file, text.replace(&line, &format!("weights = \"{other}\""))).unwrap();
        let refused = fedra::resume(&parts, &fedra::Machine::default(), &Silent).err().unwrap();
        assert!(refused.in_words().contains("other weights"), "{}", refused.in_words());
        fs::write(&file, text).unwrap();
        fedra::resume(&parts, &fedra::Machine::default(), &Silent).unwrap();
        assert!(adapter(&parts) == adapter(&whole), "{format}: resumed to other adapters");
    }
}

#[test]
fn a_cut_and_blocks_of_choice_and_privacy_work_over_stored_weights() {
    let place = place();
    for format in FORMATS {
        let with = |name: &str, more: &[&str]| {
            let name = format!("{format}-{name}");
            run(place.path(), &name, &adapted(place.path(), format, more))
        };
        let (whole, uncut) = with("whole", &[]);
        for mode in ["sequential", "batched", "replicated"] {
            let split = format!("split={{ first = 1, last = 1, mode = '{mode}' }}");
            let (folder, cut) = with(mode, &[&split]);
            // A server copy for each client, averaged like adapters, is what FedAvg does; other modes take other steps.
            let is_fedavg = mode == "replicated";
            assert_eq!(adapter(&folder) == adapter(&whole), is_fedavg, "{format}, {mode}");
            assert!(cut.scores["central_test"]["loss"].is_finite());
        }
        let (_, split) = with("cut", &["split={ first = 1, last = 1 }"]);
        assert!(split.bytes.crossing.hidden_up.0 > 0, "{format}: rows crossed");
        let (_, safl) = with("safl", &["method={ name = 'safl', k = 1 }"]);
        assert!(safl.bytes.up < uncut.bytes.up, "{format}: SAFL sends fewer adapters");
        let (_, private) = with("private", &["privacy={ epsilon = 8.0, delta = 1e-3 }"]);
        let spent = private.privacy.as_ref().unwrap().epsilon.unwrap();
        assert!(spent > 0.0 && spent <= 8.0, "{format}: epsilon {spent}");
        // The base is on nobody's wire: adapters and the head are.
        let (_, shared) = with("shared", &["federation.start='shared'"]);
        assert!(uncut.bytes.down.0 < 3 * shared.bytes.down.0, "{format}: {:?}", uncut.bytes);
    }
}

#[test]
fn blocks_that_stay_frozen_are_stored_so_and_the_model_is_saved_in_f32() {
    let place = place();
    let sets = ["method={ name = 'safl', k = 1, selector = 'last' }", "model.weights='int8'"];
    let (folder, summary) = run(place.path(), "frozen", &experiment(place.path(), &sets));
    assert_eq!(summary.model.as_deref(), Some("model"));
    let choice = ModelChoice { path: folder, round: WhichRound::Last, base: None, weights: None };
    let folders = choice.folders().unwrap();
    assert_eq!(folders.weights, WeightFormat::F32);
    let data = EvaluationData::Experiment(Box::new(experiment(place.path(), &sets)));
    let report = fedra::evaluate(&choice, &data, None, &Silent).unwrap();
    let (found, expected) =
        (report.sets["central_test"].scores["loss"], summary.scores["central_test"]["loss"]);
    assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
}

#[test]
fn weights_of_which_every_block_learns_are_refused_in_another_format() {
    let place = place();
    for sets in [&[][..], &["method={ name = 'safl', k = 1 }"]] {
        let sets = [sets, &["model.weights='int4'"]].concat();
        let experiment = experiment(place.path(), &sets);
        let folder = place.path().join("refused");
        let refused = fedra::run(&experiment, &Output::new(folder), &Silent).err().unwrap();
        let words = refused.in_words();
        assert!(words.contains("model.weights: found \"int4\", expected \"f32\""), "{words}");
        assert!(words.contains("[model.lora]"), "{words}");
    }
    let text = "[model]\nweights = 'q4_0'\n";
    let refused = Experiment::from_toml(text, &Overrides::default()).err().unwrap().to_string();
    assert!(refused.contains("f32, bf16, int8 or int4"), "{refused}");
}

#[test]
fn a_site_and_a_server_agree_only_where_their_weights_are_stored_alike() {
    let place = place();
    let joined = |format: &str| {
        let own = "data.shares.central=0.0";
        let named = "federation.names=['east', 'west']";
        let experiment = adapted(place.path(), format, &[own, named]);
        fedra::join(&experiment, "east", &Silent).unwrap()
    };
    let (four, eight) = (joined("int4"), joined("int8"));
    assert_eq!(four.agreement["model.weights"], "int4");
    let differing: Vec<&str> = four
        .agreement
        .iter()
        .filter(|(name, value)| eight.agreement.get(*name) != Some(value))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(differing, ["model.weights", "model: its initial weights"]);
    assert_eq!(joined("int4").agreement, four.agreement);
    assert_eq!(four.client.info.id, ClientId(0));
    let formats = four.client.shared.iter().map(|(_, tensor)| tensor.format());
    assert!(formats.filter(|format| *format == WeightFormat::Int4).count() >= 18);
}
