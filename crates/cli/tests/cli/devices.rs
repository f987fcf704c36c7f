//! Which device computes: what is refused, what counts more, what files say about it. No test needs a GPU.

use serde_json::{Value, json};
use std::fs;

use crate::place::{Place, text};

/// The experiment with lines of its own in front, under another name.
fn write(place: &Place, name: &str, lines: &str) {
    let tiny = fs::read_to_string(place.path("tiny.toml")).unwrap();
    fs::write(place.path(name), format!("{lines}\n{tiny}")).unwrap();
}

/// Whether there is a GPU here.
fn has_gpu(place: &Place) -> bool {
    let devices: Value = serde_json::from_str(&place.succeed(&["devices", "--json"])).unwrap();
    !devices["gpus"].as_array().unwrap().is_empty()
}

#[test]
fn words_that_name_no_device_are_refused_where_they_stand() {
    let place = Place::new();
    write(&place, "wrong.toml", "device = \"gpu\"");
    let told = place.refused(&["run", "wrong.toml"]);
    let expected = "device: found \"gpu\", expected cpu, auto or cuda:N, as in cuda:0";
    assert!(told.contains(expected) && told.contains("wrong.toml:1:10"), "{told}");
    for (set, expected) in [
        ("device=3", "device: found 3, expected cpu, auto or cuda:N, as in cuda:0"),
        ("precision=fp16", "precision: found \"fp16\", expected f32, tf32 or bf16"),
        ("precision=tf32", "precision: found \"tf32\", expected f32 or bf16 where no GPU computes"),
        ("device_memory=8 GB", "device_memory applies only to GPUs, and device is \"cpu\""),
    ] {
        let told = place.refused(&["run", "tiny.toml", "--set", set]);
        assert!(told.contains(expected) && told.contains(&format!("--> --set {set}")), "{told}");
    }
    let sets = ["--set", "device=cuda:0", "--set", "device_memory=much"];
    let told = place.refused(&[&["run", "tiny.toml"], &sets[..]].concat());
    assert!(told.contains("found \"much\", expected a size such as \"8 GB\""), "{told}");
    // Flags have the same words.
    let told = place.refused(&["run", "tiny.toml", "--device", "gpu"]);
    assert!(told.contains("found \"gpu\", expected cpu, auto or cuda:N, as in cuda:0"), "{told}");
    let told = place.refused(&["run", "tiny.toml", "--precision", "tf32"]);
    let expected = "precision: found \"tf32\", expected f32 or bf16 where no GPU computes";
    assert!(told.contains(expected) && told.contains("--> --precision tf32"), "{told}");
    place.save_decoder("the words of a text");
    for command in [
        &["generate", "--model", "decoder", "--prompt", "the"][..],
        &["predict", "--model", "decoder", "--text", "the"],
        &["bench", "step", "--shape", "tiny"],
    ] {
        let told = place.refused(&[command, &["--precision", "tf32"]].concat());
        assert!(
            told.contains("precision: found \"tf32\", expected f32 or bf16 where no GPU"),
            "{told}"
        );
    }
}

