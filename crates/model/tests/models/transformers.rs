//! Other libraries: what is saved here loads in transformers, and answers the same there.

use crate::folders::{bare, every_architecture};
use crate::step::Step;
use fedra_compute::Seed;
use fedra_model::hf::{Checkpoint, Companions, HeadFit, Precision};
use fedra_model::{Classifier, Saving, Wanted, load_checkpoint, save};
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs FEDRA_PYTHON: tools/test-shared"]
fn transformers_loads_every_saved_folder_unchanged_and_answers_the_same() {
    let python = std::env::var("FEDRA_PYTHON").expect("a Python with transformers");
    let root = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check_transformers.py");
    let mut command = Command::new(python);
    command.arg(script).env("HF_HUB_OFFLINE", "1");
    let images = Step::images();
    let bare = images.iter().map(bare).collect::<Vec<_>>();
    for (number, step) in every_architecture().iter().chain(&images).chain(&bare).enumerate() {
        let dir = root.path().join(format!("{number}"));
        let companions = Companions::default();
        let classes = step.model.head().classes();
        // No order that sorting would give.
        let labels =
            classes.map(|_| ["mild", "absent", "severe", "none", "grave"].map(Into::into).into());
        let saving =
            Saving { precision: Precision::F32, labels, problem: None, companions: &companions };
        save(&dir, &step.model, &step.params, &saving).unwrap();
        let answers = answers(&dir, step);
        std::fs::write(dir.join("answers.json"), answers.to_string()).unwrap();
        command.arg(dir);
    }
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// What our model answers from the folder; that of classes, in the order of their names.
fn answers(dir: &Path, step: &Step) -> serde_json::Value {
    let Some(answers) = step.model.head().answers() else {
        return serde_json::json!({
            "ids": step.sequences(), "pixels": pixels(step), "logits": step.logits().to_host(),
        });
    };
    let checkpoint = Checkpoint::open(dir).unwrap();
    let mut names = checkpoint.config().labels.as_ref().unwrap().names.clone();
    names.sort();
    let HeadFit::Kept(stored) = checkpoint.trained_head(answers).unwrap().fit(&names) else {
        panic!("the same labels")
    };
    let place = |name| stored.iter().position(|other| other == name).unwrap();
    let classifier = Classifier::Rows(names.iter().map(place).collect());
    let wanted = Wanted { head: step.model.head(), classifier, adapters: None };
    let loaded = load_checkpoint(&checkpoint, wanted, (&step.device, Seed(1))).unwrap();
    let sorted = Step { model: loaded.model, params: loaded.params, ..step.clone() };
    serde_json::json!({
        "ids": sorted.sequences(), "pixels": pixels(step), "logits": sorted.logits().to_host(),
        "names": names,
    })
}

/// The images of a step, and their shape; nothing of a step with text.
pub fn pixels(step: &Step) -> serde_json::Value {
    step.model.config().image.map_or(serde_json::Value::Null, |image| {
        let shape = [step.batch.packing().sequences(), image.channels, image.height, image.width];
        serde_json::json!({ "shape": shape, "values": step.batch.pixels() })
    })
}
