//! Adapter folders: what is saved comes back to the bit, the PEFT library answers with it as we do,
//! and what the library saves is answered with by us as by it.

use crate::agreement::relative_f32;
use crate::formula::Spec;
use crate::golden::{self, TinyCase};
use crate::head_adapters::{has_vocabulary, with_head};
use crate::lora::{adapted, decomposed, decomposed_from};
use crate::step::{Step, bits};
use fedra_compute::{Params, Seed, Tape, Tensor};
use fedra_model::hf::safetensors::Reader;
use fedra_model::hf::{Companions, Precision, Problem, Tensors as _, writer};
use fedra_model::peft::{self, AdapterFolder, AdapterSaving, Targets};
use fedra_model::{Adapters, Classifier, Head, Model, Saving, load, save};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};
use serde_json::{Value, json};
use std::collections::BTreeSet;
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
    bases.flat_map(|base| with_and_without_magnitudes(&base)).collect()
}

fn with_and_without_magnitudes(base: &Step) -> [(Step, Step); 2] {
    [adapted(base, 0.2), decomposed(base, 0.2)].map(|step| (step, base.clone()))
}

/// The same of families that store projections together.
fn joined_steps() -> Vec<(Step, Step)> {
    let cases = golden::cases::<TinyCase>("families.json").into_iter();
    let cases = cases.filter(|case| ["phi3", "gpt2", "modernbert"].contains(&&*case.family));
    let steps = cases.map(|case| Step::tiny(&case));
    let is_encoder_language =
        |step: &Step| step.model.head() == Head::Language && !step.model.is_decoder();
    let bases = steps.filter(|step| !is_encoder_language(step));
    bases.flat_map(|base| with_and_without_magnitudes(&base)).collect()
}

/// The step with fewer of its adapters.
fn only(step: &Step, roles: &[Role]) -> Step {
    let all = step.model.adapters().unwrap();
    let adapters = Adapters::new(all.rank(), all.alpha(), roles.iter().copied()).unwrap();
    let adapters = if all.has_magnitudes() { adapters.with_magnitudes() } else { adapters };
    let model = Model::new(step.model.config().clone(), step.model.head(), Some(adapters)).unwrap();
    let own = step.params.iter().filter(|(id, _)| model.layout().contains(*id));
    let params: Params = own.map(|(id, tensor)| (id, tensor.clone())).collect();
    Step { model, params, ..step.clone() }
}

fn labels(step: &Step) -> Option<Vec<String>> {
    step.model.head().classes().map(|count| (0..count).map(|n| format!("class {n}")).collect())
}

pub fn saved(dir: &Path, step: &Step) {
    let labels = labels(step);
    let problem = matches!(step.model.head(), Head::Sequence { .. }).then_some(Problem::MultiLabel);
    let saving =
        AdapterSaving { base: Some("base"), revision: None, labels: labels.as_deref(), problem };
    peft::save(dir, &step.model, &step.params, saving).unwrap();
}

/// The adapter of a folder on the numbers of a base, the head drawn by formula.
pub fn loaded(dir: &Path, base: &Step) -> Step {
    let folder = AdapterFolder::open(dir, base.model.config()).unwrap();
    let adapters = folder.adapters().clone();
    let model = Model::new(base.model.config().clone(), base.model.head(), Some(adapters)).unwrap();
    let mut params = base.params.clone();
    folder.load((&model, &mut params), &Classifier::Stored, &base.device).unwrap();
    Step { model, params, ..base.clone() }
}

pub fn assert_same(one: &Params, other: &Params) {
    assert_eq!(one.len(), other.len());
    for (id, tensor) in one.iter() {
        assert_eq!(bits(&tensor.to_host()), bits(&other.get(id).unwrap().to_host()), "{id}");
    }
}

