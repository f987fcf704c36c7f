//! Models of images: what differs from text, and what must not.

use crate::formula::Spec;
use crate::golden;
use crate::step::{Answers, Step, bits};
use fedra_compute::{Device, Optimiser, Seed, Solver, Tape, Tensor, ThreadPool};
use fedra_model::hf::{Checkpoint, Companions, Precision, Weights, writer};
use fedra_model::{
    Batch, Classifier, Head, ImageInput, Model, PrefixCache, Preset, Reading, Saving, Wanted, load,
    load_checkpoint, save,
};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};
use serde::Deserialize;
use std::path::Path;

const POSITION: ParamId = ParamId::new(Layer::Embedding, Role::Position, Part::Weight);

fn write(dir: &Path, step: &Step) {
    let companions = Companions::default();
    let precision = Precision::F32;
    let saving = Saving { precision, labels: None, problem: None, companions: &companions };
    save(dir, &step.model, &step.params, &saving).unwrap();
}

#[test]
fn a_saved_folder_comes_back_to_the_bit() {
    for step in Step::images() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &step);
        let loaded = load(dir.path(), step.model.head(), None, (&step.device, Seed(1))).unwrap();
        assert!(loaded.report.fresh.is_empty(), "{}", step.name);
        let noted = loaded.report.lines().join("\n");
        let mask = "embeddings.mask_token (used in pre-training only)";
        let has_mask = step.model.config().layer_scale;
        assert_eq!(noted.ends_with(mask), has_mask, "{}: {noted}", step.name);
        assert_eq!(noted.lines().count(), usize::from(has_mask), "{}: {noted}", step.name);
        assert_eq!(loaded.model.layout(), step.model.layout(), "{}", step.name);
        let again = Step { model: loaded.model, params: loaded.params, ..step.clone() };
        assert_eq!(again.model.config().image, step.model.config().image, "{}", step.name);
        let (found, expected) = (again.logits(), step.logits());
        assert_eq!(bits(&found.to_host()), bits(&expected.to_host()), "{}", step.name);
    }
}

#[test]
fn tensors_have_the_shapes_of_the_library() {
    let dir = tempfile::tempdir().unwrap();
    let step = &Step::images()[0];
    write(dir.path(), step);
    let weights = Weights::open(dir.path()).unwrap();
    let shape = |name: &str| weights.info(name).unwrap().shape.to_vec();
    assert_eq!(shape("vit.embeddings.cls_token"), [1, 1, 16]);
    assert_eq!(shape("vit.embeddings.position_embeddings"), [1, 7, 16]);
    assert_eq!(shape("vit.embeddings.patch_embeddings.projection.weight"), [16, 3, 4, 4]);
}

/// A folder's tensors with some changed.
fn changed(dir: &Path, change: impl Fn(&str) -> Vec<String>) {
    let weights = Weights::open(dir).unwrap();
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = Vec::new();
    for name in weights.names() {
        let shape = weights.info(name).unwrap().shape.to_vec();
        for new in change(name) {
            tensors.push((new, shape.clone(), weights.read_f32(name).unwrap()));
        }
    }
    drop(weights);
    let list = tensors.iter().map(|(name, shape, values)| (&**name, &**shape, &**values));
    writer::write(&dir.join("model.safetensors"), list, Precision::F32).unwrap();
}

#[test]
fn a_backbone_with_a_pooler_and_a_model_with_a_teacher_give_their_backbones() {
    let steps = Step::images();
    let of = |kind: &str| steps.iter().find(|step| step.name.starts_with(kind)).unwrap();
    for (step, other) in [
        (of("ViT"), vec!["pooler.dense.weight"]),
        (of("DeiT"), vec!["cls_classifier.weight", "distillation_classifier.weight"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), step);
        changed(dir.path(), |name| match name {
            "classifier.weight" => other.iter().map(|name| (*name).to_owned()).collect(),
            "classifier.bias" => Vec::new(),
            name => vec![name.strip_prefix("vit.").unwrap_or(name).to_owned()],
        });
        let head = Head::Sequence { classes: 3, pooler: false };
        let loaded = load(dir.path(), head, None, (&step.device, Seed(1))).unwrap();
        let lines = loaded.report.lines();
        assert_eq!(
            lines,
            [
                "reinitialised: classifier.weight, classifier.bias (the folder has none)"
                    .to_owned(),
                format!("ignored: {} (a head of another task)", other.join(", ")),
            ]
        );
        let norm = ParamId::new(Layer::Head, Role::FinalNorm, Part::Weight);
        for id in [norm, POSITION] {
            let (found, expected) = (loaded.params.get(id).unwrap(), step.params.get(id).unwrap());
            assert_eq!(bits(&found.to_host()), bits(&expected.to_host()), "{id}");
        }
    }
}

#[derive(Deserialize)]
struct Resized {
    config: serde_json::Value,
    size: [usize; 2],
    positions: Vec<f64>,
}

