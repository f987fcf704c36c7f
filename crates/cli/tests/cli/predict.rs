//! `fedra predict` and `fedra evaluate`: what they say equals what transformers and runs say.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::place::{Place, text};

/// Two f32 implementations of the same formula, of which one pads and the other packs.
const TOLERANCE: f64 = 1e-5;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/predict").join(name)
}

/// The rows of a fixture, and what is said to them when they are read from a file.
fn answered(place: &Place, name: &str, more: &[&str]) -> Vec<(Value, Value)> {
    let folder = fixture(name);
    let rows = fs::read_to_string(folder.join("answers.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let is_pair = |row: &Value| row["text"].is_array();
    let mut all = Vec::new();
    for pairs in [false, true] {
        let rows: Vec<Value> = rows.iter().filter(|row| is_pair(row) == pairs).cloned().collect();
        if rows.is_empty() {
            continue;
        }
        let line = |row: &Value| {
            let row = &row["text"];
            let record =
                if pairs { json!({ "a": row[0], "b": row[1] }) } else { json!({ "text": row }) };
            record.to_string()
        };
        let lines: Vec<String> = rows.iter().map(line).collect();
        fs::write(place.path("texts.jsonl"), lines.join("\n")).unwrap();
        let columns: &[&str] = if pairs { &["--column", "a", "--column", "b"] } else { &[] };
        let model = folder.display().to_string();
        let arguments = ["predict", "--model", &model, "--input", "texts.jsonl", "--top", "99"];
        let told = place.succeed(&[&arguments[..], columns, more].concat());
        let told = told.lines().map(|line| serde_json::from_str(line).unwrap());
        all.extend(rows.into_iter().zip(told));
    }
    all
}

fn assert_near(found: &Value, expected: &Value, about: &Value) {
    let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
    assert!((found - expected).abs() < TOLERANCE, "{found} and {expected} for {about}");
}

#[test]
fn probabilities_of_texts_are_those_of_transformers_for_every_head() {
    let place = Place::new();
    for (name, rows) in [("sequence_one", 10), ("sequence_several", 8), ("sequence_llama", 8)] {
        let answers = answered(&place, name, &[]);
        assert_eq!(answers.len(), rows, "{name}");
        for (expected, told) in answers {
            let all = expected["probabilities"].as_object().unwrap();
            assert_eq!(told["probabilities"].as_object().unwrap().len(), all.len());
            for (label, probability) in all {
                assert_near(&told["probabilities"][label], probability, &expected["text"]);
            }
            let best = |all: &Value| {
                let mut all: Vec<(String, f64)> = all
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(label, probability)| (label.clone(), probability.as_f64().unwrap()))
                    .collect();
                all.sort_by(|a, b| b.1.total_cmp(&a.1));
                all
            };
            let ranked = best(&expected["probabilities"]);
            if name == "sequence_several" {
                let above = ranked.iter().filter(|(_, p)| *p > 0.5).map(|(label, _)| json!(label));
                assert_eq!(told["predicted"], Value::Array(above.collect()), "{told}");
            } else {
                assert_eq!(told["predicted"], json!(ranked[0].0), "{told}");
            }
        }
    }
}

#[test]
fn spans_and_words_are_those_of_transformers_with_their_places() {
    let place = Place::new();
    for name in ["words_bert", "words_llama"] {
        let answers = answered(&place, name, &[]);
        let mut spans = 0;
        for (expected, told) in answers {
            let (expected_spans, found) = (&expected["spans"], &told["predicted"]);
            assert_eq!(found.as_array().unwrap().len(), expected_spans.as_array().unwrap().len());
            for (found, expected) in
                found.as_array().unwrap().iter().zip(expected_spans.as_array().unwrap())
            {
                for key in ["start", "end", "label"] {
                    assert_eq!(found[key], expected[key], "{found} and {expected}");
                }
                assert_near(&found["probability"], &expected["probability"], &told["text"]);
                let letters: Vec<char> = told["text"].as_str().unwrap().chars().collect();
                let range = |key: &str| usize::try_from(found[key].as_u64().unwrap()).unwrap();
                let part: String = letters[range("start")..range("end")].iter().collect();
                assert_eq!(found["text"], json!(part));
                spans += 1;
            }
        }
        assert!(spans > 8, "{name} has {spans} spans");
    }
}

#[test]
fn answers_depend_neither_on_threads_nor_on_where_texts_come_from() {
    let place = Place::new();
    let model = fixture("sequence_one").display().to_string();
    let note = "No chest pain since the stent was placed.";
    let predict = |more: &[&str]| place.succeed(&[&["predict", "--model", &model], more].concat());
    let from_flag = predict(&["--text", note, "--text", "x", "--threads", "1"]);
    fs::write(place.path("notes.csv"), format!("id,note\n7,\"{note}\"\n8,x\n")).unwrap();
    let input = ["--input", "notes.csv", "--column", "note"];
    let from_table = predict(&[&input[..], &["--threads", "3"]].concat());
    for (flag, table) in from_flag.lines().zip(from_table.lines()) {
        let (flag, table): (Value, Value) =
            (serde_json::from_str(flag).unwrap(), serde_json::from_str(table).unwrap());
        assert_eq!(flag["probabilities"], table["probabilities"]);
        assert!(table["id"].is_string() && table["note"] == flag["text"], "{table}");
    }
    predict(&[&input[..], &["--output", "out.csv"]].concat());
    let table = fs::read_to_string(place.path("out.csv")).unwrap();
    assert!(table.starts_with("id,note,predicted,probability\n7,"), "{table}");
    assert_eq!(table.lines().count(), 3);
    let refused = place
        .refused(&[&["predict", "--model", &model][..], &input, &["--output", "out.csv"]].concat());
    assert!(refused.contains("--force"), "{refused}");
    predict(&[&input[..], &["--output", "out.csv", "--force", "--top", "1"]].concat());

    let mut child = Command::new(env!("CARGO_BIN_EXE_fedra"))
        .args(["predict", "--model", &model, "--input", "-", "--format", "tsv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{note}\nx\n").as_bytes()).unwrap();
    let told = text(&child.wait_with_output().unwrap().stdout);
    assert!(told.starts_with("text\tpredicted\tprobability\n"), "{told}");
    assert_eq!(told.lines().count(), 3);
}

#[test]
fn long_texts_are_cut_aloud_or_read_in_windows_and_words_may_be_given() {
    let place = Place::new();
    let long = "chest pain and fever and cough ".repeat(30);
    let model = fixture("sequence_one").display().to_string();
    let told = place.succeed_and_hear(&["predict", "--model", &model, "--text", &long]);
    assert!(told.contains("note: 1 of 1 row is cut to 40 tokens: the rest was not read"), "{told}");
    fs::write(place.path("long.csv"), format!("text,label\n{long},stable\nx,worse\n")).unwrap();
    let scored = place.succeed_and_hear(&["evaluate", "--model", &model, "long.csv"]);
    assert!(scored.contains("note: 1 of 2 rows is cut to 40 tokens (--max-tokens)"), "{scored}");
    assert!(told.contains("\"truncated\": "), "{told}");
    let model = fixture("words_llama").display().to_string();
    let told: Value =
        serde_json::from_str(&place.succeed(&["predict", "--model", &model, "--text", &long]))
            .unwrap();
    assert_eq!(told["predicted"].as_array().unwrap().len(), 180);
    assert_eq!(told.get("truncated"), None);
    let model = fixture("words_bert").display().to_string();
    fs::write(place.path("words.jsonl"), r#"{"tokens": ["No", "chest", "pain"], "n": 1}"#).unwrap();
    let told: Value = serde_json::from_str(&place.succeed(&[
        "predict",
        "--model",
        &model,
        "--input",
        "words.jsonl",
    ]))
    .unwrap();
    assert_eq!((told["tags"].as_array().unwrap().len(), &told["n"]), (3, &json!(1)));
}

#[test]
fn what_cannot_be_predicted_is_refused_with_its_line() {
    let place = Place::new();
    let model = fixture("sequence_one").display().to_string();
    let refused = |more: &[&str]| place.refused(&[&["predict", "--model", &model], more].concat());
    assert!(refused(&[]).contains("--text <TEXT>"), "a source is needed");
    fs::write(place.path("bad.jsonl"), "{\"text\": 1}\nnot json\n{\"text\": \"x\"}\n").unwrap();
    let output = place.fedra(&["predict", "--model", &model, "--input", "bad.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("bad.jsonl:2: found not json"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stdout).lines().count(), 1, "what came before it is answered");
    let skipped = place.succeed_and_hear(&[
        "predict",
        "--model",
        &model,
        "--input",
        "bad.jsonl",
        "--skip-bad",
    ]);
    assert!(skipped.contains("1 row left out") && skipped.contains("bad.jsonl:2"), "{skipped}");
    assert!(
        refused(&["--input", "bad.jsonl", "--column", "note"])
            .contains("bad.jsonl:1: found the columns \"text\", expected column \"note\"")
    );
    let empty = ["predict", "--model", &model, "--input", "empty.csv"];
    fs::write(place.path("empty.csv"), "text\ncough\n\" \"\n\"\"\n").unwrap();
    let told = place.succeed_and_hear(&empty);
    assert!(told.contains("note: 2 of 3 rows have no text, the first at empty.csv:3"), "{told}");
    assert!(refused(&["--input", "bad.docx"]).contains("--input-format is missing"));
    assert!(refused(&["--input", "none.csv"]).contains("none.csv"));
    assert!(refused(&["--text", "x", "--threshold", "2"]).contains("--threshold: found 2"));
    assert!(refused(&["--text", "x", "--best"]).contains("--best: found"));
    assert!(refused(&["--text", "x", "--max-tokens", "99"]).contains("expected at most 40"));
    let none = place.refused(&["predict", "--model", "nowhere", "--text", "x"]);
    assert!(none.contains("--model: found no nowhere"), "{none}");
}

#[test]
#[cfg(target_os = "linux")]
fn answers_that_are_cut_short_leave_nothing_and_a_full_disk_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let model = fixture("sequence_one").display().to_string();
    let full = ["predict", "--model", &model, "--text", "x", "--output", "/dev/full"];
    let output = place.fedra(&[&full[..], &["--format", "jsonl"]].concat());
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("/dev/full: No space left"), "{said}");

    let mut child = Command::new(env!("CARGO_BIN_EXE_fedra"))
        .current_dir(place.folder.path())
        .args(["predict", "--model", &model, "--input", "-", "--output", "out.jsonl"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Held to the end: whoever waits for a child closes what is left of its input.
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a note of a patient\n").unwrap();
    let part = place.path(&format!(".out.jsonl.{}.part", child.id()));
    let mode = || fs::metadata(&part).map(|found| found.permissions().mode() & 0o777).ok();
    while mode() != Some(0o600) {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The signal is listened to soon after the file is there.
    while !hears_interrupts(child.id()) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
    assert!(!part.exists() && !place.path("out.jsonl").exists());
}

/// Whether a process has a handler for SIGINT, the second of its signals.
#[cfg(target_os = "linux")]
fn hears_interrupts(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
}

/// Trains the smallest federation, with a test set that the server holds.
fn trained(place: &Place, more: &[&str]) -> Value {
    let arguments = ["run", "tiny.toml", "--quiet", "--out", "runs/a"];
    place.succeed(&[&arguments[..], more].concat());
    place.summary("runs/a")
}

#[test]
fn a_run_tells_its_labels_its_predictions_and_its_card() {
    let place = Place::new();
    let summary = trained(&place, &["--set", "evaluate.predictions=true"]);
    let by_label = &summary["by_label"]["central_test"];
    let names: Vec<&str> = by_label["confusion"]["labels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(names, ["O", "problem", "test", "treatment"]);
    let words: u64 = by_label["confusion"]["counts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|count| count.as_u64().unwrap())
        .sum();
    let lines = fs::read_to_string(place.path("runs/a/predictions.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: usize = lines
        .iter()
        .map(|line| {
            assert_eq!(
                line["truth"].as_array().unwrap().len(),
                line["predicted"].as_array().unwrap().len()
            );
            let cut = line["cut"].as_array().map_or(0, Vec::len);
            line["truth"].as_array().unwrap().len() + cut
        })
        .sum();
    assert_eq!(told as u64, words);
    let card = fs::read_to_string(place.path("runs/a/model/README.md")).unwrap();
    for part in ["pipeline_tag: token-classification", "span\\_f1", "## Privacy", "rows | "] {
        assert!(card.contains(part) || card.contains(&part.replace('\\', "")), "{part}: {card}");
    }
    assert!(
        !card.contains("hospital-") && !card.contains(&place.folder.path().display().to_string())
    );
    // Beginning anew leaves nothing of it behind.
    place.succeed(&[
        "run",
        "tiny.toml",
        "--quiet",
        "--out",
        "runs/a",
        "--force",
        "--set",
        "federation.rounds=1",
    ]);
    assert!(!place.path("runs/a/predictions.jsonl").exists());
}

#[test]
fn an_evaluation_gives_the_scores_of_the_run_and_of_each_client() {
    let place = Place::new();
    let summary = trained(&place, &[]);
    let arguments = ["evaluate", "--model", "runs/a", "tiny.toml", "--json"];
    let report: Value = serde_json::from_str(&place.succeed(&arguments)).unwrap();
    for (name, value) in summary["scores"]["central_test"].as_object().unwrap() {
        let told = report["sets"]["central_test"]["scores"][name].as_f64().unwrap();
        // The summary's mean is weighted by examples and divided again.
        assert!((told - value.as_f64().unwrap()).abs() < 1e-12, "{name}");
    }
    assert_eq!(report["sets"]["central_test"]["by_label"], summary["by_label"]["central_test"]);
    let clients = report["sets"]["client_test"]["clients"].as_object().unwrap();
    // The first of three has no test rows.
    assert_eq!(clients.keys().collect::<Vec<_>>(), ["hospital-2", "hospital-3"]);
    let calibration = &report["sets"]["client_test"]["calibration"];
    assert!(calibration["expected_error"].as_f64().unwrap() <= 1.0);
    let counts =
        calibration["bins"].as_array().unwrap().iter().map(|bin| bin["count"].as_u64().unwrap());
    assert!(counts.sum::<u64>() > 0);
    let shown = place.succeed(&arguments[..4]);
    assert!(shown.contains("central test: ") && shown.contains("true \\ answered"), "{shown}");
    assert!(shown.contains("hospital-2"), "{shown}");
    // Only with the run's own rows, divided as it divided them, is no scored row one that it trained on.
    let said = place.succeed_and_hear(&arguments[..4]);
    assert!(!said.contains("trained on"), "{said}");
    let said =
        place.succeed_and_hear(&[&arguments[..4], &["--set", "data.shares.test=0.3"]].concat());
    assert!(said.contains("note: runs/a partitioned the same rows differently"), "{said}");
    let said = place.succeed_and_hear(&[&arguments[..4], &["--seed", "4"]].concat());
    assert!(said.contains("note: these are not the rows of runs/a"), "{said}");
    assert!(said.contains("training rows of the model may be among the scored rows"), "{said}");
}

#[test]
fn rows_of_a_file_are_scored_by_their_labels_names_and_strange_labels_are_refused() {
    let place = Place::new();
    let model = fixture("sequence_one").display().to_string();
    let rows =
        "note,kind,ward\nno chest pain,stable,north\nfever,worse,south\ncough,better,south\n";
    fs::write(place.path("rows.csv"), rows).unwrap();
    let columns = "text=note,label=kind,client=ward";
    let arguments = ["evaluate", "--model", &model, "rows.csv", "--columns", columns];
    let told = place.succeed(&[&arguments[..], &["--json", "--predictions", "p.jsonl"]].concat());
    let report: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(report["sets"]["rows"]["examples"], 3);
    assert_eq!(report["sets"]["rows"]["clients"]["south"]["examples"], 2);
    let lines = fs::read_to_string(place.path("p.jsonl")).unwrap();
    let mut rows: Vec<u64> = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let told = place.succeed(&[
            "predict",
            "--model",
            &model,
            "--text",
            ["no chest pain", "fever", "cough"][line["row"].as_u64().unwrap() as usize - 1],
        ]);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            (&told["predicted"], &told["probability"]),
            (&line["predicted"], &line["probability"])
        );
        rows.push(line["row"].as_u64().unwrap());
    }
    rows.sort_unstable();
    assert_eq!(rows, [1, 2, 3]);
    fs::write(place.path("rows.csv"), "note,kind,ward\nx,mixed,north\n").unwrap();
    let refused = place.refused(&arguments);
    let begin = "error: --columns label: the head does not answer with the labels of the rows: ";
    assert!(refused.starts_with(begin), "{refused}");
    assert!(refused.contains("the labels are mixed"), "{refused}");
    assert!(refused.contains("answers with stable, worse, better"), "{refused}");
    assert!(refused.contains("first other label \"mixed\" at "), "{refused}");
    let refused = place.refused(&["evaluate", "--model", &model, "tiny.toml", "--task", "classes"]);
    assert!(refused.contains("--task applies only to a file of rows"), "{refused}");
}

#[test]
fn flags_that_would_do_nothing_and_keys_that_nobody_wrote_are_not_passed_over() {
    let place = Place::new();
    let model = fixture("sequence_one").display().to_string();
    let refused =
        place.refused(&["predict", "--model", &model, "--text", "x", "--threshold", "0.9"]);
    assert!(refused.contains("this model answers exactly one label"), "{refused}");
    fs::write(place.path("latin.csv"), b"text;label\ncaf\xe9;stable\n").unwrap();
    for arguments in [
        &["predict", "--model", &model, "--input", "latin.csv", "--delimiter", ";"][..],
        &["evaluate", "--model", &model, "latin.csv", "--delimiter", ";"],
        &["predict", "--model", &model, "--input", "latin.csv"],
        &["evaluate", "--model", &model, "latin.csv"],
    ] {
        let refused = place.refused(arguments);
        assert!(
            refused.contains("latin.csv:") && !refused.contains("data."),
            "{arguments:?}: {refused}"
        );
    }
    fs::write(place.path("rows.csv"), "text,label\nx,stable\n").unwrap();
    fs::write(place.path("p.jsonl"), "mine").unwrap();
    let refused =
        place.refused(&["evaluate", "--model", &model, "rows.csv", "--predictions", "p.jsonl"]);
    assert!(refused.contains("--predictions: found p.jsonl, expected no such file"), "{refused}");
}

#[test]
fn a_table_has_the_same_columns_with_rows_and_without() {
    let place = Place::new();
    for (name, header) in [
        ("sequence_one", "id,text,predicted,probability"),
        ("sequence_several", "id,text,predicted,probability"),
        ("words_bert", "id,text,predicted"),
    ] {
        let model = fixture(name).display().to_string();
        for rows in ["", "1,no chest pain\n"] {
            fs::write(place.path("in.csv"), format!("id,text\n{rows}")).unwrap();
            let arguments = ["predict", "--model", &model, "--input", "in.csv", "--format", "csv"];
            let told = place.succeed(&arguments);
            assert_eq!(told.lines().next(), Some(header), "{name}");
            place.succeed(&[&arguments[..5], &["--output", "out.parquet", "--force"]].concat());
            let parquet = fs::read(place.path("out.parquet")).unwrap();
            assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
        }
    }
}

#[test]
fn clients_test_sets_are_told_by_label_where_there_is_no_central_one() {
    let place = Place::new();
    let shares = "data.shares={ central = 0.0, validation = 0.0, test = 0.3 }";
    let summary = trained(&place, &["--set", shares]);
    let arguments = ["evaluate", "--model", "runs/a", "runs/a/experiment.toml", "--json"];
    let report: Value = serde_json::from_str(&place.succeed(&arguments)).unwrap();
    assert_eq!(summary["by_label"]["client_test"], report["sets"]["client_test"]["by_label"]);
    assert!(summary["by_label"]["client_test"]["labels"].as_array().unwrap().len() > 1);
}

#[test]
fn adapters_say_what_their_head_answers_wherever_they_lie() {
    let place = Place::new();
    let base = fixture("sequence_several").display().to_string();
    let codes = ["[\"I20\", \"J18\"]", "[\"R50\"]", "[]", "[\"I21\", \"R50\"]"];
    let row = |row: usize| {
        format!("{{\"text\": \"chest pain and fever {row}\", \"labels\": {}}}\n", codes[row % 4])
    };
    fs::write(place.path("rows.jsonl"), (0..24).map(row).collect::<String>()).unwrap();
    let experiment = format!(
        "[data]\nsource = \"jsonl\"\ntask = \"diagnosis\"\npath = \"rows.jsonl\"\nmax_tokens = 24\n\
         partition = {{ by = \"iid\" }}\n[model]\npath = {base:?}\n[model.lora]\nrank = 2\n\
         [federation]\nrounds = 1\nclients = 2\n"
    );
    fs::write(place.path("lora.toml"), experiment).unwrap();
    place.succeed(&["run", "lora.toml", "--quiet", "--out", "run"]);
    fs::rename(place.path("run/adapter"), place.path("elsewhere")).unwrap();
    let arguments = ["evaluate", "--model", "elsewhere", "rows.jsonl", "--json"];
    let report: Value = serde_json::from_str(&place.succeed(&arguments)).unwrap();
    assert_eq!(report["task"], "diagnosis");
    let predict = ["predict", "--model", "elsewhere", "--text", "fever"];
    let told: Value = serde_json::from_str(&place.succeed(&predict)).unwrap();
    assert!(told["predicted"].is_array(), "{told}");
    // Adapters that do not say it are read as one label, and that is told.
    fs::remove_file(place.path("elsewhere/head.json")).unwrap();
    let heard = place.succeed_and_hear(&predict);
    assert!(heard.contains("note: elsewhere does not say whether a text has one label"), "{heard}");
}

#[test]
fn a_table_of_answers_has_every_key_whatever_the_order_in_which_rows_have_them() {
    let place = Place::new();
    let model = fixture("sequence_one").display().to_string();
    let rows = [
        r#"{"id": 1, "text": "no pain"}"#,
        r#"{"text": "some pain", "id": 2}"#,
        r#"{"ward": "a, b", "text": "pain"}"#,
    ];
    fs::write(place.path("rows.jsonl"), rows.join("\n")).unwrap();
    let said = |output: &str| {
        let arguments = ["predict", "--model", &model, "--input", "rows.jsonl", "--output", output];
        place.succeed(&[&arguments[..], &["--force"]].concat());
        fs::read_to_string(place.path(output)).unwrap()
    };
    let csv = said("answers.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "id,text,ward,predicted,probability");
    let starts = ["1,no pain,,", "2,some pain,,", ",pain,\"a, b\","];
    for (line, start) in lines[1..].iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    // A stream is read once: its table has the keys of the rows that are answered first.
    let from_stream = |rows: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.args(["predict", "--model", &model, "--input", "-", "--input-format", "jsonl"]);
        command.args(["--format", "csv"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
        running.stdin.take().unwrap().write_all(rows.as_bytes()).unwrap();
        running.wait_with_output().unwrap()
    };
    let streamed = from_stream(&rows.join("\n"));
    assert_eq!(text(&streamed.stdout), csv);
    let many = format!("{}{}", "{\"text\": \"x\"}\n".repeat(2048), rows[0]);
    let refused = from_stream(&many);
    assert_eq!(refused.status.code(), Some(2));
    let told = text(&refused.stderr);
    assert!(told.contains("found a new key \"id\" after the table was started"), "{told}");
}

#[test]
fn a_run_is_read_by_the_columns_that_it_was_trained_with_and_says_which_model_answers() {
    let place = Place::new();
    let mut rows = "id,note,kind,client\n".to_owned();
    for row in 0..40 {
        let (kind, client) = (["a", "b", "a"][row % 3], ["north", "south"][row % 2]);
        let line = format!("{row},the same words,{kind},{client}\n");
        rows.push_str(&line);
    }
    fs::write(place.path("rows.csv"), &rows).unwrap();
    let experiment = "[data]\nsource = 'csv'\ntask = 'classes'\npath = 'rows.csv'\nmax_tokens = 8\n\
                      columns = { text = 'note', label = 'kind' }\n\
                      shares = { central = 0.2, validation = 0.2, test = 0.0 }\n\
                      [model]\npreset = 'tiny-encoder'\nblocks = 1\nwidth = 8\nheads = 2\n\
                      [federation]\nrounds = 2\n";
    fs::write(place.path("rows.toml"), experiment).unwrap();
    place.succeed(&["run", "rows.toml", "--quiet"]);
    let ask = |file: &str, more: &[&str]| {
        place.fedra(&[&["predict", "--model", "runs/rows", "--input", file], more].concat())
    };
    let output = ask("rows.csv", &[]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(text(&output.stdout).lines().count(), 40);
    assert!(said.contains("note: runs/rows/model is used, of the last round (2)"), "{said}");
    // All texts are the same words, so nothing can be learnt but the commonest label.
    assert!(said.contains("note: this model is no better than always answering \"a\""), "{said}");
    let said = text(&ask("rows.csv", &["--best"]).stderr);
    assert!(said.contains("note: runs/rows/model-best is used, of round "), "{said}");
    // Another file has another column, which somebody has to name.
    fs::write(place.path("new.csv"), "id,text\n1,the same words\n").unwrap();
    let output = ask("new.csv", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(
            "new.csv:2: found the columns \"id\", \"text\", expected column \"note\", with which the run was \
             trained; --column NAME names another"
        ),
        "{said}"
    );
    assert!(ask("new.csv", &["--column", "text"]).status.success());
    let output = place.fedra(&["predict", "--model", "runs/rows", "--text", "the same words"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Labelled rows are found by the same columns.
    let said = place.succeed_and_hear(&["evaluate", "--model", "runs/rows", "rows.csv"]);
    assert!(said.contains("note: runs/rows took its training rows from "), "{said}");
    fs::copy(place.path("rows.csv"), place.path("copy.csv")).unwrap();
    let said = place.succeed_and_hear(&["evaluate", "--model", "runs/rows", "copy.csv"]);
    assert!(!said.contains("took its training rows"), "{said}");
    place.succeed(&["evaluate", "--model", "runs/rows/model-best", "rows.csv"]);
}

#[test]
fn several_adapters_answer_over_one_base_each_into_a_file_of_its_own() {
    let place = Place::new();
    let base = fixture("sequence_one").display().to_string();
    let row = |n: usize, word: &str| {
        let label = if n.is_multiple_of(2) { "yes" } else { "no" };
        json!({"text": format!("{word} pain {n}"), "label": label}).to_string()
    };
    for (name, word) in [("north", "chest"), ("south", "head")] {
        let rows: Vec<String> = (0..40).map(|n| row(n, word)).collect();
        fs::write(place.path("rows.jsonl"), rows.join("\n")).unwrap();
        let experiment = format!(
            "[data]\nsource = \"jsonl\"\ntask = \"classes\"\npath = \"rows.jsonl\"\nmax_tokens = 16\n\
             partition = {{ by = \"iid\" }}\n[model]\npath = {base:?}\n[model.lora]\nrank = 2\n\
             [federation]\nclients = 2\nrounds = 2\n[work]\noptimiser = {{ name = \"adamw\", rate = 0.05 }}\n"
        );
        fs::write(place.path("lora.toml"), experiment).unwrap();
        place.succeed(&["run", "lora.toml", "--quiet", "--out", name]);
    }
    let predict = ["predict", "--input", "rows.jsonl", "--model"];
    let both = ["--adapter", "north=north", "--adapter", "south=south/adapter"];
    place.succeed(&[&predict[..], &[&base, "--output", "out.jsonl"], &both].concat());
    let answers = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    for name in ["north", "south"] {
        let adapter = format!("{name}/adapter");
        let alone = place.succeed(&[&predict[..], &[&adapter, "--base", &base]].concat());
        assert_eq!(answers(&format!("out.{name}.jsonl")), alone, "{name}");
    }
    assert_ne!(answers("out.north.jsonl"), answers("out.south.jsonl"));
    assert!(!place.path("out.jsonl").exists());
    for (more, told) in [
        (&both[..], "--output"),
        (&["--output", "o.jsonl", "--adapter", "a/b=north"], "part of a file's name"),
        (
            &["--output", "o.jsonl", "--adapter", "a=north", "--adapter", "a=south"],
            "two with the name",
        ),
        (&["--output", "o.jsonl", "--adapter", "a=rows.jsonl"], "found no adapter_config.json"),
    ] {
        let refused = place.refused(&[&predict[..], &[&base], more].concat());
        assert!(refused.contains(told), "{told}: {refused}");
    }
}
