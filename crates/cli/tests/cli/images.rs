//! Images from their folder to predictions: learned, repeated, cut, private, resumed, and never shown.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::place::{Place, text};

/// Pixels along each side.
const SIDE: usize = 8;

/// A grey PNG.
fn png(pixels: &[u8]) -> Vec<u8> {
    let (side, mut bytes) = (u32::try_from(SIDE).unwrap(), Vec::new());
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    bytes
}

/// Stripes that lie or stand, somewhere and in some shade, with noise.
fn pixels(number: usize, stands: bool) -> Vec<u8> {
    let mut state = (number as u32).wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as usize
    };
    let (offset, shade) = (noise() % 2, 150 + noise() % 100);
    let pixel = |place: usize| {
        let along = if stands { place % SIDE } else { place / SIDE };
        let base = if (along + offset) % 4 < 2 { shade } else { 20 };
        u8::try_from((base + noise() % 16).min(255)).unwrap()
    };
    (0..SIDE * SIDE).map(pixel).collect()
}

/// 160 images in two classes, in the folder `stripes`, and an experiment on them.
fn with_images() -> Place {
    let place = Place::new();
    for number in 0..160 {
        let (class, stands) = if number % 2 == 0 { ("lying", false) } else { ("standing", true) };
        let folder = place.path("stripes").join(class);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("patient-{number:03}.png")), png(&pixels(number, stands)))
            .unwrap();
    }
    fs::write(place.path("stripes.toml"), EXPERIMENT).unwrap();
    place
}

const EXPERIMENT: &str = r#"
seed = 2

[data]
source = "images"
task = "classes"
path = "stripes"
labels = ["lying", "standing"]
partition = { by = "dirichlet", alpha = 1.0 }
shares = { central = 0.25, validation = 0.1, test = 0.0 }

[model]
preset = "vit-tiny"
image_size = 8
patch = 4
channels = 1
blocks = 2
width = 32
heads = 2

[federation]
clients = 3
rounds = 8

[work]
epochs = 2
batch = 8
optimiser = { name = "adamw", rate = 3e-3 }
"#;

/// The score on the central test set after the last round.
fn score(place: &Place, run: &str) -> f64 {
    let summary = place.summary(run);
    summary["scores"]["central_test"]["macro_f1"]
        .as_f64()
        .unwrap_or_else(|| panic!("no score in {summary:#}"))
}

fn run(place: &Place, out: &str, more: &[&str]) {
    place.succeed(&[&["run", "stripes.toml", "--out", out, "--quiet"][..], more].concat());
}

#[test]
fn images_are_learned_and_predictions_are_those_of_an_evaluation() {
    let place = with_images();
    let picture = place.succeed(&["data", "stripes.toml"]);
    assert!(picture.contains("8 x 8") && picture.contains("standing"), "{picture}");
    let plan = place.succeed_and_hear(&["plan", "stripes.toml"]);
    assert!(plan.contains("3 clients") || plan.contains("client"), "{plan}");
    run(&place, "run", &[]);
    assert!(score(&place, "run") > 0.9, "{}", score(&place, "run"));

    // The processor stands beside the weights.
    let processor = fs::read_to_string(place.path("run/model/preprocessor_config.json")).unwrap();
    let processor: Value = serde_json::from_str(&processor).unwrap();
    assert_eq!(processor["image_processor_type"], "ViTImageProcessor");
    assert_eq!(processor["size"]["height"], 8);
    assert!(!place.path("run/model/tokenizer.json").exists());

    let told =
        place.succeed(&["predict", "--model", "run", "--input", "stripes", "--format", "jsonl"]);
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 160);
    let right = told.iter().filter(|row| {
        let path = row["image"].as_str().unwrap();
        path.contains(row["predicted"].as_str().unwrap())
    });
    assert!(right.count() > 150, "{told:?}");
    let arguments =
        ["evaluate", "--model", "run", "stripes", "--predictions", "all.jsonl", "--json"];
    let scored: Value = serde_json::from_str(&place.succeed(&arguments)).unwrap();
    assert_eq!(scored["sets"]["rows"]["examples"], 160);
    let answers = fs::read_to_string(place.path("all.jsonl")).unwrap();
    let answers: Vec<Value> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (one, other) in told.iter().zip(&answers) {
        assert_eq!(one["predicted"], other["predicted"], "{one} {other}");
        let [one, other] = [one, other].map(|row| row["probability"].as_f64().unwrap());
        assert!((one - other).abs() < 1e-6, "{one} {other}");
    }
    // One image alone has the numbers that it has among others.
    let file = "stripes/lying/patient-000.png";
    let alone = place.succeed(&["predict", "--model", "run", "--image", file, "--format", "jsonl"]);
    let alone: Value = serde_json::from_str(alone.trim()).unwrap();
    let among = told.iter().find(|row| row["image"] == file).unwrap();
    assert_eq!(alone["probabilities"], among["probabilities"]);
    // A table beside the folder names the same images.
    fs::write(place.path("two.csv"), "id,image\n7,stripes/lying/patient-000.png\n").unwrap();
    let table =
        place.succeed(&["predict", "--model", "run", "--input", "two.csv", "--format", "jsonl"]);
    let table: Value = serde_json::from_str(table.trim()).unwrap();
    assert_eq!((&table["id"], &table["predicted"]), (&"7".into(), &alone["predicted"]));
    let refused = place.fedra(&["predict", "--model", "run", "--text", "x"]);
    assert!(text(&refused.stderr).contains("this model reads images"), "{}", text(&refused.stderr));
}

