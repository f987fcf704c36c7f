//! Every family with every method: tiny models of random weights, one table.
//!
//! Configurations are those of the golden file of families; weights come from a seed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fedra::apply::predict::Prediction;
use fedra::apply::trained_model::WhichRound;
use fedra::compute::{Device, Seed};
use fedra::data::{Body, Image, Tokenizer};
use fedra::listener::Event;
use fedra::model::hf::{Companions, Config, Precision};
use fedra::model::{Head, Model, Saving, save};
use fedra::{Ending, Experiment, Listener, ModelChoice, Output, Overrides, Silent, TrainedModel};
use serde_json::{Map, Value, json};

const LABELS: [&str; 3] = ["heart", "lung", "skin"];
const ROUNDS: u32 = 2;
const ROWS: usize = 48;
/// Pixels along each side of an image.
const SIDE: usize = 8;

/// The columns of the table: what is set beside FedAvg.
const SETTINGS: [(&str, &[&str]); 6] = [
    ("FedAvg", &[]),
    ("SAFL", &["method={ name = \"safl\", k = 1 }"]),
    ("FedFrozen", &["method={ name = \"fedfrozen\", warmup = 1 }"]),
    ("LoRA", &["model.lora.rank=2"]),
    ("cut", &["split={ first = 1, last = 1 }"]),
    ("private", &["privacy={ noise = 1.0, delta = 1e-3 }"]),
];

/// A configuration of every family in the golden file, by `model_type`.
fn configurations() -> BTreeMap<String, Value> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden/families.json");
    let golden: Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for case in golden["cases"].as_array().unwrap() {
        let config = case["config"].clone();
        let name = config["model_type"].as_str().unwrap().to_owned();
        found.entry(name).or_insert(config);
    }
    found
}

fn texts() -> Vec<String> {
    (0..ROWS).map(|row| format!("note {} of the {}", row % 5, LABELS[row % 3])).collect()
}

/// Stripes in one of three directions.
fn image(row: usize) -> Vec<u8> {
    let shade = |(x, y): (usize, usize)| [x, y, x + y][row % 3] % 4 < 2;
    let places = (0..SIDE * SIDE).map(|place| (place % SIDE + row % 5, place / SIDE + row % 7));
    places.map(|place| if shade(place) { 200 } else { 30 }).collect()
}

/// What a model of this configuration reads.
#[derive(Clone, Copy, PartialEq)]
enum Input {
    Texts,
    Images,
}

impl Input {
    fn of(config: &Value) -> Self {
        if config.get("image_size").is_some() { Self::Images } else { Self::Texts }
    }

