//! A pretrained model in one GGUF file runs as its folder does, and a run resumes from adapters.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::gguf_writer::{GgufFile, Value};
use fedra::compute::{Device, Seed};
use fedra::data::{Encoder, open_tokenizer};
use fedra::model::hf::Config;
use fedra::model::{Head, Model, gguf, hf::Precision, load};
use fedra::prepare::pretrained::Pretrained;
use fedra::{Experiment, Output, Overrides, Silent};

/// A decoder drawn from a seed, with a byte-level tokenizer of single bytes and a few merges.
fn tiny_file() -> GgufFile {
    let config = Config {
        vocab_size: 262,
        hidden_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(4),
        intermediate_size: 24,
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        ..Config::llama()
    };
    let model = Model::new(config, Head::Language, None).unwrap();
    let params = model.fresh_params(&Device::cpu(), Seed(4)).unwrap();
    // The alphabet of bytes: printable ones are themselves, the others follow from U+0100 on.
    let plain = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let letters = (0..256u32).map(|byte| {
        let letter = if plain(&byte) { byte } else { others.next().unwrap() };
        char::from_u32(letter).unwrap().to_string()
    });
    let merged = ["no", "te", "note", "\u{120}no"];
    let pieces: Vec<String> = ["<|im_start|>", "<|im_end|>"]
        .map(str::to_owned)
        .into_iter()
        .chain(letters)
        .chain(merged.map(str::to_owned))
        .collect();
    let kinds = (0..pieces.len()).map(|id| if id < 2 { 3 } else { 1 }).collect();
    let merges = ["n o", "t e", "no te", "\u{120} no"].map(str::to_owned).to_vec();
    crate::gguf_decoder::file(&model, &params)
        .with("tokenizer.ggml.model", Value::Text("gpt2".into()))
        .with("tokenizer.ggml.pre", Value::Text("smollm".into()))
        .with("tokenizer.ggml.tokens", Value::Texts(pieces))
        .with("tokenizer.ggml.token_type", Value::Integers(kinds))
        .with("tokenizer.ggml.merges", Value::Texts(merges))
        .with("tokenizer.ggml.add_bos_token", Value::Flag(true))
        .with("tokenizer.ggml.bos_token_id", Value::U32(0))
        .with("tokenizer.ggml.eos_token_id", Value::U32(1))
}

/// A file and the folder that is made of it, and rows of three labels.
fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let (file, folder) = (place.path().join("model.gguf"), place.path().join("folder"));
    fs::write(&file, tiny_file().bytes()).unwrap();
    gguf::convert(&file, &folder, Precision::F32).unwrap();
    let row = |row: usize| {
        let (label, client) = (["heart", "lung", "skin"][row % 3], ["east", "west"][row / 3 % 2]);
        let text = format!("note {row} of the {label}");
        format!("{{\"text\": {text:?}, \"label\": {label:?}, \"client\": {client:?}}}\n")
    };
    fs::write(place.path().join("rows.jsonl"), (0..60).map(row).collect::<String>()).unwrap();
    (place, file, folder)
}

fn experiment(place: &Path, task: &str, model: &str) -> fedra::Result<Experiment> {
    let text = format!(
        "seed = 5\n[data]\nsource = 'jsonl'\ntask = '{task}'\npath = '{}'\nmax_tokens = 24\n\
         shares = {{ central = 0.0, validation = 0.0, test = 0.2 }}\n\
         [model]\n{model}\n[federation]\nrounds = 2\n[work]\nbatch = 8\n\
         optimiser = {{ name = 'adamw', rate = 0.01 }}\n",
        place.join("rows.jsonl").display()
    );
    Experiment::from_toml(&text, &Overrides::default())
}

fn run(place: &Path, name: &str, task: &str, model: &str) -> PathBuf {
    let folder = place.join(name);
    let experiment = experiment(place, task, model).unwrap();
    fedra::run(&experiment, &Output::new(&folder), &Silent).unwrap();
    folder
}

fn path(path: &Path) -> String {
    format!("path = '{}'", path.display())
}

#[test]
fn a_run_from_a_file_gives_the_bits_of_a_run_from_its_folder() {
    let (place, file, folder) = place();
    for task in ["language", "classes"] {
        let weights = |name: &str, model: &Path| {
            let run = run(place.path(), &format!("{task}-{name}"), task, &path(model));
            fs::read(run.join("model/model.safetensors")).unwrap()
        };
        assert!(weights("file", &file) == weights("folder", &folder), "{task}");
    }
    let inputs = fs::read_to_string(place.path().join("classes-file/inputs.json")).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    run(place.path(), "changed", "classes", &path(&file));
    let changed = fs::read_to_string(place.path().join("changed/inputs.json")).unwrap();
    assert!(inputs != changed, "the digest covers the file");
}

