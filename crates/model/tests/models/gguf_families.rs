//! GGUF files of every decoder family: what is written in the format's layout is read back as the same model, and so
//! is what the format's own converter makes.

use crate::agreement::relative_f32;
use crate::gguf_decoder::{self, ARCHITECTURES};
use crate::gguf_writer::{GgufFile, GgufTensor, Value};
use crate::golden::{self, TinyCase};
use crate::step::{Step, bits};
use fedra_compute::{Device, Params, Seed};
use fedra_model::gguf::convert;
use fedra_model::hf::{Config, Precision};
use fedra_model::{Batch, Head, Model, NormKind, Positions, RopeScaling, load};
use std::collections::BTreeSet;
use std::path::Path;

/// Decoders of the golden file with a vocabulary, of which the format has an architecture.
fn decoders() -> Vec<Step> {
    let cases: Vec<TinyCase> = golden::cases("families.json");
    let known = |case: &TinyCase| {
        let family = case.config["model_type"].as_str().unwrap();
        let scaling = &case.config["rope_parameters"]["rope_type"];
        case.case.head() == Head::Language
            && ARCHITECTURES.iter().any(|(known, ..)| *known == family)
            // No file can say it.
            && scaling != "dynamic"
    };
    let as_files_have_it = |mut case: TinyCase| {
        // No key says it: it is the width of a head in every model but the largest.
        if case.config.get("query_pre_attn_scalar").is_some() {
            case.config["query_pre_attn_scalar"] = case.config["head_dim"].clone();
        }
        Step::tiny(&case)
    };
    cases.into_iter().filter(known).map(as_files_have_it).collect()
}

/// A decoder of a family whose rows are whole blocks.
pub fn wide(family: &str) -> Step {
    let is_it = |step: &Step| {
        let config = step.model.config();
        let is_plain = match &config.positions {
            Positions::Rotary(rope) => rope.scaling == RopeScaling::None,
            Positions::Learned { .. } => true,
        };
        config.family.model_type == family && is_plain
    };
    let step = decoders().into_iter().find(is_it).unwrap();
    let config = step.model.config().clone();
    let (hidden_size, intermediate_size) = (64, 96);
    let heads = (config.num_attention_heads, config.num_key_value_heads);
    let head_dim = config.head_dim.map(|_| hidden_size / heads.0);
    let config = Config { hidden_size, intermediate_size, head_dim, ..config };
    let model = Model::new(config, Head::Language, None).unwrap();
    let params = model.fresh_params(&step.device, Seed(5)).unwrap();
    Step { model, params, ..step }
}

#[test]
fn a_file_of_every_architecture_is_read_back_as_the_same_model() {
    let mut seen = BTreeSet::new();
    for step in decoders() {
        let config = step.model.config();
        seen.insert(config.family.model_type);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        std::fs::write(&path, gguf_decoder::file(&step.model, &step.params).bytes()).unwrap();
        let loaded = load(&path, Head::Language, None, (&step.device, Seed(1))).unwrap();
        assert!(loaded.report.lines().is_empty(), "{}", step.name);
        let found = loaded.model.config();
        let is_windowed_mistral = config.family.model_type != "mistral" || config.window.is_some();
        if is_windowed_mistral {
            assert_eq!(found.family, config.family);
        } else {
            assert_eq!(found.family.model_type, "llama");
        }
        let expected = Config {
            family: found.family,
            labels: found.labels.clone(),
            original: found.original.clone(),
            head_dim: found.head_dim,
            num_key_value_heads: found.num_key_value_heads,
            ..config.clone()
        };
        assert_eq!(found, &expected, "{}", step.name);
        assert_eq!(
            (found.head_width(), found.kv_heads()),
            (config.head_width(), config.kv_heads())
        );
        assert_same(&loaded.params, &step.params, &loaded.model);
        let loaded = Step { model: loaded.model, params: loaded.params, ..step.clone() };
        let (ours, theirs) = (loaded.logits(), step.logits());
        if config.norm.kind == NormKind::RmsPlusOne {
            let error = relative_f32(&ours.to_host(), &theirs.to_host());
            assert!(error < 1e-6, "{}: {error:.1e}", step.name);
        } else {
            assert_eq!(bits(&ours.to_host()), bits(&theirs.to_host()), "{}", step.name);
        }
    }
    let all: BTreeSet<&str> = ARCHITECTURES.iter().map(|(family, ..)| *family).collect();
    assert_eq!(seen, all);
}

/// Every parameter is the same, a norm's weight to which 1 was added within what that costs.
#[track_caller]
fn assert_same(found: &Params, expected: &Params, model: &Model) {
    assert_eq!(found.len(), expected.len());
    for (id, tensor) in found.iter() {
        let (found, expected) = (tensor.to_host(), expected.get(id).unwrap().to_host());
        let is_norm = format!("{id}").contains("norm");
        if is_norm && model.config().norm.kind == NormKind::RmsPlusOne {
            let apart = found.iter().zip(&*expected).map(|(a, b)| (a - b).abs());
            let worst = apart.fold(0.0, f32::max);
            assert!(worst <= f32::EPSILON, "{id}: {worst:e}");
        } else {
            assert_eq!(bits(&found), bits(&expected), "{id}");
        }
    }
}

