//! Adapters on the output vocabulary: the model answers and learns as one whose head is corrected and whose embedding is
//! not, whether or not the two are one weight.

use crate::agreement::relative_f32;
use crate::by_example::check;
use crate::golden::{self, TinyCase};
use crate::lora::{adapted_on, assert_gradients, decomposed_from, merged};
use crate::peft::{assert_same, change_config, loaded, saved};
use crate::step::{Answers, Step, bits};
use fedra_compute::{Device, Seed, Tape, Tensor, WeightFormat};
use fedra_model::hf::safetensors::Reader;
use fedra_model::hf::{Companions, Config, Precision, Tensors as _, writer};
use fedra_model::peft::AdapterFolder;
use fedra_model::{
    Adapters, Batch, Classifier, Head, Model, Preset, Saving, Targets, WeightStorage, load, save,
};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// The same product in two orders of f32 sums, through models of which some scale their embedding.
const NEAR: f64 = 1e-5;
/// A gradient in two ways, through the same models.
const GRADIENTS: f64 = 3e-5;

/// Whether a model writes words.
pub fn has_vocabulary(step: &Step) -> bool {
    step.model.head() == Head::Language && step.model.is_decoder()
}

/// The step with adapters on queries, values and the output vocabulary.
pub fn with_head(base: &Step, scale: f64) -> Step {
    adapted_on(base, [Role::Query, Role::Value, Role::Vocabulary], scale)
}

fn part(layer: Layer, role: Role, part: Part) -> ParamId {
    ParamId::new(layer, role, part)
}

/// Decoders of several families; among them are tied ones, and one that caps its logits.
fn bases() -> Vec<Step> {
    let files = ["tiny_llama.json", "families.json"];
    let cases = files.into_iter().flat_map(golden::cases::<TinyCase>);
    let bases: Vec<Step> = cases.map(|case| Step::tiny(&case)).filter(has_vocabulary).collect();
    let tied = bases.iter().filter(|base| base.model.config().tie_word_embeddings).count();
    assert!(tied > 0 && tied < bases.len(), "{tied} of {}", bases.len());
    assert!(bases.iter().any(|base| base.model.config().logit_cap.is_some()));
    bases
}

/// The same model whose output vocabulary is a weight of its own.
fn untied(base: &Step) -> Step {
    let config = Config { tie_word_embeddings: false, ..base.model.config().clone() };
    let model = Model::new(config, Head::Language, None).unwrap();
    let mut params = base.params.clone();
    let own = part(Layer::Head, Role::Vocabulary, Part::Weight);
    if params.find(own).is_none() {
        let token = part(Layer::Embedding, Role::Token, Part::Weight);
        params.insert(own, params.get(token).unwrap().clone());
    }
    Step { model, params, ..base.clone() }
}

#[test]
fn the_head_is_corrected_and_the_embedding_is_not() {
    for base in bases() {
        let (adapted, untied) = (with_head(&base, 0.3), untied(&base));
        let merged = merged(&untied, &adapted);
        let off = relative_f32(&adapted.logits().to_host(), &merged.logits().to_host());
        assert!(off < NEAR, "{}: {off:.1e}", base.name);
        let blocks = adapted_on(&base, [Role::Query, Role::Value], 0.3);
        let unlike = relative_f32(&blocks.logits().to_host(), &merged.logits().to_host());
        assert!(unlike > 1e-2, "{}: the head's adapter does something", base.name);
        let [found, expected] =
            [&adapted, &merged].map(|step| f64::from(step.take(&step.everything()).loss));
        assert!((found / expected - 1.0).abs() < NEAR, "{}: {found} {expected}", base.name);
        let fresh = with_head(&base, 0.0);
        assert_eq!(bits(&fresh.logits().to_host()), bits(&base.logits().to_host()));
    }
}

#[test]
fn gradients_follow_from_those_of_the_merged_head() {
    for base in bases() {
        let adapted = with_head(&base, 0.3);
        assert_gradients(&untied(&base), &adapted, GRADIENTS);
        // Rows without a target are left out by either way of reading them.
        let parts = Scope::of_parts(adapted.model.layout(), Part::ADAPTER);
        let (one, other) = (adapted.take(&parts), adapted.take_over_all_rows(&parts));
        assert_eq!(one.loss.to_bits(), other.loss.to_bits(), "{}", base.name);
    }
}

#[test]
fn examples_are_told_apart_and_the_weights_below_stay_as_they_are() {
    for base in bases() {
        let adapted = with_head(&base, 0.2);
        let parts = Scope::of_parts(adapted.model.layout(), [Part::LoraA, Part::LoraB]);
        check(&adapted, &parts);
        check(&adapted, &Scope::of_layers(adapted.model.layout(), [Layer::Head]));
        let found = adapted.take(&parts).gradients;
        assert!(found.iter().map(|(id, _)| id).eq(parts.iter()), "{}", base.name);
    }
}

