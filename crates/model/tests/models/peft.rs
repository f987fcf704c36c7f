//! Adapter folders: what is saved comes back to the bit, the PEFT library answers with it as we do,
//! and what the library saves is answered with by us as by it.

use crate::agreement::relative_f32;
use crate::lora::adapted;
use crate::step::{Step, bits};
use fedra_compute::{Params, Seed};
use fedra_model::hf::safetensors::Reader;
use fedra_model::hf::{Companions, Precision, Problem, Tensors as _, writer};
use fedra_model::peft::{self, AdapterFolder, AdapterSaving};
use fedra_model::{Adapters, Classifier, Head, Model, Saving, load, save};
use fedra_plan::{Layer, Part, Role};
use serde_json::{Value, json};
use std::path::Path;

/// Every task of which a run may save an adapter, with adapters on all projections.
fn steps() -> Vec<(Step, Step)> {
    let is_bert_language =
        |step: &Step| step.model.head() == Head::Language && step.name.starts_with("Bert");
    // An encoder without a pooler is no class of the library's.
    let is_odd = |step: &Step| {
        matches!(step.model.head(), Head::Sequence { pooler: false, .. })
            && step.name.starts_with("Bert")
    };
    let bases = Step::every_kind().into_iter();
    let bases = bases.filter(|step| !is_bert_language(step) && !is_odd(step));
    bases.map(|base| (adapted(&base, 0.2), base)).collect()
}

fn labels(step: &Step) -> Option<Vec<String>> {
    step.model.head().classes().map(|count| (0..count).map(|n| format!("class {n}")).collect())
}

fn saved(dir: &Path, step: &Step) {
    let labels = labels(step);
    let problem = matches!(step.model.head(), Head::Sequence { .. }).then_some(Problem::MultiLabel);
    let saving =
        AdapterSaving { base: Some("base"), revision: None, labels: labels.as_deref(), problem };
    peft::save(dir, &step.model, &step.params, saving).unwrap();
}

/// The adapter of a folder on the numbers of a base, the head drawn by formula.
fn loaded(dir: &Path, base: &Step) -> Step {
    let folder = AdapterFolder::open(dir, base.model.config()).unwrap();
    let adapters = folder.adapters().clone();
    let model = Model::new(base.model.config().clone(), base.model.head(), Some(adapters)).unwrap();
    let mut params = base.params.clone();
    folder.load((&model, &mut params), &Classifier::Stored, &base.device).unwrap();
    Step { model, params, ..base.clone() }
}

fn assert_same(one: &Params, other: &Params) {
    assert_eq!(one.len(), other.len());
    for (id, tensor) in one.iter() {
        assert_eq!(bits(&tensor.to_host()), bits(&other.get(id).unwrap().to_host()), "{id}");
    }
}

#[test]
fn an_adapter_comes_back_to_the_bit_and_its_head_with_it() {
    for (step, mut base) in steps() {
        let dir = tempfile::tempdir().unwrap();
        saved(dir.path(), &step);
        // A head that begins otherwise, so that it has to come from the folder.
        let fresh = base.model.fresh_params(&base.device, Seed(9)).unwrap();
        for (id, tensor) in fresh.iter().filter(|(id, _)| id.site == Layer::Head) {
            base.params.insert(id, tensor.clone());
        }
        let back = loaded(dir.path(), &base);
        assert_eq!(back.model.adapters(), step.model.adapters());
        assert_same(&back.params, &step.params);
        assert_eq!(bits(&back.logits().to_host()), bits(&step.logits().to_host()), "{}", step.name);
    }
}

