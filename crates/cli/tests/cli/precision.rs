//! Products in bf16 on the processor: what is computed, and what is said where there is no instruction
//! for it.

use serde_json::Value;

use crate::place::{Place, text};

const STEP: [&str; 10] =
    ["bench", "step", "--shape", "tiny", "--batch", "4", "--seq", "16", "--steps", "1"];

/// Whether this machine computes in bf16 when it is asked to, as its benchmark tells.
fn has_bf16(place: &Place) -> bool {
    let output = place.fedra(&[&STEP[..], &["--precision", "bf16", "--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let has_note = text(&output.stderr).contains("computing in f32: this processor has no");
    let has_bf16 = told["precision"] == "bf16";
    assert_eq!(has_bf16, !has_note, "{told}");
    assert!(has_bf16 || told["precision"] == "fp32", "{told}");
    has_bf16
}

#[test]
fn a_check_compares_bf16_with_f32_on_any_processor() {
    let place = Place::new();
    let check = ["bench", "check", "--device", "cpu", "--precision", "bf16", "--json"];
    let chosen = ["bert", "llama", "gemma3_text", "gpt2", "vit"].map(|name| ["--family", name]);
    let told = place.succeed(&[&check[..], &chosen.concat()].concat());
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["precision"], &told["failed"]), (&"bf16".into(), &0.into()));
    let compared = told["compared"].as_array().unwrap();
    let is_gradient = |found: &&Value| found["what"] == "gradients";
    let differences = || compared.iter().filter(is_gradient).map(|it| &it["difference"]);
    assert!(differences().count() > 10);
    assert!(differences().all(|it| it.as_f64().unwrap() > 1e-5), "bf16 is not f32: {told}");
}

#[test]
fn a_run_in_bf16_says_so_where_the_processor_computes_in_f32() {
    let place = Place::new();
    let run = |out: &str, precision: &str| {
        let set = format!("precision={precision}");
        place.succeed_and_hear(&["run", "tiny.toml", "--set", &set, "--out", out])
    };
    let (f32_said, bf16_said) = (run("f32", "f32"), run("bf16", "bf16"));
    let note = "note: precision is \"bf16\", computing in f32: this processor has no instructions";
    let has_note = bf16_said.contains(note);
    assert!(!f32_said.contains("precision is"), "{f32_said}");
    assert_eq!(has_note, !has_bf16(&place), "{bf16_said}");
    assert_eq!(place.weights("f32") == place.weights("bf16"), has_note);
}

#[test]
fn tf32_needs_a_gpu() {
    let place = Place::new();
    let output = place.fedra(&[&STEP[..], &["--precision", "tf32"]].concat());
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("expected f32 or bf16 where no GPU computes"));
}