#[test]
fn without_its_adapters_a_model_is_its_base() {
    for base in bases() {
        let adapted = with_head(&base, 0.3);
        let reference = adapted.model.without_adapters().unwrap();
        let reference = Step { model: reference, ..adapted };
        assert_eq!(bits(&reference.logits().to_host()), bits(&base.logits().to_host()));
        assert_eq!(reference.model.layout(), base.model.layout());
    }
}

#[test]
fn a_text_without_a_target_and_weights_of_other_rows_are_refused() {
    let base = &bases()[0];
    let adapted = with_head(base, 0.3);
    let loss = |step: &Step, targets: &[Option<u32>]| {
        let mut tape = Tape::new(&step.device);
        let batch = Batch::new(&[[1u32, 2]]).unwrap();
        let targets = Targets::Classes(targets);
        step.model.loss(&mut tape, step.params.frozen(), &batch, targets).map(drop)
    };
    let message = |targets: &[Option<u32>]| {
        [base, &adapted].map(|step| loss(step, targets).unwrap_err().to_string())
    };
    for targets in [&[None, None][..], &[Some(1)], &[Some(1), Some(9_999_999)]] {
        let [plain, corrected] = message(targets);
        assert_eq!(plain, corrected);
    }
}

#[test]
fn magnitudes_are_for_a_head_with_a_weight_of_its_own() {
    for base in bases() {
        let plain = with_head(&base, 0.3);
        if base.model.config().tie_word_embeddings {
            let adapters = plain.model.adapters().cloned().map(Adapters::with_magnitudes);
            let config = base.model.config().clone();
            let error = Model::new(config, Head::Language, adapters).unwrap_err().to_string();
            assert!(error.starts_with("LoRA role: found vocabulary with magnitudes"), "{error}");
            continue;
        }
        let own = decomposed_from(&base, plain, 0.3);
        let off = relative_f32(&own.logits().to_host(), &merged(&base, &own).logits().to_host());
        assert!(off < NEAR, "{}: {off:.1e}", base.name);
        let mut params = own.params.clone();
        let settled = own.model.settled(&mut params).unwrap();
        let settled = Step { model: settled, params, ..own.clone() };
        assert_eq!(bits(&settled.logits().to_host()), bits(&own.logits().to_host()));
    }
}

/// A decoder that is wide enough for weights in fewer bits.
fn wide_base(tie_word_embeddings: bool) -> Step {
    let device = Device::cpu();
    let config = Config { tie_word_embeddings, ..Preset::TinyDecoder.config() };
    let model = Model::new(config, Head::Language, None).unwrap();
    let params = model.fresh_params(&device, Seed(3)).unwrap();
    let batch = Batch::new(&[[1u32, 7, 5, 2, 9]]).unwrap();
    let answers = Answers::Classes(vec![Some(7), Some(5), None, Some(9), Some(1)]);
    Step { name: format!("tied {tie_word_embeddings}"), device, model, params, batch, answers }
}

#[test]
fn weights_below_may_be_stored_in_fewer_bits() {
    for base in [true, false].map(wide_base) {
        let adapted = with_head(&base, 0.3);
        let frozen = Scope::everything(base.model.layout());
        for format in [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4] {
            let storage = WeightStorage::new(format, adapted.model.layout(), &frozen);
            let (mut stored, mut stood_for) = (adapted.clone(), adapted.clone());
            let tables = storage.scope().iter().filter(|id| id.layer.block().is_none()).count();
            assert_eq!(tables, if base.model.config().tie_word_embeddings { 1 } else { 2 });
            for id in storage.scope() {
                let tensor = adapted.params.get(id).unwrap();
                let (shape, values) = (tensor.shape(), tensor.to_host());
                let few = Tensor::stored_as(&base.device, storage.of(id), shape, &values).unwrap();
                let (rows, cols) = shape;
                let many = Tensor::from_slice(&base.device, rows, cols, &few.to_host()).unwrap();
                stood_for.params.insert(id, many);
                stored.params.insert(id, few);
            }
            assert_eq!(bits(&stored.logits().to_host()), bits(&stood_for.logits().to_host()));
            let parts = Scope::of_parts(adapted.model.layout(), Part::ADAPTER);
            stored.take(&parts).assert_same(&stood_for.take(&parts), &base.name);
        }
    }
}

fn write(dir: &Path, step: &Step) {
    let companions = Companions::default();
    let saving =
        Saving { precision: Precision::F32, labels: None, problem: None, companions: &companions };
    save(dir, &step.model, &step.params, &saving).unwrap();
}

#[test]
fn a_tied_head_is_saved_untied_once_its_adapter_is_merged_in() {
    for base in bases() {
        let adapted = with_head(&base, 0.3);
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &adapted);
        let loaded = load(dir.path(), Head::Language, None, (&base.device, Seed(1))).unwrap();
        assert!(!loaded.model.config().tie_word_embeddings);
        assert!(loaded.report.fresh.is_empty() && loaded.report.ignored.is_empty());
        let token = part(Layer::Embedding, Role::Token, Part::Weight);
        let [ours, theirs] = [&base.params, &loaded.params].map(|it| it.get(token).unwrap());
        assert_eq!(bits(&ours.to_host()), bits(&theirs.to_host()), "{}", base.name);
        let loaded = Step { model: loaded.model, params: loaded.params, ..base.clone() };
        let off = relative_f32(&loaded.logits().to_host(), &adapted.logits().to_host());
        assert!(off < NEAR, "{}: {off:.1e}", base.name);
    }
}

