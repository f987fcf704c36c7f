//! GGUF files: values to the bit, a model that answers as its folder does, and files that lie.

use crate::gguf_decoder;
use crate::gguf_families;
use crate::gguf_writer::{GgufFile, GgufTensor, Value};
use crate::step::{Step, bits};
use fedra_compute::{Device, Seed, WeightFormat};
use fedra_model::gguf::{BlockType, Reader, convert};
use fedra_model::hf::{Precision, Weights};
use fedra_model::{
    Batch, Classifier, Head, ModelError, Wanted, WeightStorage, load, load_part_as, open_checkpoint,
};
use fedra_plan::Layout;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Blocks {
    r#type: String,
    bytes: String,
    bits: Vec<u32>,
}

fn written(dir: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The decoder of the golden cases with a language head.
fn decoder() -> Step {
    let is_ours =
        |step: &Step| step.model.head() == Head::Language && step.name.starts_with("Llama");
    Step::every_tiny().into_iter().find(is_ours).unwrap()
}

#[test]
fn blocks_of_every_type_have_the_values_of_the_formats_own_tools() {
    let golden = include_str!("../golden/gguf_blocks.json");
    let cases: Vec<Blocks> = serde_json::from_str(golden).unwrap();
    assert_eq!(cases.len(), BlockType::ALL.len());
    for (case, kind) in cases.iter().zip(BlockType::ALL) {
        assert_eq!(case.r#type, kind.name());
        let bytes: Vec<u8> = (0..case.bytes.len() / 2)
            .map(|at| u8::from_str_radix(&case.bytes[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let mut file = GgufFile::new();
        let shape = [case.bits.len()];
        // One before it, so that its own offset counts.
        file.tensors.push(GgufTensor::f32("first", &[3], &[1.0, 2.0, 3.0]));
        file.tensors.push(GgufTensor::new("x", &shape, kind, bytes));
        let dir = tempfile::tempdir().unwrap();
        let reader = Reader::open(&written(&dir, &file.bytes())).unwrap();
        assert_eq!(reader.info("x"), Some((kind, &shape[..])));
        assert_eq!(bits(&reader.read_f32("x").unwrap()), case.bits, "{}", kind.name());
    }
}

#[test]
fn a_file_answers_to_the_bit_as_the_model_it_was_made_from() {
    let step = decoder();
    for version in [2, 3] {
        let mut file = gguf_decoder::file(&step.model, &step.params);
        file.version = version;
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir, &file.bytes());
        let loaded = load(&path, Head::Language, None, (&step.device, Seed(1))).unwrap();
        assert!(loaded.report.lines().is_empty());
        let loaded = Step { model: loaded.model, params: loaded.params, ..step.clone() };
        assert_eq!(bits(&loaded.logits().to_host()), bits(&step.logits().to_host()));

        let folder = dir.path().join("folder");
        let parameters = convert(&path, &folder, Precision::F32).unwrap();
        assert_eq!(parameters, step.model.layout().elements());
        let again = load(&folder, Head::Language, None, (&step.device, Seed(1))).unwrap();
        let again = Step { model: again.model, params: again.params, ..step.clone() };
        assert_eq!(bits(&again.logits().to_host()), bits(&step.logits().to_host()));
        let refused = convert(&path, &folder, Precision::F32).unwrap_err().to_string();
        assert!(refused.contains("a folder with files in it"), "{refused}");
    }
}

/// A decoder whose rows are whole blocks, and whose file has quantised tensors: the projections of blocks in one type,
/// the tables in another.
fn quantised_file(family: &str, blocks: BlockType, tables: BlockType) -> (Step, GgufFile) {
    let mut step = gguf_families::wide(family);
    let mut file = gguf_decoder::file(&step.model, &step.params);
    for (tensor, seed) in file.tensors.iter_mut().zip(1..) {
        let is_table = ["token_embd.weight", "output.weight"].contains(&tensor.name.as_str());
        let is_projection = tensor.name.starts_with("blk.") && tensor.dims.len() == 2;
        let kind = if is_table { tables } else { blocks };
        if is_table || is_projection {
            tensor.quantise(kind, seed);
        }
    }
    step.name = format!("{family} in {} and {}", blocks.name(), tables.name());
    (step, file)
}

#[test]
fn blocks_of_a_file_are_kept_as_they_are_and_answer_to_the_bit_as_their_f32() {
    use WeightFormat::{Bf16, F32, Int4, Int8};
    let cases = [
        (BlockType::Q4_1, BlockType::Q8_0, Int4, (Int4, Int8)),
        (BlockType::Q4_0, BlockType::Q4_0, Int4, (Int4, Int4)),
        (BlockType::Q8_0, BlockType::Q8_0, Int8, (Int8, Int8)),
        // Fewer bits than were asked for: nothing would be gained by more.
        (BlockType::Q4_1, BlockType::Q4_1, Int8, (Int4, Int4)),
    ];
    // Interleaved rotary pairs, none, and projections that lie together in one tensor.
    for family in ["llama", "qwen2", "phi3"] {
        for (blocks, tables, asked, (projections, table)) in cases {
            let (step, file) = quantised_file(family, blocks, tables);
            let dir = tempfile::tempdir().unwrap();
            let checkpoint = open_checkpoint(&written(&dir, &file.bytes())).unwrap();
            let read = |format| {
                let wanted =
                    Wanted { head: Head::Language, classifier: Classifier::Stored, adapters: None };
                let stored = |layout: &Layout| WeightStorage::of_all(format, layout);
                let how = (&step.device, Seed(1));
                load_part_as(&checkpoint, wanted, how, |_| true, stored).unwrap()
            };
            let (whole, kept) = (read(F32), read(asked));
            let mut seen = (0, 0);
            for (id, tensor) in kept.params.iter() {
                let exact = whole.params.get(id).unwrap();
                assert_eq!(exact.format(), F32);
                let found = bits(&tensor.to_host());
                assert_eq!(found, bits(&exact.to_host()), "{}: {id}", step.name);
                match kept.model.storage().of(id) {
                    F32 => assert_eq!(tensor.format(), F32, "{}: {id}", step.name),
                    Bf16 | Int8 | Int4 if id.layer.block().is_some() => {
                        assert_eq!(tensor.format(), projections, "{}: {id}", step.name);
                        seen.0 += 1;
                    }
                    Bf16 | Int8 | Int4 => {
                        assert_eq!(tensor.format(), table, "{}: {id}", step.name);
                        seen.1 += 1;
                    }
                }
            }
            assert!(seen.0 > 10 && seen.1 > 0, "{}: {seen:?}", step.name);
            let logits = |loaded: fedra_model::Loaded| {
                let step = Step { model: loaded.model, params: loaded.params, ..step.clone() };
                bits(&step.logits().to_host())
            };
            assert_eq!(logits(kept), logits(whole), "{}", step.name);
        }
    }
}

#[test]
fn what_a_file_has_in_more_bits_is_quantised_again_and_so_are_other_blocks_and_turned_matrices() {
    // A projection of 8 bits as 4, and a family whose inputs are rows in a folder.
    for (family, blocks) in [("llama", BlockType::Q8_0), ("gpt2", BlockType::Q4_1)] {
        let (step, file) = quantised_file(family, blocks, BlockType::Q8_0);
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = open_checkpoint(&written(&dir, &file.bytes())).unwrap();
        let wanted =
            Wanted { head: Head::Language, classifier: Classifier::Stored, adapters: None };
        let stored = |layout: &Layout| WeightStorage::of_all(WeightFormat::Int4, layout);
        let how = (&step.device, Seed(1));
        let kept = load_part_as(&checkpoint, wanted, how, |_| true, stored).unwrap();
        for (id, tensor) in kept.params.iter().filter(|(id, _)| id.layer.block().is_some()) {
            assert_eq!(tensor.format(), kept.model.storage().of(id), "{family}: {id}");
        }
        let exact = load(dir.path().join("model.gguf").as_path(), Head::Language, None, how);
        let exact = exact.unwrap();
        let down = kept.params.iter().find(|(id, _)| id.role == fedra_plan::Role::Down).unwrap();
        let expected = exact.params.get(down.0).unwrap().to_host();
        let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let found = down.1.to_host();
        let furthest = found.iter().zip(&*expected).map(|(a, b)| (a - b).abs());
        let furthest = furthest.fold(0.0_f32, f32::max);
        assert!(furthest > 0.0 || family == "gpt2", "{family}: it was rounded");
        assert!(furthest < 0.1 * largest, "{family}: {furthest} of {largest}");
    }
}

/// What opening a file says, and reading all of it.
fn outcome(bytes: &[u8]) -> Result<(), ModelError> {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, bytes);
    load(&path, Head::Language, None, (&Device::cpu(), Seed(1))).map(drop)
}

#[track_caller]
fn check(file: &GgufFile, expected: &str) {
    let message = outcome(&file.bytes()).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}\nshould say {expected}");
    assert!(message.len() < 2000, "a message of {} bytes", message.len());
}

#[test]
fn a_file_that_lies_is_refused_by_what_is_false() {
    let step = decoder();
    let honest = gguf_decoder::file(&step.model, &step.params);
    let changed = |change: &dyn Fn(&mut GgufFile)| {
        let mut file = honest.clone();
        change(&mut file);
        file
    };
    outcome(&honest.bytes()).unwrap();
    check(&changed(&|file| file.version = 1), "found version 1 of the format");
    check(&changed(&|file| file.version = 3 << 24), "found a big-endian file");
    check(&changed(&|file| file.said_keys = Some(1 << 50)), "found 1125899906842624 keys");
    check(&changed(&|file| file.said_tensors = Some(1 << 50)), "found 1125899906842624 tensors");
    check(&changed(&|file| file.said_tensors = Some(200_000)), "found 200000 tensors at byte");
    check(
        &changed(&|file| file.tensors[1].said_offset = Some(1)),
        "found data at byte 1, expected a",
    );
    check(
        &changed(&|file| file.tensors[1].said_offset = Some(0)),
        "found data at byte 0, expected it",
    );
    let far = u64::MAX - 31;
    check(&changed(&|file| file.tensors[1].said_offset = Some(far)), "expected them within the");
    check(&changed(&|file| file.tensors[1].dims = vec![1 << 40, 1 << 40]), "found dimensions [");
    check(&changed(&|file| file.tensors[1].dims = vec![1 << 40]), "expected them within the");
    check(&changed(&|file| file.tensors[1].dims = vec![]), "found 0 dimensions");
    check(&changed(&|file| file.tensors[1].dims = vec![1; 9]), "found 9 dimensions");
    check(&changed(&|file| file.tensors[1].dims[0] = 0), "found dimensions [0");
    check(&changed(&|file| file.tensors[1].kind = 10), "found elements of type 10 (Q2_K)");
    check(&changed(&|file| file.tensors[1].kind = 999), "found elements of type 999");
    let twice = honest.tensors[0].name.clone();
    check(&changed(&|file| file.tensors[1].name.clone_from(&twice)), "found a duplicate");
    check(&changed(&|file| file.tensors[1].name = "blk.0.attn_z.bias".into()), "an unknown name");
    check(&changed(&|file| file.tensors[1].name = "a\u{7}".into()), "control character");
    check(&changed(&|file| file.tensors.truncate(3)), "found no such tensor");
    let with = |key: &str, value: Value| honest.clone().with(key, value);
    let text = |text: &str| Value::Text(text.into());
    check(&with("general.architecture", text("bert")), "found \"bert\", expected one of \"llama\"");
    check(&with("general.alignment", Value::U32(7)), "general.alignment: found 7");
    check(&with("split.count", Value::U32(3)), "split.count: found 3");
    check(&with("llama.expert_count", Value::U32(8)), "llama.expert_count: found 8");
    check(
        &with("llama.rope.freq_base", Value::F32(f32::NAN)),
        "llama.rope.freq_base: found NaN, expected a finite number",
    );
    check(
        &with("llama.attention.layer_norm_rms_epsilon", Value::F32(f32::INFINITY)),
        "llama.attention.layer_norm_rms_epsilon: found inf, expected a finite number",
    );
    check(
        &with("llama.rope.scaling.type", text("su"))
            .with("llama.rope.scaling.factor", Value::F32(2.0)),
        "llama.rope.scaling.type: found \"su\"",
    );
    check(&with("llama.block_count", Value::U32(0)), "num_hidden_layers: found 0");
    check(
        &with("llama.block_count", Value::F32(2.0)),
        "llama.block_count: found 2, expected a whole",
    );
    check(
        &with("llama.rope.dimension_count", Value::U32(2)),
        "llama.rope.dimension_count: found 2",
    );
    check(&honest.clone().without("llama.context_length"), "llama.context_length: found nothing");
    check(&with("tokenizer.ggml.model", text("bert")), "tokenizer.ggml.model: found \"bert\"");
    check(&with("x", Value::Raw(99, vec![])), "x: found a value of type 99");
    check(&with("x", Value::Raw(7, vec![3])), "x: found the flag 3");
    check(&with("x", Value::Raw(8, (1u64 << 60).to_le_bytes().into())), "found a value of 11529");
    let list = |kind: u32, length: u64| {
        Value::Raw(9, [&kind.to_le_bytes()[..], &length.to_le_bytes()].concat())
    };
    check(&with("x", list(8, 1 << 60)), "elements of a list at byte");
    check(&with("x", list(0, 1 << 61)), "elements of a list at byte");
    check(&with("x", list(9, 1)), "x: found a list of lists");
    let mut scaled = honest.clone();
    scaled.tensors.push(GgufTensor::f32("rope_freqs.weight", &[3], &[2.0, 1.0, 2.0]));
    check(&scaled, "found divisors that no scaling of Llama 3 makes");
    scaled.tensors.last_mut().unwrap().dims = vec![1];
    check(&scaled, "rope_freqs.weight\": found another shape");
}

#[test]
fn no_prefix_and_no_changed_byte_of_a_header_panics() {
    let step = decoder();
    let file = with_tokenizer(gguf_decoder::file(&step.model, &step.params));
    let bytes = file.bytes();
    let data: usize = file.tensors.iter().map(|t| t.bytes.len().next_multiple_of(32)).sum();
    let header = bytes.len() - data;
    outcome(&bytes).unwrap();
    for end in (0..bytes.len()).step_by(37) {
        assert!(outcome(&bytes[..end]).is_err(), "the first {end} bytes were accepted");
    }
    for at in (0..header).step_by(3) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        // A changed letter or number may still be a model.
        let _either = outcome(&changed);
        changed[at] = 0xff;
        let _either = outcome(&changed);
    }
}

/// A byte-level tokenizer of five pieces.
fn with_tokenizer(file: GgufFile) -> GgufFile {
    let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|&text| text.into()).collect());
    file.with("tokenizer.ggml.model", Value::Text("gpt2".into()))
        .with("tokenizer.ggml.pre", Value::Text("smollm".into()))
        .with("tokenizer.ggml.tokens", texts(&["<|end|>", "a", "b", "ab", "\u{120}"]))
        .with("tokenizer.ggml.token_type", Value::Integers(vec![3, 1, 1, 1, 1]))
        .with("tokenizer.ggml.merges", texts(&["a b"]))
        .with("tokenizer.ggml.bos_token_id", Value::U32(0))
        .with("tokenizer.ggml.eos_token_id", Value::U32(0))
}

