//! Folders: what is saved is what is loaded, and what cannot be is said.

use crate::step::{Step, bits, names};
use fedra_compute::{Seed, WeightFormat};
use fedra_model::hf::{
    Architecture, Checkpoint, Companions, Config, Precision, Problem, Weights, writer,
};
use fedra_model::{
    ClassKind, Classifier, Head, Loaded, Model, ModelError, Saving, Wanted, WeightStorage, load,
    load_part, load_part_as, open_checkpoint, save,
};
use fedra_plan::{Layer, Layout, ParamId};
use half::{bf16, f16};
use std::path::Path;

fn saving(precision: Precision, companions: &Companions) -> Saving<'_> {
    Saving { precision, labels: None, problem: None, companions }
}

fn write(dir: &Path, step: &Step, precision: Precision) {
    let companions = Companions::default();
    save(dir, &step.model, &step.params, &saving(precision, &companions)).unwrap();
}

fn read(dir: &Path, step: &Step, head: Head) -> Result<Loaded, ModelError> {
    load(dir, head, None, (&step.device, Seed(1)))
}

/// Every task, and both backbones alone.
pub fn every_architecture() -> Vec<Step> {
    let mut steps = Step::every_tiny();
    steps.extend([bare(&steps[0]), bare(&steps[4])]);
    steps
}

/// The backbone of a step alone.
pub fn bare(step: &Step) -> Step {
    let model = Model::new(step.model.config().clone(), Head::Bare, None).unwrap();
    let own = step.params.iter().filter(|(id, _)| model.layout().contains(*id));
    let params = own.map(|(id, tensor)| (id, tensor.clone())).collect();
    Step { name: "bare".into(), model, params, ..step.clone() }
}

#[track_caller]
fn check_round_trip(precision: Precision, stored: impl Fn(f32) -> f32) {
    for step in every_architecture() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &step, precision);
        let loaded = read(dir.path(), &step, step.model.head()).unwrap();
        assert!(
            loaded.report.lines().is_empty() && loaded.report.fresh.is_empty(),
            "{}",
            step.name
        );
        assert_eq!(loaded.model.layout(), step.model.layout(), "{}", step.name);
        assert_eq!(loaded.params.len(), step.params.len(), "{}", step.name);
        for (id, tensor) in loaded.params.iter() {
            let original = step.params.get(id).unwrap();
            assert_eq!(tensor.shape(), original.shape(), "{}, {id}", step.name);
            let expected: Vec<f32> = original.to_host().iter().map(|x| stored(*x)).collect();
            assert_eq!(bits(&tensor.to_host()), bits(&expected), "{}, {id}", step.name);
        }
        let (logits, exact) = (step.logits(), stored(0.1) == 0.1);
        let loaded = Step { model: loaded.model, params: loaded.params, ..step };
        let same = bits(&loaded.logits().to_host()) == bits(&logits.to_host());
        assert_eq!(same, exact, "{}", loaded.name);
    }
}

#[test]
fn f32_comes_back_to_the_bit() {
    check_round_trip(Precision::F32, |x| x);
}

#[test]
fn f16_comes_back_rounded_once() {
    check_round_trip(Precision::F16, |x| f16::from_f32(x).to_f32());
}

#[test]
fn bf16_comes_back_rounded_once() {
    check_round_trip(Precision::BF16, |x| bf16::from_f32(x).to_f32());
}

#[test]
fn what_is_bf16_in_a_file_and_in_memory_is_what_it_is_by_way_of_f32() {
    let mut halves = 0;
    for step in every_architecture().into_iter().chain(Step::families()) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &step, Precision::BF16);
        let wide = read(dir.path(), &step, step.model.head()).unwrap();
        let checkpoint = open_checkpoint(dir.path()).unwrap();
        let wanted =
            Wanted { head: step.model.head(), classifier: Classifier::Stored, adapters: None };
        let in_bf16 = |layout: &Layout| WeightStorage::of_all(WeightFormat::Bf16, layout);
        let how = (&step.device, Seed(1));
        let loaded = load_part_as(&checkpoint, wanted, how, |_| true, in_bf16).unwrap();
        assert_eq!(loaded.params.len(), wide.params.len(), "{}", step.name);
        for (id, tensor) in loaded.params.iter() {
            let expected = wide.params.get(id).unwrap().to_host();
            assert_eq!(bits(&tensor.to_host()), bits(&expected), "{}, {id}", step.name);
            assert_eq!(tensor.format(), loaded.model.storage().of(id), "{}, {id}", step.name);
            halves += usize::from(tensor.is_bf16());
        }
    }
    assert!(halves > 20, "{halves}");
}

