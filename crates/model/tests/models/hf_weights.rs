//! Weights in one file or in shards.

use std::path::Path;

use fedra_model::hf::Weights;
use fedra_model::hf::dtype::Precision;
use fedra_model::hf::writer;

/// A folder with two shards, `1.safetensors` holding `a` and `2.safetensors` holding `b` and `c`.
fn folder(index: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, tensors: &[(&str, &[usize], &[f32])]| {
        let path = dir.path().join(file);
        writer::write(&path, tensors.iter().copied(), Precision::F16).unwrap();
    };
    write("1.safetensors", &[("a", &[2], &[1.0, 2.0])]);
    write("2.safetensors", &[("b", &[1], &[3.0]), ("c", &[1, 1], &[4.0])]);
    std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    dir
}

#[track_caller]
fn check(weight_map: &str, expected: &str) {
    let dir = folder(&format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{weight_map}}}"#));
    let message = Weights::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains(expected) && message.len() < 2000, "{message}");
}

const A: &str = r#""a":"1.safetensors""#;
const B: &str = r#""b":"2.safetensors""#;
const C: &str = r#""c":"2.safetensors""#;

#[test]
fn shards_read_as_one() {
    let dir = folder(&format!(r#"{{"weight_map":{{{A},{B},{C}}}}}"#));
    let weights = Weights::open(dir.path()).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(weights.info("c").unwrap().shape, [1, 1]);
    assert_eq!(weights.read_f32("a").unwrap(), [1.0, 2.0]);
    assert_eq!(weights.read_f32("c").unwrap(), [4.0]);
    assert_eq!(weights.path_of("c"), dir.path().join("2.safetensors"));
    assert!(weights.info("d").is_none());
    assert!(weights.read_f32("d").unwrap_err().to_string().contains("no such tensor"));
}

#[test]
fn an_index_that_disagrees_with_its_shards_is_refused() {
    check(&format!("{{{A},{B},{C},\"d\":\"2.safetensors\"}}"), "no such tensor in 2.safetensors");
    check(&format!("{{{A},{B}}}"), r#"tensor "c": found it in 2.safetensors"#);
    check(&format!("{{{A},{B},\"c\":\"1.safetensors\"}}"), "where the index has it: 1.safetensors");
    check(&format!("{{{A},{B},{C},\"d\":\"3.safetensors\"}}"), "cannot open");
    check(&format!("{{{A},{A}}}"), r#""a" listed twice"#);
    check("{}", "found 0 shards, expected 1 to 512");
    check("[]", "an object of strings");
    check(r#"{"a":1}"#, "expected a string");
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let dir = folder(&format!(r#"{{"weight_map":{{{A},{B},{C}}}}}"#));
    let twice: [(&str, &[usize], &[f32]); 3] =
        [("a", &[1], &[0.0]), ("b", &[1], &[0.0]), ("c", &[1], &[0.0])];
    writer::write(&dir.path().join("2.safetensors"), twice, Precision::F32).unwrap();
    let message = Weights::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains(r#"tensor "a": found it in both"#), "{message}");
}

#[test]
fn a_shard_is_a_plain_file_name() {
    for name in [
        "",
        ".",
        "..",
        "../1.safetensors",
        "/etc/passwd",
        "x/1.safetensors",
        r"..\\1.safetensors",
        "C:1",
        r"1\u0000.safetensors",
    ] {
        check(&format!(r#"{{"a":"{name}"}}"#), "expected a plain file name in the same folder");
    }
    let long = "x".repeat(1 << 20);
    check(&format!(r#"{{"a":"{long}"}}"#), "expected a plain file name");
}

#[test]
fn an_index_that_is_no_index_is_refused() {
    for (index, expected) in [
        ("", "EOF"),
        ("{}", "missing field `weight_map`"),
        ("null", "invalid type"),
        (&"[".repeat(100_000), "an index of shards"),
    ] {
        let message = Weights::open(folder(index).path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_folder_without_weights_says_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let message = |dir: &Path| Weights::open(dir).unwrap_err().to_string();
    assert!(message(dir.path()).contains("found neither, expected model.safetensors or"));
    std::fs::write(dir.path().join("pytorch_model.bin"), b"x").unwrap();
    assert!(message(dir.path()).contains("found only pickled PyTorch weights"));
    std::fs::write(dir.path().join("model-q4.gguf"), b"").unwrap();
    assert!(message(dir.path()).contains("found only a quantised checkpoint (gguf)"));
    std::fs::create_dir(dir.path().join("model.safetensors")).unwrap();
    assert!(message(dir.path()).contains("expected a regular file"));
}