/// What a changed file of a family is refused with.
#[track_caller]
fn check(family: &str, change: &dyn Fn(GgufFile) -> GgufFile, expected: &str) {
    let step = decoders().into_iter().find(|step| step.name.starts_with(family)).unwrap();
    let file = change(gguf_decoder::file(&step.model, &step.params));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    let message = load(&path, Head::Language, None, (&step.device, Seed(1))).unwrap_err();
    let message = message.to_string();
    assert!(message.contains(expected), "{message}\nshould say {expected}");
}

#[test]
fn what_a_family_does_not_have_is_refused_by_its_key_or_tensor() {
    let text = |text: &str| Value::Text(text.into());
    check(
        "Phi3",
        &|file| file.with("phi3.rope.scaling.type", text("longrope")),
        "phi3.rope.scaling.type: found \"longrope\", expected \"none\", \"linear\" or \"yarn\"",
    );
    check(
        "Phi3",
        &|mut file| {
            let factors = GgufTensor::f32("rope_factors_long.weight", &[2], &[1.0; 2]);
            file.tensors.push(factors);
            file
        },
        "rope_factors_short.weight\": found nothing, expected 2 elements, half the width of a head",
    );
    check(
        "Qwen2",
        &|file| file.with("qwen2.attention.sliding_window", Value::U32(8)),
        "qwen2.attention.sliding_window: found 8",
    );
    check(
        "Qwen3",
        &|file| file.with("qwen3.attention.causal", Value::Flag(false)),
        "qwen3.attention.causal: found false",
    );
    check(
        "Olmo2",
        &|file| file.with("olmo2.expert_count", Value::U32(4)),
        "olmo2.expert_count: found 4",
    );
    check(
        "Llama",
        &|file| {
            file.with("llama.rope.scaling.type", text("linear"))
                .with("llama.rope.scaling.factor", Value::F32(2.0))
        },
        "rope_freqs.weight\": found divisors of frequencies, expected one kind of scaling",
    );
    check(
        "SmolLM3",
        &|file| file.with("smollm3.rope.scaling.yarn_ext_factor", Value::F32(0.5)),
        "smollm3.rope.scaling.yarn_ext_factor: found 0.5, expected 1",
    );
    check(
        "GPT2",
        &|file| file.without("gpt2.attention.layer_norm_epsilon"),
        "gpt2.attention.layer_norm_epsilon: found nothing, expected a number",
    );
}

#[test]
fn windows_follow_the_files_pattern_or_the_familys_rule() {
    let step = decoders().into_iter().find(|step| step.name.starts_with("Gemma3")).unwrap();
    let blocks = |pattern: Option<Value>| {
        let key = "gemma3.attention.sliding_window_pattern";
        let file = gguf_decoder::file(&step.model, &step.params).without(key);
        let file = pattern.map_or(file.clone(), |pattern| file.with(key, pattern));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        std::fs::write(&path, file.bytes()).unwrap();
        let loaded = load(&path, Head::Language, None, (&step.device, Seed(1))).unwrap();
        loaded.model.config().window.clone().unwrap().blocks
    };
    assert_eq!(blocks(None), [true, true, true]);
    assert_eq!(blocks(Some(Value::U32(2))), [true, false, true]);
    assert_eq!(blocks(Some(Value::U32(3))), [true, true, false]);
    assert_eq!(blocks(Some(Value::U32(1))), [false, false, false]);
}

/// Two implementations in f32 and f64 of a few blocks.
const TOLERANCE: f64 = 2e-5;

#[test]
#[ignore = "needs FEDRA_GGUF_PEER: tools/gguf_peer.py"]
fn files_of_the_formats_own_converter_are_the_folders_they_were_made_from() {
    let root = std::env::var_os("FEDRA_GGUF_PEER").expect("a folder that tools/gguf_peer.py made");
    let device = Device::cpu();
    let mut cases: Vec<_> = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let open = |path: &Path| load(path, Head::Language, None, (&device, Seed(1))).unwrap();
        let (folder, file) = (open(&case.join("hf")), open(&case.join("model.gguf")));
        assert_same(&file.params, &folder.params, &file.model);
        let answers = std::fs::read_to_string(case.join("answers.json")).unwrap();
        let answers: serde_json::Value = serde_json::from_str(&answers).unwrap();
        let ids: Vec<Vec<u32>> = serde_json::from_value(answers["ids"].clone()).unwrap();
        let theirs: Vec<f32> = serde_json::from_value(answers["logits"].clone()).unwrap();
        let batch = Batch::new(&ids).unwrap();
        let mut tape = fedra_compute::Tape::new(&device);
        let logits = file.model.logits(&mut tape, file.params.frozen(), &batch).unwrap().tensor;
        let error = relative_f32(&logits.to_host(), &theirs);
        let (found, expected) = (file.model.config(), folder.model.config());
        let positions = |config: &Config| match &config.positions {
            Positions::Rotary(rope) => rope.scaling.clone(),
            Positions::Learned { .. } => RopeScaling::None,
        };
        println!(
            "{name}: {} tensors equal, logits {error:.1e}; {:?}",
            file.params.len(),
            positions(found)
        );
        assert!(error < TOLERANCE, "{name}: {error:.1e}");
        assert_eq!(found.window, expected.window, "{name}");
        assert_eq!(found.score_divisor, expected.score_divisor, "{name}");
        assert_eq!((found.score_cap, found.logit_cap), (expected.score_cap, expected.logit_cap));
        assert_eq!(found.norm, expected.norm, "{name}");
        // For `tools/gguf_peer.py --check`.
        let ours = case.join("ours");
        let _absent = std::fs::remove_dir_all(&ours);
        convert(&case.join("model.gguf"), &ours, Precision::F32).unwrap();
    }
}