#[test]
fn an_encoder_without_segments_answers_the_same_from_its_folder() {
    let step = &Step::every_tiny()[0];
    let mut config = step.model.config().clone();
    config.type_vocab_size = 0;
    let model = Model::new(config, step.model.head(), None).unwrap();
    let step = Step { model, ..step.clone() };
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, Precision::F32);
    let loaded = read(dir.path(), &step, step.model.head()).unwrap();
    assert_eq!(loaded.model.layout().len(), step.model.layout().len() + 1);
    let loaded = Step { model: loaded.model, params: loaded.params, ..step.clone() };
    assert_eq!(bits(&loaded.logits().to_host()), bits(&step.logits().to_host()));
}

#[test]
fn a_new_head_is_fresh_reported_and_the_same_for_the_same_seed() {
    let step = &Step::every_tiny()[0];
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), step, Precision::F32);
    let head = Head::Tokens { classes: 9 };
    let loaded = read(dir.path(), step, head).unwrap();
    let fresh = |loaded: &Loaded| loaded.report.fresh.iter().map(|f| f.id).collect::<Vec<_>>();
    let text: Vec<String> = fresh(&loaded).iter().map(ToString::to_string).collect();
    assert_eq!(text, ["head.classifier.weight", "head.classifier.bias"]);
    assert_eq!(
        loaded.report.lines(),
        [
            "reinitialised: classifier.weight, classifier.bias (the head is 9 x 24, the folder has 5 x 24)",
            "ignored: bert.pooler.dense.weight, bert.pooler.dense.bias (a head that this task \
             does not use)",
        ]
    );
    let weight = |seed| {
        let loaded = load(dir.path(), head, None, (&step.device, Seed(seed))).unwrap();
        bits(&loaded.params.get(fresh(&loaded)[0]).unwrap().to_host())
    };
    assert_eq!(weight(1), weight(1));
    assert_ne!(weight(1), weight(2));
    for (id, tensor) in loaded.params.iter().filter(|(id, _)| !fresh(&loaded).contains(id)) {
        assert_eq!(*tensor.to_host(), *step.params.get(id).unwrap().to_host(), "{id}");
    }
}

#[test]
fn new_labels_and_their_problem_are_written() {
    for step in Step::every_tiny() {
        let dir = tempfile::tempdir().unwrap();
        let companions = Companions::default();
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).into();
        let named = Saving {
            labels: Some(names.clone()),
            problem: Some(Problem::MultiLabel),
            ..saving(Precision::F32, &companions)
        };
        save(dir.path(), &step.model, &step.params, &named).unwrap();
        let config = Config::open(dir.path()).unwrap();
        match step.model.head() {
            Head::Sequence { .. } | Head::Tokens { .. } => {
                let labels = config.labels.as_ref().unwrap();
                assert_eq!((&labels.names, labels.problem), (&names, Some(Problem::MultiLabel)));
                save(dir.path(), &step.model, &step.params, &saving(Precision::F32, &companions))
                    .unwrap();
                let config = Config::open(dir.path()).unwrap();
                assert_eq!(config.labels.as_ref().unwrap().names[4], "LABEL_4");
                let few = Saving { labels: Some(names[..4].to_vec()), ..named };
                let error = save(dir.path(), &step.model, &step.params, &few).unwrap_err();
                assert_eq!(error.to_string(), "number of label names: found 4, expected 5");
            }
            Head::Bare | Head::Language => {
                assert_eq!(config.labels.as_ref(), None, "{}", step.name);
            }
        }
    }
}

#[test]
fn what_is_in_the_way_of_loading_is_named() {
    for step in Step::every_tiny() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &step, Precision::F32);
        let architecture = step.model.config().architecture().unwrap();
        let id = "block.1.query.weight".parse().unwrap();
        let name = architecture.tensor_name(id).unwrap();
        let path = dir.path().join("model.safetensors");
        let refused = |shape: Option<&[usize]>, extra: Option<&str>, found: &str| {
            write(dir.path(), &step, Precision::F32);
            change(dir.path(), &name, shape, extra);
            let error = read(dir.path(), &step, step.model.head()).unwrap_err();
            let message = error.to_string();
            let start = format!("{}: ", path.display());
            assert!(message.starts_with(&start) && message.ends_with(found), "{message}");
        };
        let expected = format!("block.1.query.weight as {name:?}: found");
        refused(
            Some(&[12, 48]),
            None,
            &format!(
                "{expected} F32 of shape [12, 48], expected F32, F16 or BF16 of shape [24, 24]"
            ),
        );
        refused(None, None, &format!("{expected} no such tensor, expected one of shape [24, 24]"));
        let family = format!("a {} model", step.model.config().family.name);
        refused(
            Some(&[24, 24]),
            Some("adapter"),
            &format!("tensor \"adapter\": found an unknown name, expected a tensor of {family}"),
        );
    }
}