#[test]
fn a_classifiers_rows_come_in_the_order_that_is_asked_for_or_not_at_all() {
    let (step, base) = steps().into_iter().find(|(step, _)| labels(step).is_some()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    saved(dir.path(), &step);
    let folder = AdapterFolder::open(dir.path(), base.model.config()).unwrap();
    let named = labels(&step).unwrap();
    assert_eq!(folder.trained_head(), fedra_model::hf::TrainedHead::Named(named.clone()));
    let rows: Vec<usize> = (0..named.len()).rev().collect();
    let mut params = step.params.clone();
    let order = Classifier::Rows(rows);
    folder.load((&step.model, &mut params), &order, &base.device).unwrap();
    let id = step.model.layout().ids().find(|id| id.role == Role::Classifier).unwrap();
    let (ours, theirs) = (params.get(id).unwrap(), step.params.get(id).unwrap());
    let cols = ours.cols();
    assert_eq!(ours.to_host()[..cols], theirs.to_host()[(named.len() - 1) * cols..]);
    let fresh = Classifier::Fresh(fedra_model::hf::WhyFresh::Asked);
    let taken = folder.load((&step.model, &mut params), &fresh, &base.device).unwrap();
    assert!(taken.iter().all(|id| id.role != Role::Classifier) && !taken.is_empty());
}

/// The folder with its tensors changed by name.
fn with_tensors(dir: &Path, change: impl Fn(&str) -> Option<String>) {
    let path = dir.join("adapter_model.safetensors");
    let reader = Reader::open(&path).unwrap();
    let kept: Vec<(String, Vec<usize>, Vec<f32>)> = reader
        .names()
        .filter_map(|name| {
            let shape = reader.info(name).unwrap().shape.to_vec();
            Some((change(name)?, shape, reader.read_f32(name).unwrap()))
        })
        .collect();
    let tensors = kept.iter().map(|(name, shape, values)| (&**name, &shape[..], &values[..]));
    writer::write(&path, tensors, Precision::F32).unwrap();
}

#[test]
fn an_adapter_that_does_not_fit_is_refused_by_the_tensor() {
    let (step, base) =
        steps().into_iter().find(|(step, _)| step.name.starts_with("Llama")).unwrap();
    let refused = |change: &dyn Fn(&str) -> Option<String>| {
        let dir = tempfile::tempdir().unwrap();
        saved(dir.path(), &step);
        with_tensors(dir.path(), change);
        let opened = AdapterFolder::open(dir.path(), base.model.config());
        let outcome = opened.and_then(|folder| {
            let adapters = Some(folder.adapters().clone());
            let model = Model::new(base.model.config().clone(), base.model.head(), adapters)?;
            folder.load((&model, &mut base.params.clone()), &Classifier::Stored, &base.device)
        });
        outcome.unwrap_err().to_string()
    };
    let same = |name: &str| Some(name.to_owned());
    let missing =
        refused(&|name| same(name).filter(|name| !name.contains("1.self_attn.k_proj.lora_A")));
    assert!(
        missing.contains("block.1.key.lora_a") && missing.contains("no such tensor"),
        "{missing}"
    );
    let unknown = refused(&|name| same(&name.replace("q_proj", "x_proj")));
    assert!(unknown.contains("found an unknown name"), "{unknown}");
    let beyond = refused(&|name| same(&name.replace("layers.1.", "layers.7.")));
    assert!(beyond.contains("no such tensor"), "{beyond}");
    let weight = refused(&|name| same(&name.replace("q_proj.lora_A.weight", "q_proj.weight")));
    assert!(weight.contains("expected an adapter inside a block, or a whole head"), "{weight}");
    let swapped = refused(&|name| {
        same(&if name.contains("lora_A") {
            name.replace("lora_A", "lora_B")
        } else {
            name.replace("lora_B", "lora_A")
        })
    });
    assert!(swapped.contains("expected F32, F16 or BF16 of"), "{swapped}");
}

#[test]
fn a_model_without_adapters_or_head_saves_none() {
    let (step, base) = steps().remove(0);
    let dir = tempfile::tempdir().unwrap();
    let none = peft::save(dir.path(), &base.model, &base.params, AdapterSaving::default());
    assert!(none.unwrap_err().to_string().contains("found a model without adapters"));
    let adapters = step.model.adapters().cloned();
    let bare = Model::new(step.model.config().clone(), Head::Bare, adapters).unwrap();
    let none = peft::save(dir.path(), &bare, &step.params, AdapterSaving::default());
    assert!(none.unwrap_err().to_string().contains("found a model without a head"));
}

/// Two f32 implementations of a few blocks, as for whole folders.
const TOLERANCE: f64 = 1e-5;

#[test]
#[ignore = "needs FEDRA_PYTHON: tools/test-shared"]
fn peft_answers_with_our_adapters_as_we_do_and_we_with_its_own() {
    let python = std::env::var("FEDRA_PYTHON").expect("a Python with transformers and peft");
    let root = tempfile::tempdir().unwrap();
    let steps: Vec<(Step, Step)> = steps().into_iter().chain(only_down()).collect();
    for (number, (step, base)) in steps.iter().enumerate() {
        let dir = root.path().join(number.to_string());
        let companions = Companions::default();
        let labels = labels(step);
        let saving =
            Saving { precision: Precision::F32, labels, problem: None, companions: &companions };
        save(&dir.join("base"), &base.model, &base.params, &saving).unwrap();
        saved(&dir.join("ours"), step);
        let (ids, logits) = (step.sequences(), step.logits());
        let pixels = crate::transformers::pixels(step);
        let answers = json!({ "ids": ids, "pixels": pixels, "logits": logits.to_host() });
        std::fs::write(dir.join("ours.json"), answers.to_string()).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check_peft.py");
    let mut command = std::process::Command::new(python);
    let output = command.arg(script).arg(root.path()).env("HF_HUB_OFFLINE", "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (number, (_, base)) in steps.iter().enumerate() {
        let dir = root.path().join(number.to_string());
        let whole =
            load(&dir.join("base"), base.model.head(), None, (&base.device, Seed(1))).unwrap();
        let base = Step { model: whole.model, params: whole.params, ..base.clone() };
        let found = loaded(&dir.join("theirs"), &base).logits();
        let answers = std::fs::read_to_string(dir.join("theirs.json")).unwrap();
        let answers: Value = serde_json::from_str(&answers).unwrap();
        let theirs: Vec<f32> = serde_json::from_value(answers["logits"].clone()).unwrap();
        let error = relative_f32(&found.to_host(), &theirs);
        println!("{}: theirs read by us {error:.1e}", base.name);
        assert!(error < TOLERANCE, "{}: {error:.1e}", base.name);
        assert!(base.logits().to_host()[..] != theirs[..], "the adapter does something");
    }
}

/// An encoder whose feed-forward outputs alone are adapted, for which names are no pattern.
fn only_down() -> Option<(Step, Step)> {
    let (_, base) = steps().into_iter().find(|(step, _)| step.name.starts_with("Bert"))?;
    let adapters = Adapters::new(3, 2.0, [Role::Down]).unwrap();
    let model = Model::new(base.model.config().clone(), base.model.head(), Some(adapters)).unwrap();
    let whole = adapted(&base, 0.2);
    let own = whole.params.iter().filter(|(id, _)| model.layout().contains(*id));
    let params: Params = own.map(|(id, tensor)| (id, tensor.clone())).collect();
    assert!(params.iter().any(|(id, _)| id.part == Part::LoraB));
    Some((Step { model, params, ..base.clone() }, base))
}