#[test]
fn one_thread_and_two_give_the_same_bits_and_a_resumed_run_too() {
    let place = with_images();
    let augment = "data.augment={ flip = true, crop = 2 }";
    let few = ["--set", augment, "--set", "federation.rounds=3"];
    for threads in ["1", "2"] {
        run(&place, threads, &[&few[..], &["--set", &format!("threads={threads}")]].concat());
    }
    assert_eq!(place.weights("1"), place.weights("2"));
    run(&place, "plain", &["--set", "federation.rounds=3"]);
    assert_ne!(place.weights("1"), place.weights("plain"), "images were changed");
    // The first round in one process, the others in another one.
    run(
        &place,
        "parts",
        &[&few[..2], &["--set", "federation.rounds=1", "--set", "threads=1"]].concat(),
    );
    fs::copy(place.path("1/experiment.toml"), place.path("parts/experiment.toml")).unwrap();
    fs::remove_file(place.path("parts/summary.json")).unwrap();
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("1"));
}

#[test]
fn a_cut_model_scores_as_a_whole_one() {
    let place = with_images();
    let short = ["--set", "federation.rounds=2", "--set", "data.augment={ flip = true, crop = 1 }"];
    run(&place, "whole", &short);
    run(&place, "cut", &[&short[..], &["--set", "split={ first = 1, last = 0 }"]].concat());
    let (whole, cut) = (score(&place, "whole"), score(&place, "cut"));
    assert!((whole - cut).abs() < 1e-6, "{whole} {cut}");
}