/// Writes a folder's weights again, with one tensor in another shape or left out, and one more.
fn change(dir: &Path, name: &str, shape: Option<&[usize]>, extra: Option<&str>) {
    let weights = Weights::open(dir).unwrap();
    let mut tensors = Vec::new();
    for tensor in weights.names() {
        let old = weights.info(tensor).unwrap().shape.to_vec();
        let new = if tensor == name { shape.map(<[usize]>::to_vec) } else { Some(old) };
        tensors
            .extend(new.map(|shape| (tensor.to_owned(), shape, weights.read_f32(tensor).unwrap())));
    }
    tensors.extend(extra.map(|name| (name.to_owned(), vec![1], vec![0.0])));
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let slices = tensors.iter().map(|(name, shape, values)| (&**name, &**shape, &**values));
    writer::write(&dir.join("model.safetensors"), slices, Precision::F32).unwrap();
}

#[test]
fn what_other_libraries_cannot_read_is_not_saved() {
    let step = &Step::every_tiny()[0];
    let head = Head::Sequence { classes: 5, pooler: false };
    let model = Model::new(step.model.config().clone(), head, None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let companions = Companions::default();
    let error = save(dir.path(), &model, &step.params, &saving(Precision::F32, &companions));
    assert_eq!(
        error.unwrap_err().to_string(),
        "head to save: found an encoder's sequence head without a pooler, expected one with a \
         pooler, which other libraries always have"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn every_parameter_of_every_architecture_has_a_name_of_its_own() {
    for step in every_architecture() {
        let saved = step.model.config().architecture().unwrap();
        let architecture = match step.model.head() {
            Head::Bare => Architecture { kind: ClassKind::Base, ..saved },
            Head::Sequence { .. } | Head::Tokens { .. } | Head::Language => saved,
        };
        assert_eq!(names(&step.model, architecture).len(), step.model.layout().len());
    }
}

#[test]
fn a_decoder_made_in_code_is_saved_and_loaded() {
    let config = Config {
        vocab_size: 47,
        hidden_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: Some(1),
        head_dim: Some(4),
        intermediate_size: 12,
        max_position_embeddings: 16,
        ..Config::llama()
    };
    let step = Step::every_tiny().pop().unwrap();
    let model = Model::new(config, Head::Language, None).unwrap();
    let params = model.fresh_params(&step.device, Seed(3)).unwrap();
    let step = Step { model, params, ..step };
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, Precision::F32);
    let loaded = read(dir.path(), &step, Head::Language).unwrap();
    let loaded = Step { model: loaded.model, params: loaded.params, ..step.clone() };
    assert_eq!(bits(&loaded.logits().to_host()), bits(&step.logits().to_host()));
}

#[test]
fn one_side_of_a_cut_is_loaded_without_the_other_and_to_the_bit() {
    let step = Step::every_tiny()
        .into_iter()
        .find(|step| step.model.is_decoder() && step.model.head() == Head::Language);
    let step = step.unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, Precision::F32);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let server = |layer: Layer| layer == Layer::Block(1);
    for kept_by_server in [true, false] {
        let wanted =
            Wanted { head: Head::Language, classifier: Classifier::Stored, adapters: None };
        let how = (&step.device, Seed(1));
        let keep = |id: ParamId| server(id.layer) == kept_by_server;
        let part = load_part(&checkpoint, wanted, how, keep).unwrap();
        let expected: Vec<_> = step.params.iter().filter(|(id, _)| keep(*id)).collect();
        assert!(!part.params.is_empty() && part.params.len() < step.params.len());
        assert_eq!(part.params.len(), expected.len());
        for (id, tensor) in expected {
            let found = part.params.get(id).unwrap();
            assert_eq!(bits(&found.to_host()), bits(&tensor.to_host()), "{id}");
        }
    }
}