fn settings(dir: &Path) -> Value {
    let file = std::fs::read(dir.join("adapter_config.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

#[test]
fn an_adapter_of_the_head_comes_back_from_a_folder_of_peft() {
    for base in bases() {
        let plain = with_head(&base, 0.2);
        let is_tied = base.model.config().tie_word_embeddings;
        let own = (!is_tied).then(|| decomposed_from(&base, plain.clone(), 0.2));
        for step in [Some(plain), own].into_iter().flatten() {
            let dir = tempfile::tempdir().unwrap();
            saved(dir.path(), &step);
            let back = loaded(dir.path(), &base);
            assert_eq!(back.model.adapters(), step.model.adapters(), "{}", base.name);
            assert_same(&back.params, &step.params);
            let config = settings(dir.path());
            let names = |key: &str| config[key].as_array().unwrap().clone();
            assert!(names("target_modules").contains(&json!("lm_head")), "{config}");
            assert!(!names("modules_to_save").contains(&json!("lm_head")), "{config}");
            let reader = Reader::open(dir.path().join("adapter_model.safetensors")).unwrap();
            let head: Vec<&str> = reader.names().filter(|name| name.contains("lm_head")).collect();
            let mut expected = vec![
                "base_model.model.lm_head.lora_A.weight",
                "base_model.model.lm_head.lora_B.weight",
            ];
            if step.model.adapters().unwrap().has_magnitudes() {
                expected.push("base_model.model.lm_head.lora_magnitude_vector");
            }
            assert_eq!(head, expected, "{}", base.name);
        }
    }
}

/// Every base, the step with adapters on it, and the folder of PEFT that these are saved in.
fn saved_bases() -> impl Iterator<Item = (Step, Step, TempDir)> {
    bases().into_iter().map(|base| {
        let step = with_head(&base, 0.2);
        let dir = tempfile::tempdir().unwrap();
        saved(dir.path(), &step);
        (base, step, dir)
    })
}

/// Writes the copy of the adapted weight that the library puts beside its adapter, with a factor.
fn with_base(dir: &Path, base: &Step, factor: f32) {
    let path = dir.join("adapter_model.safetensors");
    let reader = Reader::open(&path).unwrap();
    let of = |name: &str| {
        (reader.info(name).unwrap().shape.to_vec(), reader.read_f32(name).unwrap().clone())
    };
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)> =
        reader.names().map(|name| (name.to_owned(), of(name))).collect();
    let own = part(Layer::Head, Role::Vocabulary, Part::Weight);
    let weight = untied(base).params.get(own).unwrap().clone();
    let values = weight.to_host().iter().map(|value| factor * value).collect();
    let name = "base_model.model.lm_head.base_layer.weight".to_owned();
    tensors.insert(name, (vec![weight.rows(), weight.cols()], values));
    let all = tensors.iter().map(|(name, (shape, values))| (&**name, &shape[..], &values[..]));
    writer::write(&path, all, Precision::F32).unwrap();
}

#[test]
fn the_copy_of_the_head_that_peft_writes_has_to_be_the_bases() {
    for (base, step, dir) in saved_bases() {
        with_base(dir.path(), &base, 1.0);
        assert_same(&loaded(dir.path(), &base).params, &step.params);
        with_base(dir.path(), &base, 1.1);
        let folder = AdapterFolder::open(dir.path(), base.model.config()).unwrap();
        let mut params = step.params.clone();
        let error = folder.load((&step.model, &mut params), &Classifier::Stored, &base.device);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("found another output vocabulary"), "{error}");
    }
}

#[test]
fn an_adapter_that_the_embedding_would_share_is_refused() {
    for (base, _, dir) in saved_bases() {
        change_config(dir.path(), &|config| config["ensure_weight_tying"] = json!(true));
        let opened = AdapterFolder::open(dir.path(), base.model.config());
        assert_eq!(opened.is_err(), base.model.config().tie_word_embeddings, "{}", base.name);
        if let Err(error) = opened {
            assert!(error.to_string().contains("ensure_weight_tying: found true"), "{error}");
        }
        change_config(dir.path(), &|config| config["ensure_weight_tying"] = json!("both"));
        let error = AdapterFolder::open(dir.path(), base.model.config()).unwrap_err().to_string();
        assert!(error.contains("ensure_weight_tying: found \"both\""), "{error}");
    }
}

#[test]
fn a_model_that_writes_no_words_has_no_head_to_adapt() {
    for step in Step::every_tiny().iter().filter(|step| !has_vocabulary(step)) {
        let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Vocabulary]).unwrap();
        let config = step.model.config().clone();
        let error = Model::new(config, step.model.head(), Some(adapters)).unwrap_err().to_string();
        let expected = "LoRA role: found vocabulary, expected a decoder that answers in text";
        assert!(error.starts_with(expected), "{}: {error}", step.name);
    }
}