#[test]
fn a_gpu_that_is_not_there_is_refused_by_every_command_that_would_compute_on_it() {
    let place = Place::new();
    place.save_decoder("the words of a text");
    fs::write(place.path("rows.jsonl"), "{\"text\": \"the\"}\n").unwrap();
    let far = ["--device", "cuda:4000"];
    for command in [
        &["run", "tiny.toml"][..],
        &["generate", "--model", "decoder", "--prompt", "the"],
        &["predict", "--model", "decoder", "--text", "the"],
        &["evaluate", "--model", "decoder", "rows.jsonl", "--task", "language"],
        &["evaluate", "--model", "decoder", "tiny.toml"],
        &["serve", "--model", "decoder", "--first", "0", "--listen", "127.0.0.1:0"],
        &["serve", "tiny.toml", "--listen", "127.0.0.1:0"],
        &["join", "tiny.toml", "--server", "127.0.0.1:9", "--client", "hospital-1"],
        &["attack", "split", "--model", "decoder", "--text", "rows.jsonl"],
        &["advise", "tiny.toml", "--set", "data.shares.validation=0.2"],
    ] {
        let output = place.fedra(&[command, &far].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {told}");
        assert!(told.contains("device cuda:4000: "), "{command:?}: {told}");
    }
}

#[test]
fn a_flag_counts_more_than_the_file_and_the_summary_says_who_computed() {
    let place = Place::new();
    let gpu = "device = \"cuda:4000\"\nprecision = \"bf16\"\ndevice_memory = \"8 GB\"";
    write(&place, "far.toml", gpu);
    place.refused(&["run", "far.toml"]);
    // Whoever says that the processor computes need not take back what the file says of the GPU.
    place.succeed(&["run", "far.toml", "--quiet", "--device", "cpu", "--out", "here"]);
    let summary = place.summary("here");
    assert_eq!(summary["device"], json!({ "device": "cpu", "precision": "f32" }));
    assert_eq!(summary.get("device_peak_bytes"), None);
    place.succeed(&["run", "tiny.toml", "--quiet", "--out", "plain"]);
    assert_eq!(place.weights("here"), place.weights("plain"));
    let written = fs::read_to_string(place.path("here/experiment.toml")).unwrap();
    assert!(written.contains("device = \"cpu\"\nprecision = \"f32\"\n"), "{written}");
    // A run may go on elsewhere.
    let file = place.path("here/experiment.toml");
    fs::write(&file, written.replace("device = \"cpu\"", "device = \"cuda:4000\"")).unwrap();
    fs::remove_file(place.path("here/summary.json")).unwrap();
    let again = ["run", "--quiet", "--resume", "here"];
    let told = text(&place.fedra(&again).stderr);
    assert!(told.contains("device cuda:4000: "), "{told}");
    place.succeed(&[&again[..], &["--device", "cpu"]].concat());
    assert_eq!(place.weights("here"), place.weights("plain"));
}

#[test]
fn auto_takes_the_processor_where_there_is_no_gpu_and_says_so() {
    let place = Place::new();
    let arguments =
        ["run", "tiny.toml", "--device", "auto", "--precision", "bf16", "--out", "auto"];
    let told = place.succeed_and_hear(&arguments);
    if has_gpu(&place) {
        assert!(told.contains("note: computing on cuda:0 ("), "{told}");
        return;
    }
    let expected =
        "note: device = \"auto\": the processor computes, because no GPU can be used here (";
    assert!(told.contains(expected), "{told}");
    place.succeed(&["run", "tiny.toml", "--quiet", "--out", "plain"]);
    assert_eq!(place.weights("auto"), place.weights("plain"));
}

#[test]
fn large_steps_fill_a_gpu_one_client_at_a_time_unless_threads_are_asked_for() {
    let place = Place::new();
    let plan = |more: &[&str]| {
        let large = ["--set", "model.width=4096", "--set", "model.blocks=48", "--device", "cuda:0"];
        place.succeed(&[&["plan", "tiny.toml"], &large[..], more].concat())
    };
    let (one, two) = (plan(&[]), plan(&["--set", "threads=2"]));
    assert!(one.contains("in one process, 1 client at work at a time"), "{one}");
    assert!(two.contains("in one process, 2 clients at work at a time"), "{two}");
}

#[test]
fn a_plan_foresees_what_a_gpu_holds_without_having_one() {
    let place = Place::new();
    let gpu_memory = |more: &[&str]| -> Option<f64> {
        let model = ["--set", "model.width=256", "--set", "model.blocks=4", "--set", "threads=1"];
        let plan = place.succeed(&[&["plan", "tiny.toml"], &model[..], more].concat());
        let line = plan.lines().find(|line| line.starts_with("GPU memory"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[2], words[4]), ("about", "MB"), "{line}");
        assert!(plan.contains("for a run in one process, 1 client at work at a time"), "{plan}");
        words[3].parse().ok()
    };
    assert_eq!(gpu_memory(&[]), None);
    let f32 = gpu_memory(&["--device", "cuda:0"]).unwrap();
    assert_eq!(gpu_memory(&["--device", "cuda:0", "--precision", "tf32"]), Some(f32));
    let bf16 = gpu_memory(&["--device", "cuda:0", "--precision", "bf16"]).unwrap();
    // 3.3 million parameters: weights and copies that learn, gradients, two moments, 34 MB of workspace. In bf16
    // there are copies of weights more, and activations are half as large.
    assert!((90.0..150.0).contains(&f32), "{f32}");
    assert!(bf16 != f32 && (0.8..1.2).contains(&(bf16 / f32)), "{bf16} and {f32}");
}