#[test]
fn positions_for_images_of_another_size_are_those_that_transformers_interpolates() {
    for case in golden::cases::<Resized>("positions.json") {
        let json = case.config.to_string();
        let config = fedra_model::hf::Config::parse("config.json".as_ref(), json.as_bytes());
        let head = Head::Sequence { classes: 2, pooler: false };
        let model = Model::new(config.unwrap(), head, None).unwrap();
        let device = Device::cpu();
        let mut params = model.fresh_params(&device, Seed(1)).unwrap();
        let shape = model.layout().get(POSITION).unwrap().dims().to_vec();
        let spec = Spec { shape: shape.clone(), seed: 5, scale: 1.0, offset: 0.0 };
        let table = Tensor::from_slice(&device, shape[0], shape[1], &spec.values()).unwrap();
        params.insert(POSITION, table);
        let dir = tempfile::tempdir().unwrap();
        let batch = Batch::new(&[[0]]).unwrap();
        let (name, answers) = (String::new(), Answers::Labels(Vec::new()));
        write(dir.path(), &Step { name, device: device.clone(), model, params, batch, answers });
        let [height, width] = case.size;
        let checkpoint = Checkpoint::open(dir.path()).unwrap().resized(height, width).unwrap();
        let wanted = Wanted { head, classifier: Classifier::Stored, adapters: None };
        let loaded = load_checkpoint(&checkpoint, wanted, (&device, Seed(1))).unwrap();
        let image = loaded.model.config().image.unwrap();
        assert_eq!((image.height, image.width), (height, width));
        let found = loaded.params.get(POSITION).unwrap().to_host().into_owned();
        assert_eq!(found.len(), case.positions.len());
        for (found, expected) in found.iter().zip(&case.positions) {
            let apart = (f64::from(*found) - expected).abs();
            assert!(apart < 1e-6, "{}: {found} and {expected}", case.config["model_type"]);
        }
        // Its own size brings its own table back.
        let side = case.config["image_size"].as_u64().unwrap() as usize;
        let same = checkpoint.resized(side, side).unwrap();
        let wanted = Wanted { head, classifier: Classifier::Stored, adapters: None };
        let loaded = load_checkpoint(&same, wanted, (&device, Seed(1))).unwrap();
        let found = loaded.params.get(POSITION).unwrap().to_host().into_owned();
        assert_eq!(bits(&found), bits(&spec.values()));
    }
}

#[test]
fn a_cut_in_the_middle_changes_no_bit() {
    for step in Step::images() {
        let expected = step.take(&step.everything());
        let mut tape = Tape::new(&step.device);
        let weights = step.params.frozen();
        let (model, packing) = (&step.model, step.batch.packing());
        let hidden = model.embed(&mut tape, weights, &step.batch).unwrap();
        let front = model.run_blocks(&mut tape, weights, hidden, packing, 0..1, &Reading::All);
        let received = front.unwrap().tensor;
        let mut tape = Tape::new(&step.device);
        let behind = step.everything();
        let hidden = tape.input(received);
        let weights = step.params.training(&behind);
        let from = (hidden.clone(), 1);
        let loss = model.loss_from(&mut tape, weights, from, &step.batch, step.answers.targets());
        let loss = loss.unwrap();
        assert_eq!(loss.tensor.item().to_bits(), expected.loss.to_bits(), "{}", step.name);
        let one = Tensor::scalar(&step.device, 1.0);
        let gradients = tape.backward(&[(&loss, one)]).unwrap();
        assert!(gradients.of_input(&hidden).is_some());
        let id = ParamId::new(Layer::Block(1), Role::Query, Part::Weight);
        let dense = |gradients: &fedra_compute::Gradients| gradients.get(id).unwrap().to_dense();
        assert_eq!(bits(&dense(&gradients)), bits(&dense(&expected.gradients)), "{}", step.name);
    }
}

#[test]
fn a_step_without_numbers_and_pixels_takes_the_memory_of_a_step_with_them() {
    let pool = ThreadPool::new(1).unwrap();
    pool.install(|| {
        for step in Step::images() {
            for private in [false, true] {
                let ids = step.batch.ids().to_vec();
                let unseen = Batch::packed(ids, step.batch.packing().lengths().to_vec()).unwrap();
                let on = |device: Device, batch: &Batch| {
                    let params = step.model.fresh_params(&device, Seed(1)).unwrap();
                    device.reset_peak();
                    let scope = step.everything();
                    let sequences = step.batch.packing().boundaries();
                    let mut tape = if private {
                        Tape::by_example(&device, &sequences)
                    } else {
                        Tape::new(&device)
                    };
                    let targets = step.answers.targets();
                    let weights = params.training(&scope);
                    let loss = step.model.loss(&mut tape, weights, batch, targets).unwrap();
                    let seeds = [(&loss, Tensor::scalar(&device, 1.0))];
                    if private {
                        let found = tape.backward_by_example(&seeds).unwrap();
                        drop(found.weighted_sum(|_, _| 0.5));
                    } else {
                        drop(tape.backward(&seeds).unwrap());
                    }
                    device.usage().peak_bytes
                };
                let (meta, cpu) = (on(Device::meta(), &unseen), on(Device::cpu(), &step.batch));
                assert_eq!(meta, cpu, "{}, private: {private}", step.name);
            }
        }
    });
}