    /// The files that stand beside a model of a configuration, which is changed to fit the rows.
    fn fit(self, config: &mut Map<String, Value>) -> Companions {
        match self {
            Self::Texts => {
                let texts = texts();
                let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 80).unwrap();
                config.insert("vocab_size".into(), json!(tokenizer.vocabulary_size()));
                Companions::with_tokenizer(tokenizer.json().as_bytes().to_vec()).unwrap()
            }
            Self::Images => {
                config.insert("image_size".into(), json!(SIDE));
                config.insert("num_channels".into(), json!(1));
                let size = json!({ "height": SIDE, "width": SIDE });
                let processor = json!({
                    "image_processor_type": "ViTImageProcessor", "do_resize": true, "size": size,
                    "do_normalize": true, "image_mean": [0.5], "image_std": [0.5],
                });
                Companions::with_processor(processor.to_string().into_bytes()).unwrap()
            }
        }
    }

    /// Writes the rows, and says what they are.
    fn rows(self, place: &Path) -> String {
        match self {
            Self::Texts => {
                let rows = texts().into_iter().zip(LABELS.into_iter().cycle());
                let rows = rows.enumerate().map(|(row, (text, label))| {
                    let client = ["east", "west"][row / 3 % 2];
                    json!({ "text": text, "label": label, "client": client }).to_string() + "\n"
                });
                let file = place.join("rows.jsonl");
                fs::write(&file, rows.collect::<String>()).unwrap();
                let labels = "['heart', 'lung', 'skin']";
                format!(
                    "source = 'jsonl'\npath = '{}'\nlabels = {labels}\nmax_tokens = 16",
                    file.display()
                )
            }
            Self::Images => {
                let sizes = |sizes: &[usize]| -> Vec<u8> {
                    sizes.iter().flat_map(|size| (*size as u32).to_be_bytes()).collect()
                };
                let pixels: Vec<u8> = (0..ROWS).flat_map(image).collect();
                let labels: Vec<u8> = (0..ROWS).map(|row| (row % 3) as u8).collect();
                let header = [&[0, 0, 8, 3][..], &sizes(&[ROWS, SIDE, SIDE])].concat();
                let file = place.join("train-images-idx3-ubyte");
                fs::write(file, [header, pixels].concat()).unwrap();
                let header = [&[0, 0, 8, 1][..], &sizes(&[ROWS])].concat();
                let file = place.join("train-labels-idx1-ubyte");
                fs::write(file, [header, labels].concat()).unwrap();
                let labels = "['0', '1', '2']\npartition = { by = 'iid' }";
                format!("source = 'idx'\npath = '{}'\nlabels = {labels}", place.display())
            }
        }
    }

    fn body(self, row: usize) -> Body {
        match self {
            Self::Texts => Body::Text(texts().swap_remove(row)),
            Self::Images => {
                let size = (SIDE as u32, SIDE as u32, 1);
                Body::Image(Image::plain(size, image(row)).unwrap())
            }
        }
    }
}

/// A model folder of this configuration, with three blocks at least.
fn folder(place: &Path, input: Input, mut config: Value) -> PathBuf {
    let object = config.as_object_mut().unwrap();
    for key in ["id2label", "label2id", "problem_type", "architectures"] {
        object.remove(key);
    }
    let companions = input.fit(object);
    let blocks = ["num_hidden_layers", "n_layers", "n_layer"]
        .into_iter()
        .find(|key| object.contains_key(*key))
        .unwrap();
    if object[blocks].as_u64() < Some(3) {
        object.insert(blocks.into(), json!(3));
        object.remove("layer_types");
    }
    let file = place.join("config.json");
    let config = Config::parse(&file, config.to_string().as_bytes()).unwrap();
    let model = Model::new(config, Head::Bare, None).unwrap();
    let params = model.fresh_params(&Device::cpu(), Seed(4)).unwrap();
    let folder = place.join("model");
    let saving =
        Saving { precision: Precision::F32, labels: None, problem: None, companions: &companions };
    save(&folder, &model, &params, &saving).unwrap();
    folder
}

fn experiment(rows: &str, model: &Path, sets: &[&str]) -> Experiment {
    let text = format!(
        "seed = 5\n[data]\ntask = 'classes'\n{rows}\n\
         shares = {{ central = 0.25, validation = 0.0, test = 0.0 }}\n[model]\npath = '{}'\n\
         [federation]\nrounds = {ROUNDS}\n{}\n[work]\nbatch = 8\nmax_steps = 2\n\
         optimiser = {{ name = 'adamw', rate = 0.01 }}\n[evaluate]\npredictions = true\n",
        model.display(),
        if rows.contains("partition") { "clients = 2" } else { "" },
    );
    let sets = sets.iter().fold(Overrides::default(), |sets, set| sets.set(set));
    Experiment::from_toml(&text, &sets).unwrap()
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

    fn stops(&self) -> bool {
        self.0.get()
    }
}