#[test]
fn a_tokenizer_that_contradicts_itself_is_refused() {
    let step = decoder();
    let honest = with_tokenizer(gguf_decoder::file(&step.model, &step.params));
    let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|&text| text.into()).collect());
    for (key, value, expected) in [
        ("tokens", texts(&["a", "a", "b", "ab", "c"]), "0 and 1 are both \"a\""),
        ("token_type", Value::Integers(vec![1]), "one for each of the 5 pieces"),
        ("token_type", Value::Integers(vec![3, 1, 1, 1, 7]), "types from 1 to 6"),
        ("merges", texts(&["a c"]), "\"a\" with \"c\" makes none"),
        ("merges", texts(&["ab"]), "pairs of pieces"),
        ("merges", Value::Numbers(vec![1.0]), "found a list of 1 values, expected a list of texts"),
        ("pre", Value::Flag(true), "tokenizer.ggml.pre: found true, expected text"),
        ("pre", Value::Text("viking".into()), "tokenizer.ggml.pre: found \"viking\""),
        ("bos_token_id", Value::U32(5), "tokenizer.ggml.bos_token_id: found 5"),
        ("model", Value::Text("llama".into()), "tokenizer.ggml.scores: found nothing"),
    ] {
        check(&honest.clone().with(&format!("tokenizer.ggml.{key}"), value), expected);
    }
    check(&honest.without("tokenizer.ggml.pre"), "tokenizer.ggml.pre: found nothing");
}

