//! Other libraries: what is saved here loads in transformers, and answers the same there.

use crate::folders::every_architecture;
use fedra_model::hf::{Companions, Precision};
use fedra_model::{Saving, save};
use std::path::Path;
use std::process::Command;

#[test]
fn transformers_loads_every_saved_folder_unchanged_and_answers_the_same() {
    let Ok(python) = std::env::var("FEDRA_PYTHON") else {
        println!("skipped: FEDRA_PYTHON names no Python with transformers");
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check_transformers.py");
    let mut command = Command::new(python);
    command.arg(script).env("HF_HUB_OFFLINE", "1");
    for (number, step) in every_architecture().iter().enumerate() {
        let dir = root.path().join(format!("{number}"));
        let companions = Companions::default();
        let saving = Saving {
            precision: Precision::F32,
            labels: None,
            problem: None,
            companions: &companions,
        };
        save(&dir, &step.model, &step.params, &saving).unwrap();
        let logits = step.logits();
        let answers = serde_json::json!({ "ids": step.sequences(), "logits": logits.to_host() });
        std::fs::write(dir.join("answers.json"), answers.to_string()).unwrap();
        command.arg(dir);
    }
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
}