#[test]
fn private_runs_and_adapters_take_images() {
    let place = with_images();
    let private = "privacy={ unit = \"example\", epsilon = 8.0, delta = 1e-5, clip = 1.0 }";
    let shares = "data.shares={ central = 0.25, validation = 0.0, test = 0.0 }";
    let few = ["--set", "federation.rounds=2", "--set", "data.augment={ flip = true, crop = 1 }"];
    run(&place, "private", &[&few[..], &["--set", private, "--set", shares]].concat());
    assert!(place.summary("private")["privacy"].is_object());
    let model = "model={ path = \"private/model\", lora = { rank = 2 } }";
    run(&place, "lora", &[&few[..], &["--set", model]].concat());
    let told =
        place.succeed(&["predict", "--model", "lora", "--image", "stripes/lying/patient-000.png"]);
    assert!(told.contains("predicted"), "{told}");
    // PEFT has no word for images, so the adapters' own folder says nothing of the task.
    let adapter = place.path("lora/adapter");
    let config = fs::read_to_string(adapter.join("adapter_config.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&config).unwrap()["task_type"], Value::Null);
    let image = "stripes/lying/patient-000.png";
    let alone = place.succeed(&["predict", "--model", "lora/adapter", "--image", image]);
    let answer = |told: &str| serde_json::from_str::<Value>(told).unwrap()["predicted"].clone();
    assert_eq!(answer(&alone), answer(&told));
    place.succeed(&["evaluate", "--model", "lora/adapter", "stripes.toml"]);
}

#[test]
fn broken_images_are_named_by_their_files_and_skipped() {
    let place = with_images();
    run(&place, "run", &["--set", "federation.rounds=1"]);
    let folder = place.path("mixed");
    fs::create_dir_all(&folder).unwrap();
    let whole = png(&pixels(1, true));
    let mut broken = whole.clone();
    let end = broken.len() - 20;
    broken[60..end].fill(0xAA);
    fs::write(folder.join("a.png"), &whole).unwrap();
    fs::write(folder.join("b.png"), &broken).unwrap();
    fs::write(folder.join("c.gif"), b"GIF89a").unwrap();
    fs::write(folder.join("d.png"), b"").unwrap();
    let said = place.refused(&["predict", "--model", "run", "--image", "mixed/b.png"]);
    assert!(said.contains("error: mixed/b.png: found a broken PNG image"), "{said}");
    assert_eq!(said.matches("expected").count(), 1, "{said}");
    let told = place.fedra(&["predict", "--model", "run", "--input", "mixed", "--skip-bad"]);
    let said = text(&told.stderr);
    assert!(told.status.success(), "{said}");
    assert_eq!(text(&told.stdout).lines().count(), 1, "{}", text(&told.stdout));
    for file in ["b.png", "c.gif", "d.png"] {
        assert!(said.contains(&format!("left out: mixed/{file}: found ")), "{file}: {said}");
    }
    assert!(said.contains("3 rows left out"), "{said}");
}

#[test]
fn a_table_says_which_images_are_missing_and_how_to_leave_them_out() {
    let place = with_images();
    let row = |number: usize| format!("stripes/lying/patient-{number:03}.png,lying");
    let rows: Vec<String> = (0..40).step_by(2).map(row).collect();
    let table = format!("image,label\nabsent.png,lying\n{}\n", rows.join("\n"));
    fs::write(place.path("table.csv"), table).unwrap();
    let set =
        ["data.source=\"csv\"", "data.path=\"table.csv\"", "data.columns={ image = \"image\" }"];
    let flags: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
    let said = place.refused(&[&["data", "stripes.toml"], &flags[..]].concat());
    assert!(said.contains("lacks an image or a label"), "{said}");
    assert!(said.contains("data.missing = \"drop\""), "{said}");
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found
}

#[test]
fn no_file_of_a_run_has_an_image_or_the_name_of_one() {
    let place = with_images();
    let more = ["--set", "federation.rounds=2", "--set", "evaluate.predictions=true"];
    run(&place, "run", &more);
    place.succeed(&["report", "run"]);
    let file = "stripes/lying/patient-000.png";
    place.succeed(&["predict", "--model", "run", "--image", file, "--output", "run/told.csv"]);
    let images: Vec<Vec<u8>> = (0..160).map(|number| pixels(number, number % 2 == 1)).collect();
    for (name, bytes) in files(&place.path("run")) {
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(!has(b"\x89PNG") && !has(b"iVBOR") && !has(b"data:image"), "{name}");
        assert!(!has(b"patient-") || name.ends_with("told.csv"), "{name}");
        for image in &images {
            assert!(!has(&image[..SIDE * 2]), "{name} has two rows of an image");
            let written: Vec<String> = image[..SIDE].iter().map(ToString::to_string).collect();
            for joiner in [",", ", ", " "] {
                assert!(!has(written.join(joiner).as_bytes()), "{name} has numbers of an image");
            }
        }
    }
}

#[test]
fn init_proposes_an_experiment_on_images_that_runs() {
    let place = with_images();
    place.succeed(&["init", "stripes", "--yes", "--out", "made.toml"]);
    let made = fs::read_to_string(place.path("made.toml")).unwrap();
    assert!(
        made.contains("source = \"images\"") && made.contains("preset = \"vit-tiny\""),
        "{made}"
    );
    assert!(made.contains("channels = 1"), "{made}");
    let few = ["--set", "federation.rounds=1", "--set", "data.max_test=8"];
    place.succeed(&[&["run", "made.toml", "--out", "made", "--quiet"][..], &few].concat());
    // A table of the same images.
    let row = |number: usize| {
        let class = ["lying", "standing"][number % 2];
        format!("stripes/{class}/patient-{number:03}.png,{class}\n")
    };
    let table = "file,finding\n".to_owned() + &(0..60).map(row).collect::<String>();
    fs::write(place.path("table.csv"), table).unwrap();
    place.succeed(&["init", "table.csv", "--yes", "--label", "finding", "--out", "table.toml"]);
    let made = fs::read_to_string(place.path("table.toml")).unwrap();
    assert!(made.contains("image = \"file\""), "{made}");
    place.succeed(&[&["run", "table.toml", "--out", "table", "--quiet"][..], &few].concat());
}

#[test]
fn what_does_not_fit_images_is_refused_by_its_key() {
    let place = with_images();
    for (set, part) in [
        ("model.preset=\"tiny-encoder\"", "model.preset: found a model of texts"),
        ("data.max_tokens=64", "data.max_tokens"),
        ("data.task=\"language\"", "data.task: found \"language\""),
        ("model.patch=3", "model.patch: found patches of 3 pixels in images of 8"),
        ("model.channels=2", "model.channels"),
        ("data.columns={ image = \"x\" }", "data.columns"),
        ("model.vocabulary=100", "model.vocabulary"),
        ("data.augment={ crop = 5000 }", "data.augment.crop"),
    ] {
        let said = place.refused(&["run", "stripes.toml", "--set", set]);
        assert!(said.contains(part), "{set}: {said}");
    }
    let said = place.refused(&["run", "tiny.toml", "--set", "model.preset=\"vit-tiny\""]);
    assert!(said.contains("a model of images"), "{said}");
    let said = place.refused(&["run", "tiny.toml", "--set", "data.augment={ flip = true }"]);
    assert!(said.contains("data.augment applies only to images"), "{said}");
}