#[test]
#[ignore = "needs FEDRA_SMOLLM2 and FEDRA_PYTHON: tools/test-shared"]
fn smollm2_from_its_file_answers_as_transformers_does() {
    let path = std::env::var_os("FEDRA_SMOLLM2").expect("a GGUF file of SmolLM2-135M-Instruct");
    let path = PathBuf::from(path);
    let checkpoint = open_checkpoint(&path).unwrap();
    assert!(checkpoint.companions().tokenizer().is_some());
    let weights: &Weights = checkpoint.weights();
    assert_eq!(weights.names().count(), 272);
    drop(checkpoint);
    let python = std::env::var("FEDRA_PYTHON").expect("a Python with transformers");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    convert(&path, &folder, Precision::F32).unwrap();
    let device = Device::cpu();
    let loaded = load(&path, Head::Language, None, (&device, Seed(1))).unwrap();
    let sequences: [Vec<u32>; 2] = [(1..40).map(|n| n * 997 % 49152).collect(), vec![1, 4093, 198]];
    let mut tape = fedra_compute::Tape::new(&device);
    let batch = Batch::new(&sequences).unwrap();
    let logits = loaded.model.logits(&mut tape, loaded.params.frozen(), &batch).unwrap().tensor;
    let answers = serde_json::json!({ "ids": sequences, "logits": logits.to_host() });
    std::fs::write(folder.join("answers.json"), answers.to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check_transformers.py");
    let output = std::process::Command::new(python)
        .arg(script)
        .arg("--double")
        .arg(&folder)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
}