/// One row of the table; a cell that fails says which.
fn check(family: &str, config: Value) {
    let place = tempfile::tempdir().unwrap();
    let input = Input::of(&config);
    let model = folder(place.path(), input, config);
    let rows = input.rows(place.path());
    let weights = |run: &Path| fs::read(run.join("model/model.safetensors")).unwrap();
    let mut summaries = BTreeMap::new();
    for (name, sets) in SETTINGS {
        let run = place.path().join(name);
        let experiment = experiment(&rows, &model, sets);
        let ending = fedra::run(&experiment, &Output::new(&run), &Silent)
            .unwrap_or_else(|error| panic!("{family}, {name}: {error}"));
        summaries.insert(name, ending.complete().unwrap());
        assert!(weights(&run) != weights_of(&model), "{family}, {name}: nothing was learned");
    }
    let up = |name: &str| summaries[name].bytes.up;
    for fewer in ["SAFL", "FedFrozen", "LoRA"] {
        assert!(up(fewer) < up("FedAvg"), "{family}, {fewer}: as many bytes as FedAvg");
    }
    assert!(place.path().join("LoRA/adapter/adapter_config.json").exists(), "{family}");
    let spent = summaries["private"].privacy.as_ref().unwrap().epsilon.unwrap();
    assert!(spent > 0.0 && spent.is_finite(), "{family}: epsilon {spent}");
    let score = |name: &str| summaries[name].score.as_ref().unwrap().value;
    assert!((score("cut") - score("FedAvg")).abs() < 1e-9, "{family}: a cut changed the score");

    let (whole, parts) = (place.path().join("FedAvg"), place.path().join("parts"));
    let stopped = experiment(&rows, &model, &[]);
    let ending = fedra::run(&stopped, &Output::new(&parts), &Impatient::default()).unwrap();
    assert!(matches!(ending, Ending::Interrupted { rounds: 1, of: ROUNDS }), "{family}");
    fedra::resume(&parts, &fedra::Machine::default(), &Silent).unwrap();
    assert!(weights(&parts) == weights(&whole), "{family}: resumed to another model");

    let choice =
        ModelChoice { path: whole.clone(), round: WhichRound::Last, base: None, weights: None };
    let trained = TrainedModel::open(&choice.folders().unwrap()).unwrap();
    let noted = fs::read_to_string(whole.join("predictions.jsonl")).unwrap();
    for line in noted.lines() {
        let noted: Value = serde_json::from_str(line).unwrap();
        let row = noted["row"].as_u64().unwrap() as usize - 1;
        let answer = trained.predict(&[input.body(row)], 0.5).unwrap().remove(0);
        let Prediction::One { labels, .. } = answer.unwrap() else { panic!("{family}") };
        assert_eq!(json!(labels[0].label), noted["predicted"], "{family}, row {row}");
        let probability = noted["probability"].as_f64().unwrap();
        assert!((labels[0].probability - probability).abs() < 1e-4, "{family}, row {row}");
    }
    assert!(noted.lines().count() > 5, "{family}: {noted}");
}

fn weights_of(model: &Path) -> Vec<u8> {
    fs::read(model.join("model.safetensors")).unwrap()
}

/// The `model_type` of each row of the table in the documents, whose columns are those of this test.
fn documented() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let page = fs::read_to_string(page).unwrap();
    let columns: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
    let header = format!("| `model_type` | {} | resume | predict |\n", columns.join(" | "));
    let (_, table) = page.split_once(&header).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let (name, cells) = row[2..].split_once(" | ").unwrap();
        assert_eq!(cells, ["yes"; 8].join(" | ") + " |", "{name}");
        name.trim_matches('`').to_owned()
    })
    .collect()
}

#[test]
fn every_family_runs_with_every_method() {
    let unknown = Config::parse(Path::new("config.json"), br#"{"model_type": "unknown"}"#);
    let known = unknown.unwrap_err().to_string();
    let (configurations, mut documented) = (configurations(), documented());
    documented.sort();
    assert_eq!(configurations.keys().cloned().collect::<Vec<_>>(), documented);
    for (family, config) in configurations {
        assert!(known.contains(&format!("{family:?}")), "{family}: {known}");
        check(&family, config);
    }
    assert_eq!(known.matches("\", \"").count() + 1, documented.len(), "{known}");
}