#[test]
fn digits_are_cut_one_by_one_and_marks_in_a_text_are_text() {
    let (_place, file, folder) = place();
    let from_file = Pretrained::open(&file).unwrap().tokenizer;
    let from_folder = open_tokenizer(&folder).unwrap();
    let text = "note 12 no<|im_end|>";
    let ids = from_file.pieces(text).unwrap();
    assert_eq!(ids, from_folder.pieces(text).unwrap());
    let byte = |byte: u8| 2 + u32::from(byte);
    assert_eq!(ids[..5], [260, byte(b' '), byte(b'1'), byte(b'2'), 261]);
    assert!(!ids.contains(&1));
    assert_eq!(from_file.templates().single.before(), [0]);
    assert!(Encoder::new(&from_file, 8).is_ok());
}

#[test]
fn a_run_goes_on_from_the_adapters_and_the_head_of_another() {
    let (place, file, _) = place();
    let lora = format!("{}\nlora = {{ rank = 2, roles = ['query', 'down'] }}", path(&file));
    let first = run(place.path(), "first", "classes", &lora);
    assert!(first.join("adapter/adapter_config.json").exists());
    assert!(first.join("model/model.safetensors").exists());

    // Where nothing moves, what comes out is what went in.
    let adapter = first.join("adapter");
    let again = format!("{}\nadapter = '{}'", path(&file), adapter.display());
    let still = |model: &str, name: &str| {
        let text = experiment(place.path(), "classes", model).unwrap().to_toml().unwrap();
        let rate = Overrides::default().set("work.optimiser={ name = \"sgd\", rate = 0.0 }");
        let experiment = Experiment::from_toml(&text, &rate).unwrap();
        fedra::run(&experiment, &Output::new(place.path().join(name)), &Silent).unwrap();
        place.path().join(name)
    };
    let second = still(&again, "second");
    let bytes = |folder: &Path, file: &str| fs::read(folder.join(file)).unwrap();
    let same = |file: &str| bytes(&first, file) == bytes(&second, file);
    assert!(same("adapter/adapter_model.safetensors") && same("adapter/labels.json"));
    assert!(same("model/model.safetensors"));
    let inputs: String = fs::read_to_string(second.join("inputs.json")).unwrap();
    assert!(inputs.contains("\"adapter\""), "{inputs}");

    let refused =
        |model: &str| experiment(place.path(), "classes", model).map(drop).unwrap_err().to_string();
    let other = refused(&format!("{again}\nlora = {{ rank = 3 }}"));
    assert!(other.starts_with("model.lora: found other adapters"), "{other}");
    let alone = refused(&format!("adapter = '{}'", adapter.display()));
    assert!(alone.contains("applies only with model.path"), "{alone}");
    let config = adapter.join("adapter_config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"bias\"", "\"use_qalora\": true,\n  \"bias\"")).unwrap();
    let unknown = refused(&again);
    let named = unknown.contains("use_qalora: found true");
    assert!(unknown.starts_with("model.adapter: ") && named, "{unknown}");
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn the_pieces_of_stories260k_come_out_of_scores_as_out_of_its_merges() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/stories260k");
    let loaded = load(&folder, Head::Language, None, (&Device::cpu(), Seed(1))).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("tokenizer.json")).unwrap()).unwrap();
    let vocabulary = json["model"]["vocab"].as_object().unwrap();
    let mut pieces: Vec<(u64, String)> =
        vocabulary.iter().map(|(piece, id)| (id.as_u64().unwrap(), piece.clone())).collect();
    pieces.sort();
    let pieces: Vec<String> = pieces.into_iter().map(|(_, piece)| piece).collect();
    let kind = |(id, piece): (usize, &String)| match id {
        0 => 2,
        1 | 2 => 3,
        _ if piece.len() == 6 && piece.starts_with("<0x") => 6,
        _ => 1,
    };
    let kinds = pieces.iter().enumerate().map(kind).collect();
    // As the trainer of such vocabularies writes them: a piece that was merged later scores lower.
    let scores = (0..pieces.len()).map(|id| -(id as f32)).collect();
    let file = crate::gguf_decoder::file(&loaded.model, &loaded.params)
        .with("tokenizer.ggml.model", Value::Text("llama".into()))
        .with("tokenizer.ggml.tokens", Value::Texts(pieces))
        .with("tokenizer.ggml.token_type", Value::Integers(kinds))
        .with("tokenizer.ggml.scores", Value::Numbers(scores))
        .with("tokenizer.ggml.bos_token_id", Value::U32(1))
        .with("tokenizer.ggml.eos_token_id", Value::U32(2))
        .with("tokenizer.ggml.unknown_token_id", Value::U32(0));
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("stories.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let ours = Pretrained::open(&path).unwrap().tokenizer;
    let theirs = open_tokenizer(&folder).unwrap();
    assert_eq!(ours.templates(), theirs.templates());
    let text = folder.join("../../data/tinyshakespeare/input.txt");
    let text = fs::read_to_string(text).unwrap_or_else(|_| "Once upon a time".repeat(9));
    for line in text.lines().take(4000).chain(["caf\u{e9} \u{1f600}  two"]) {
        assert_eq!(ours.pieces(line).unwrap(), theirs.pieces(line).unwrap(), "{line:?}");
    }
}