#[test]
fn an_adapter_comes_back_to_the_bit_and_its_head_with_it() {
    let joined = joined_steps();
    assert_eq!(joined.len(), 2 * 8);
    let some = joined.iter().flat_map(|(step, base)| {
        [&[Role::Query, Role::Value][..], &[Role::Key], &[Role::Output, Role::Value, Role::Up]]
            .map(|roles| (only(step, roles), base.clone()))
    });
    for (step, mut base) in steps().into_iter().chain(some).chain(joined.clone()) {
        let dir = tempfile::tempdir().unwrap();
        saved(dir.path(), &step);
        // A head that begins otherwise, so that it has to come from the folder.
        let fresh = base.model.fresh_params(&base.device, Seed(9)).unwrap();
        for (id, tensor) in fresh.iter().filter(|(id, _)| id.layer == Layer::Head) {
            base.params.insert(id, tensor.clone());
        }
        let back = loaded(dir.path(), &base);
        assert_eq!(back.model.adapters(), step.model.adapters());
        assert_same(&back.params, &step.params);
        assert_eq!(bits(&back.logits().to_host()), bits(&step.logits().to_host()), "{}", step.name);
    }
}

/// A folder as the library makes one: one adapter for a module of several projections.
fn shared(dir: &Path, step: &Step) -> (Vec<f32>, Vec<f32>) {
    saved(dir, step);
    let path = dir.join("adapter_model.safetensors");
    let reader = Reader::open(&path).unwrap();
    let rank = step.model.adapters().unwrap().rank();
    let mut tensors = Vec::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for name in reader.names() {
        let (mut shape, mut values) =
            (reader.info(name).unwrap().shape.to_vec(), reader.read_f32(name).unwrap());
        if name.contains("c_attn") {
            let side = usize::from(name.contains("lora_B"));
            shape[side] = rank;
            values = Spec { shape: shape.clone(), seed: 77, scale: 0.3, offset: 0.1 }.values();
            (if side == 1 { &mut b } else { &mut a }).clone_from(&values);
        }
        tensors.push((name.to_owned(), shape, values));
    }
    let tensors = tensors.iter().map(|(name, shape, values)| (&**name, &shape[..], &values[..]));
    writer::write(&path, tensors, Precision::F32).unwrap();
    change_config(dir, &|config| {
        config["rank_pattern"] = json!({});
        config["alpha_pattern"] = json!({});
    });
    (a, b)
}

pub fn change_config(dir: &Path, change: &dyn Fn(&mut Value)) {
    let path = dir.join("adapter_config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
}

#[test]
fn an_adapter_for_several_projections_is_one_a_and_the_rows_of_one_b() {
    let is_ours = |(step, _): &(Step, Step)| step.name.starts_with("GPT2LMHead");
    let (step, base) = joined_steps().into_iter().find(is_ours).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = shared(dir.path(), &step);
    let back = loaded(dir.path(), &base);
    assert_eq!(back.model.adapters(), step.model.adapters());
    let last = back.model.blocks() as u16 - 1;
    let part = |role, part| {
        let id = ParamId::new(Layer::Block(last), role, part);
        back.params.get(id).unwrap().to_host().into_owned()
    };
    let roles = [Role::Query, Role::Key, Role::Value];
    assert_eq!(roles.map(|role| part(role, Part::LoraA)), [a.clone(), a.clone(), a]);
    assert_eq!(roles.map(|role| part(role, Part::LoraB)).concat(), b);
}

#[test]
fn a_joined_adapter_that_contradicts_itself_is_refused() {
    let is_ours = |(step, _): &(Step, Step)| step.name.starts_with("Phi3ForCausalLM");
    let (step, base) = joined_steps().into_iter().find(is_ours).unwrap();
    let check = |step: &Step, change: &dyn Fn(&Path), expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        saved(dir.path(), step);
        change(dir.path());
        let message = AdapterFolder::open(dir.path(), base.model.config()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}\nshould say {expected}");
    };
    let without = |end: &'static str| {
        move |dir: &Path| {
            with_tensors(dir, |name| Some(name.to_owned()).filter(|name| !name.contains(end)));
        }
    };
    check(&step, &without("1.self_attn.qkv_proj.lora_A"), "found one half of an adapter");
    let said = |ranks: Value, alphas: Value| {
        move |dir: &Path| {
            change_config(dir, &|config| {
                config["rank_pattern"] = ranks.clone();
                config["alpha_pattern"] = alphas.clone();
            });
        }
    };
    check(&step, &said(json!({}), json!({})), "qkv_proj.lora_A.weight\": found shape [9, 16]");
    let odd = said(json!({"qkv_proj": 4}), json!({"qkv_proj": 2.8}));
    check(&step, &odd, "found an adapter of rank 4 for 3 projections");
    let other = said(json!({"o_proj": 6}), json!({"o_proj": 4.2}));
    check(&step, &other, "rank_pattern: found a rank of its own for \"o_proj\"");
    let louder = said(json!({"qkv_proj": 9}), json!({"qkv_proj": 2.1}));
    check(&step, &louder, "rank_pattern: found {\"qkv_proj\":9}");
    // Nothing has learnt, and no value shows which two of the three are meant.
    let some = only(&adapted(&base, 0.0), &[Role::Query, Role::Value]);
    check(&some, &|_| {}, "found 2 adapters for 3 projections, 0 of them with values");
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
    assert!(
        weight.contains("expected an adapter inside a block or of lm_head, or a whole head"),
        "{weight}"
    );
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
    let steps: Vec<(Step, Step)> =
        steps().into_iter().chain(only_down()).chain(joined_steps()).chain(with_heads()).collect();
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
        saved(&dir.join("gradients"), &gradients(step));
        std::fs::write(dir.join("targets.json"), targets(base).to_string()).unwrap();
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

