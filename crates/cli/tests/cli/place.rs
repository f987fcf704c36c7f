//! A folder to run the built binary in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fedra_compute::{Device, Seed};
use fedra_data::Tokenizer;
use fedra_model::hf::{Companions, Config, Precision};
use fedra_model::{Head, Model, Saving, save};
use serde_json::Value;
use tempfile::TempDir;

/// A folder to run in, and the experiment in it.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tiny.toml"), include_str!("../../../fedra/tests/tiny.toml"))
            .unwrap();
        Self { folder }
    }

    pub fn fedra(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.current_dir(self.folder.path()).args(arguments);
        command.env_remove("FEDRA_DATA").env_remove("FEDRA_MODELS").env_remove("COLUMNS");
        command.env("HF_HUB_CACHE", "none").output().unwrap()
    }

    #[track_caller]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.fedra(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The same; everything that it said, also on stderr.
    #[track_caller]
    pub fn succeed_and_hear(&self, arguments: &[&str]) -> String {
        let output = self.fedra(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stderr) + &text(&output.stdout)
    }

    /// Runs what must be refused: status 2, one message on stderr, nothing on stdout or on disk.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.fedra(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
        assert!(!self.path("runs").exists(), "{arguments:?} wrote something");
        text(&output.stderr)
    }

    /// Saves a decoder with fresh weights that writes the words of a text, in the folder `decoder`.
    pub fn save_decoder(&self, words: &str) {
        self.save_decoder_of(words, 64);
    }

    /// Adapters of rank 2 on that decoder, in a run of this name over `notes.jsonl`.
    pub fn train_adapters(&self, run: &str) {
        let experiment = r#"
[data]
source = "jsonl"
task = "language"
path = "notes.jsonl"
max_tokens = 32
partition = { by = "iid" }
[model]
path = "decoder"
lora = { rank = 2 }
[federation]
clients = 2
rounds = 2
[work]
batch = 4
optimiser = { name = "adamw", rate = 0.05 }
"#;
        fs::write(self.path("letters.toml"), experiment).unwrap();
        self.succeed(&["run", "letters.toml", "--quiet", "--out", run]);
    }

    /// The same with so many positions.
    pub fn save_decoder_of(&self, words: &str, positions: usize) {
        let tokenizer = Tokenizer::grow([words], 400).unwrap();
        let config = Config {
            vocab_size: tokenizer.vocabulary_size(),
            hidden_size: 16,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            num_key_value_heads: Some(1),
            head_dim: Some(8),
            intermediate_size: 24,
            max_position_embeddings: positions,
            eos_token_ids: Vec::new(),
            ..Config::llama()
        };
        let model = Model::new(config, Head::Language, None).unwrap();
        let params = model.fresh_params(&Device::cpu(), Seed(4)).unwrap();
        let companions = tokenizer.json().into();
        let companions = &Companions::with_tokenizer(companions).unwrap();
        let saving = Saving { precision: Precision::F32, labels: None, problem: None, companions };
        save(&self.path("decoder"), &model, &params, &saving).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn summary(&self, run: &str) -> Value {
        let file = self.path(run).join("summary.json");
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    pub fn weights(&self, run: &str) -> Vec<u8> {
        fs::read(self.path(run).join("model/model.safetensors")).unwrap()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Each line of a round without its times, which no two runs share.
pub fn rounds_without_times(run: &Path) -> Vec<Value> {
    let lines = fs::read_to_string(run.join("rounds.jsonl")).unwrap();
    let round = |line: &str| {
        let mut report: Value = serde_json::from_str(line).unwrap();
        for key in ["seconds", "slowest", "phases", "most_updates_held"] {
            report.as_object_mut().unwrap().remove(key).unwrap();
        }
        report
    };
    lines.lines().map(round).collect()
}

/// A folder that is shared beside this checkout.
#[track_caller]
pub fn shared(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    path.canonicalize().unwrap_or_else(|_| panic!("needs {}", path.display()))
}