#[test]
fn a_cached_prefix_is_not_that_of_an_image_that_was_flipped() {
    let step = &Step::images()[0];
    let hidden = |cache: &mut PrefixCache, batch: &Batch| {
        let mut tape = Tape::new(&step.device);
        let known = (&step.model, &step.params);
        let hidden = cache.hidden(&mut tape, known, batch, &[0, 1, 2]).unwrap();
        bits(&hidden.tensor.to_host())
    };
    let mut pixels = step.batch.pixels().to_vec();
    pixels.reverse();
    let flipped = step.batch.clone().with_pixels(pixels).unwrap();
    let mut cache = PrefixCache::new(1, 1 << 20);
    let first = hidden(&mut cache, &step.batch);
    assert_eq!(hidden(&mut cache, &step.batch), first);
    let fresh = hidden(&mut PrefixCache::new(1, 1 << 20), &flipped);
    assert_eq!(hidden(&mut cache, &flipped), fresh);
    assert_ne!(fresh, first);
}

#[test]
fn what_is_no_image_of_the_model_is_refused() {
    let step = &Step::images()[0];
    let refused = |batch: &Batch| {
        let mut tape = Tape::new(&step.device);
        step.model.logits(&mut tape, step.params.frozen(), batch).unwrap_err().to_string()
    };
    let batch = |tokens, images: usize| {
        Batch::packed(vec![0; tokens * images], vec![tokens; images]).unwrap()
    };
    assert_eq!(
        refused(&batch(6, 2)),
        "batch: length of sequence is 6, expected 7, the tokens of an image"
    );
    assert_eq!(
        refused(&batch(7, 2)),
        "batch: number of pixel values is 0, expected 576: images of 3 x 8 x 12, 2 of them"
    );
    assert_eq!(
        refused(&batch(7, 2).with_pixels(vec![0.0; 2 * 96]).unwrap()),
        "batch: number of pixel values is 192, expected 576: images of 3 x 8 x 12, 2 of them"
    );
    let continued = batch(7, 1).continuing(vec![1]).unwrap();
    assert_eq!(refused(&continued), "batch: tokens before an image is 1, expected 0");
    let text = &Step::every_tiny()[0];
    let pixels = text.batch.clone().with_pixels(vec![0.0; 4]).unwrap();
    let mut tape = Tape::new(&text.device);
    let error = text.model.logits(&mut tape, text.params.frozen(), &pixels).unwrap_err();
    assert_eq!(error.to_string(), "batch: pixel values is 4, expected none: the model reads text");
    for head in [Head::Tokens { classes: 2 }, Head::Language] {
        let error = Model::new(step.model.config().clone(), head, None).unwrap_err().to_string();
        assert!(error.ends_with("expected one that classifies whole images, or none"), "{error}");
    }
}

#[test]
fn a_small_model_from_scratch_learns_to_tell_images_apart() {
    let (device, head) = (Device::cpu(), Head::Sequence { classes: 2, pooler: false });
    let model = Model::new(Preset::VitTiny.config(), head, None).unwrap();
    let mut params = model.fresh_params(&device, Seed(3)).unwrap();
    let image: ImageInput = model.config().image.unwrap();
    assert_eq!(image.tokens(), model.longest());
    let scope = Scope::everything(model.layout());
    let mut optimiser = Optimiser::new(&device, Solver::adamw(1e-3, 0.0)).unwrap();
    let mut draw = Seed(4).generator();
    let mut batch = |images: usize| {
        let classes: Vec<Option<u32>> = (0..images).map(|at| Some(at as u32 % 2)).collect();
        let mut pixels = Vec::new();
        for class in &classes {
            // A bright square in the upper left, or in the lower right corner.
            let from = if *class == Some(0) { 2 } else { 18 };
            for (row, column) in (0..28).flat_map(|row| (0..28).map(move |at| (row, at))) {
                let inside = (from..from + 8).contains(&row) && (from..from + 8).contains(&column);
                pixels.push(f32::from(u8::from(inside)) + 0.5 * draw.normal() as f32);
            }
        }
        let tokens = image.tokens();
        let batch = Batch::packed(vec![0; images * tokens], vec![tokens; images]).unwrap();
        (batch.with_pixels(pixels).unwrap(), Answers::Classes(classes))
    };
    for _ in 0..40 {
        let (batch, answers) = batch(16);
        let mut tape = Tape::new(&device);
        let weights = params.training(&scope);
        let loss = model.loss(&mut tape, weights, &batch, answers.targets()).unwrap();
        let gradients = tape.backward(&[(&loss, Tensor::scalar(&device, 1.0))]).unwrap();
        optimiser.step(&mut params, &gradients).unwrap();
    }
    let (batch, _) = batch(64);
    let mut tape = Tape::new(&device);
    let logits = model.logits(&mut tape, params.frozen(), &batch).unwrap().tensor;
    let right = |(at, row): (usize, &[f32])| (row[1] > row[0]) == (at % 2 == 1);
    let right = logits.to_host().chunks_exact(2).enumerate().filter(|row| right(*row)).count();
    assert!(right >= 62, "{right} of 64");
}