/// Adapters on the output vocabulary too, which may be the token embedding, and magnitudes where it is not.
fn with_heads() -> impl Iterator<Item = (Step, Step)> {
    let bases = Step::every_tiny().into_iter().filter(has_vocabulary);
    bases.flat_map(|base| {
        let plain = with_head(&base, 0.2);
        let is_tied = base.model.config().tie_word_embeddings;
        let own = (!is_tied).then(|| decomposed_from(&base, plain.clone(), 0.2));
        [Some(plain), own].into_iter().flatten().map(move |step| (step, base.clone()))
    })
}

/// The paths of the modules that names in `target_modules` mean, by name; `all-linear` is one of them.
fn targets(base: &Step) -> Value {
    let targets = Targets::of(base.model.config(), base.model.head()).unwrap();
    let paths = |roles: &BTreeSet<Role>| -> BTreeSet<String> {
        targets.modules(roles).into_iter().map(str::to_owned).collect()
    };
    let names = [
        "query",
        "value",
        "dense",
        "output.dense",
        "attention.output.dense",
        "q_proj",
        "o_proj",
        "proj",
        "self_attn.v_proj",
        "down_proj",
        "qkv_proj",
        "gate_up_proj",
        "c_attn",
        "c_proj",
        "mlp.c_proj",
        "Wqkv",
        "Wo",
        "Wi",
        "fc1",
    ];
    let named = names.map(|name| (name.to_owned(), json!(paths(&targets.ending(name).unwrap()))));
    let all = ("all-linear".to_owned(), json!(paths(&targets.all())));
    Value::Object(named.into_iter().chain([all]).collect())
}

/// The gradients of an adapter in the place of its numbers: of the sum of all logits, each times a factor that
/// `tools/check_peft.py` knows too.
fn gradients(step: &Step) -> Step {
    let parts = Scope::of_parts(step.model.layout(), Part::ADAPTER);
    let mut tape = Tape::new(&step.device);
    let logits = step.model.logits(&mut tape, step.params.training(&parts), &step.batch).unwrap();
    let (rows, cols) = logits.tensor.shape();
    let factors: Vec<f32> =
        (0..rows * cols).map(|place| (place * 37 % 11) as f32 / 5.0 - 1.0).collect();
    let factors = Tensor::from_slice(&step.device, rows, cols, &factors).unwrap();
    let gradients = tape.backward(&[(&logits, factors)]).unwrap();
    let mut params = step.params.clone();
    for id in &parts {
        let (rows, cols) = params.get(id).unwrap().shape();
        let values = gradients.get(id).unwrap().to_dense();
        params.insert(id, Tensor::from_slice(&step.device, rows, cols, &values).unwrap());
    }
    Step { params, ..step.clone() }
}

/// An encoder whose feed-forward outputs alone are adapted, for which names are no pattern.
fn only_down() -> Option<(Step, Step)> {
    let (_, base) = steps().into_iter().find(|(step, _)| step.name.starts_with("Bert"))?;
    let step = only(&adapted(&base, 0.2), &[Role::Down]);
    assert!(step.params.iter().any(|(id, _)| id.part == Part::LoraB));
    Some((step, base))
}
