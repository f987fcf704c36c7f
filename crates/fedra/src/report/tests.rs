//! Pages of folders as runs leave them, and of folders that somebody edited.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::apply::pages::{document, write};
use crate::folder::summary::Summary;
use crate::run_files::{CLIENTS, COMPARISON, EXPERIMENT, INPUTS, ROUNDS, SUMMARY};

/// A round in which nothing was measured that need not be.
fn plain(round: u32) -> Value {
    json!({
        "round": round, "cohort": [0, 1], "arrived": [0, 1], "failed": [], "refused": [],
        "blocks": [0, 1], "changed": 10, "loss": 0.5,
        "bytes": {"up": 1000, "down": 2000, "full_up": 4000, "full_down": 4000},
        "effort": 1, "seconds": 0.5, "slowest": 0.1, "most_updates_held": 1, "scores": []
    })
}

fn scored(round: u32, clients: u32) -> Value {
    let mut report = plain(round);
    let score = |client: u32| 0.1 + 0.8 * f64::from((client * 7 + round * 3) % 11) / 11.0;
    let each: Vec<Value> = (0..clients)
        .map(|client| json!({"client": client, "examples": 5, "loss": 1.0, "scores": {"span_f1": score(client)}}))
        .collect();
    report["scores"] = json!([
        {"on": "central_test", "loss": 1.0, "mean": {"span_f1": 0.4},
         "each": [{"client": null, "examples": 9, "loss": 1.0, "scores": {"span_f1": 0.4}}]},
        {"on": "client_test", "loss": 1.0, "mean": {"span_f1": 0.5}, "each": each,
         "spread": {"span_f1": {"deviation": 0.1, "least": 0.1, "most": 0.9}}},
    ]);
    report
}

/// A folder with these rounds.
fn folder(rounds: &[Value]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../../tests/tiny.toml");
    fs::write(folder.path().join(EXPERIMENT), format!("name = \"tiny\"\n{text}")).unwrap();
    let lines: Vec<String> = rounds.iter().map(|round| format!("{round}\n")).collect();
    let lines = lines.concat();
    fs::write(folder.path().join(ROUNDS), lines).unwrap();
    folder
}

fn page(folder: &Path) -> String {
    let path = write(folder).unwrap();
    fs::read_to_string(path.page).unwrap()
}

fn with_summary(folder: &Path, change: impl FnOnce(&mut Value)) {
    let mut summary = serde_json::to_value(Summary::of_nothing(2)).unwrap();
    change(&mut summary);
    fs::write(folder.join(SUMMARY), summary.to_string()).unwrap();
}

#[test]
fn what_was_not_measured_is_not_drawn() {
    let run = folder(&[plain(0), plain(1)]);
    let html = page(run.path());
    for drawn in ["Loss by round", "Blocks that learned", "Bytes by kind", "Time by phase"] {
        assert!(html.contains(drawn), "{drawn}");
    }
    for absent in [
        "Score by round",
        "Score against bytes",
        "Gain by client",
        "By label",
        "Privacy spent",
        "Signal-to-noise ratio",
        "Drift of",
        "Scores of blocks",
        "Parts at client and server",
        "Memory of both",
        "Not drawn",
    ] {
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(html.contains("2 of 3 rounds so far"), "the run is not complete");
}

#[test]
fn a_run_before_its_first_round_has_a_page() {
    let run = folder(&[]);
    fs::remove_file(run.path().join(ROUNDS)).unwrap();
    let html = page(run.path());
    assert!(html.contains("0 of 3 rounds so far") && !html.contains("<figure"));
    assert!(html.contains("fedra run experiment.toml"));
}

#[test]
fn a_scored_run_shows_curves_clients_and_what_they_cost() {
    let run = folder(&[scored(0, 3), scored(1, 3)]);
    let html = page(run.path());
    for drawn in ["Score by round", "Score against bytes", "Score by client", "Gain by client"] {
        assert!(html.contains(&format!("<h3>{drawn}</h3>")), "{drawn}");
    }
    // A folder of an earlier version has no names.
    for client in ["client 0", "client 1", "client 2"] {
        assert!(html.contains(client), "{client}");
    }
    // One scoring is a mark and no line, and nobody has gained or lost.
    let once = page(folder(&[scored(0, 3)]).path());
    assert!(once.contains("<h3>Score by round</h3>") && !once.contains("Gain by client"));
    assert!(!once.contains("Not drawn"));
}

/// Names the clients of a folder, each with as many rows as it likes.
fn name_clients(folder: &Path, names: &[&str]) {
    let one = |(number, name): (usize, &&str)| json!({"client": number, "name": name, "train": 40 + number, "validation": 0, "test": 5});
    let clients: Vec<Value> = names.iter().enumerate().map(one).collect();
    fs::write(folder.join(CLIENTS), json!({ "clients": clients }).to_string()).unwrap();
}

/// Two rounds: one client is late in the first, and refused in the second.
fn with_absences() -> [Value; 2] {
    let mut rounds = [scored(0, 3), scored(1, 3)];
    for report in &mut rounds {
        report["cohort"] = json!([0, 1, 2]);
    }
    rounds[0]["failed"] = json!([{"client": 2, "reason": "did not answer within 60 s"}]);
    rounds[1]["refused"] = json!([{"client": 2, "reason": "north: sent no update"}]);
    rounds
}

#[test]
fn clients_have_names_and_a_table_of_what_became_of_them() {
    let run = folder(&with_absences());
    name_clients(run.path(), &["St. Anna", "<b>south</b> & co", "north"]);
    let html = page(run.path());
    assert!(!html.contains("client 0") && !html.contains("<b>south"), "{html}");
    assert!(html.contains("&lt;b&gt;south&lt;/b&gt; &amp; co"));
    let cells = |row: &[&str]| {
        let cell = |(place, text): (usize, &&str)| match place {
            0 | 7 => format!("<td class=\"name\" dir=\"auto\">{text}</td>"),
            _ => format!("<td class=\"number\">{text}</td>"),
        };
        row.iter().enumerate().map(cell).collect::<String>()
    };
    let score = |client: u32| format!("{:.3}", 0.1 + 0.8 * f64::from((client * 7 + 3) % 11) / 11.0);
    let (anna, north) = (score(0), score(2));
    let anna = cells(&["St. Anna", "40", "5", "2 of 2", "1.000", &anna, "", ""]);
    assert!(html.contains(&anna), "{anna} in {html}");
    let reason = "round 2: refused: sent no update";
    let north = cells(&["north", "42", "5", "0 of 2", "1.000", &north, "2", reason]);
    assert!(html.contains(&north), "{north} in {html}");
    assert!(html.contains("3 clients, of which 2 have updates in the model."));
}

#[test]
fn client_level_privacy_leaves_out_who_took_part() {
    let run = folder(&with_absences());
    name_clients(run.path(), &["west", "south", "north"]);
    let path = run.path().join(EXPERIMENT);
    let text = fs::read_to_string(&path).unwrap();
    for (unit, shown) in [("example", true), ("client", false)] {
        fs::write(&path, format!("{text}\n[privacy]\nunit = \"{unit}\"\n")).unwrap();
        let html = page(run.path());
        assert_eq!(html.contains("0 of 2"), shown, "{unit}");
        assert_eq!(html.contains("There is no table by client"), !shown, "{unit}");
    }
}

#[test]
fn five_thousand_clients_with_long_names_make_a_small_page() {
    let many: Vec<String> = (0..5000)
        .map(|number| {
            format!("{number} {} \u{645}\u{633}\u{62a}\u{634}\u{641}\u{649}", "x".repeat(90))
        })
        .collect();
    let run = folder(&[scored(0, 5000), scored(1, 5000)]);
    let few = page(folder(&[scored(0, 3), scored(1, 3)]).path()).len();
    name_clients(run.path(), &many.iter().map(String::as_str).collect::<Vec<_>>());
    let html = page(run.path());
    assert!(
        html.contains("5,000 clients") && html.contains("Shown: 100"),
        "it says what is left out"
    );
    assert!(html.len() < few + 100_000, "{} and {few}", html.len());
}

#[test]
fn a_private_run_shows_what_it_spent_and_where_the_noise_is() {
    let mut rounds = [plain(0), plain(1)];
    for (round, report) in rounds.iter_mut().enumerate() {
        report["loss"] = Value::Null;
        report["privacy"] = json!({
            "unit": "example", "epsilon": 1.5 * (round + 1) as f64, "delta": 1e-5,
            "layers": [
                {"layer": "embedding", "numbers": 5, "released": 2.0, "noise": 1.0},
                {"layer": "block.1", "numbers": 5, "released": 0.5, "noise": 1.0},
            ],
        });
    }
    let html = page(folder(&rounds).path());
    assert!(html.contains("<h3>Privacy spent</h3>") && html.contains("epsilon 3.00"));
    assert!(html.contains("<h3>Signal-to-noise ratio</h3>") && html.contains("block.1"));
    // Something was released without a bound: there is no number to draw.
    rounds[1]["privacy"]["epsilon"] = Value::Null;
    let html = page(folder(&rounds).path());
    assert!(html.contains("epsilon inf") && !html.contains("Not drawn"), "{html}");
}

#[test]
fn drift_choices_memory_phases_and_a_second_stage_are_shown_where_they_were_measured() {
    let mut rounds = [plain(0), plain(1)];
    for report in &mut rounds {
        let drift = json!({"drift": 0.5, "disagreement": 0.3, "mean_norm": 1.0});
        report["drift"] =
            json!({"roles": {"query_key": drift, "mlp": drift}, "query_key_blocks": {}});
        report["stage"] = json!({"since": 1});
        report["memory"] = json!({"client": 1_000_000, "server": 5_000_000});
        report["phases"] =
            json!({"sync": 0.1, "probe": 0.1, "train": 0.2, "apply": 0.01, "evaluate": 0.05});
        report["selection"] = json!({
            "scores": [0.2, 0.6], "entropy": 0.5, "churn": null, "never": [0], "clients": [0, 2],
            "agreement": 0.5, "scores_up": 1, "masks_down": 1,
            "warnings": [{"kind": "collapse", "text": "collapse: <b>same</b> again"}],
        });
    }
    let html = page(folder(&rounds).path());
    for drawn in [
        "Drift of the clients, by role",
        "Disagreement of the clients, by role",
        "Scores of blocks",
        "Memory of both sides",
    ] {
        assert!(html.contains(&format!("<h3>{drawn}</h3>")), "{drawn}");
    }
    assert!(html.contains("tensors, measured; the server 5.0 MB"));
    assert!(html.contains("second stage") && html.contains("url(#hatch)"));
    assert!(html.contains("from round 2"));
    for phase in ["sync", "probe", "train", "apply", "evaluate"] {
        assert!(html.contains(&format!("</svg>{phase}</li>")), "{phase}");
    }
    assert!(html.contains("collapse: &lt;b&gt;same&lt;/b&gt; again"));
}

#[test]
fn labels_and_what_was_taken_for_what_are_shown() {
    let run = folder(&[plain(0)]);
    let label = |name: &str| json!({"label": name, "precision": 0.5, "recall": 0.25, "f1": 0.33, "support": 8});
    with_summary(run.path(), |summary| {
        summary["by_label"] = json!({"central_test": {
            "labels": [label("<i>problem"), label("test")],
            "confusion": {"labels": ["<i>problem", "test"], "counts": [[6, 2], [0, 0]]},
        }});
    });
    let html = page(run.path());
    assert!(html.contains("By label, central test"));
    assert!(html.contains("Confusion matrix, central test"));
    assert!(html.contains("&lt;i&gt;problem (8)") && !html.contains("<i>problem"));
    assert!(html.contains(">75</text>"), "six of eight");

    // Names of many labels stand once, and columns have their numbers.
    let names: Vec<String> = (0..30).map(|n| format!("a long name of label {n}")).collect();
    with_summary(run.path(), |summary| {
        let counts = vec![vec![1; 30]; 30];
        let labels: Vec<Value> = names.iter().map(|name| label(name)).collect();
        let confusion = json!({"labels": names, "counts": counts});
        summary["by_label"]["central_test"] = json!({"labels": labels, "confusion": confusion});
    });
    let html = page(run.path());
    assert!(html.contains("Columns have the numbers of their rows."));
    assert!(html.contains("30 a long name") && !html.contains("rotate(-90"));
}

#[test]
fn names_of_the_folder_are_text_and_never_markup() {
    let run = folder(&[plain(0)]);
    let hostile = "<script>alert(1)</script>".repeat(200);
    with_summary(run.path(), |summary| {
        summary["name"] = json!(hostile);
        summary["method"] = json!("</title><img src=x>");
    });
    let html = page(run.path());
    assert!(!html.contains("<script") && !html.contains("<img"));
}

#[test]
fn an_experiment_that_cannot_be_opened_is_told_with_its_reason() {
    let run = folder(&[plain(0)]);
    fs::write(run.path().join(EXPERIMENT), "name = \"tiny\"\nno key = [").unwrap();
    let html = page(run.path());
    assert!(html.contains("The experiment cannot be opened here: "), "{html}");
    assert!(html.contains("found TOML that cannot be read"), "{html}");
    assert!(!html.contains("fedra run experiment.toml"), "{html}");
}

#[test]
fn numbers_that_are_none_are_left_out() {
    let mut bad = scored(1, 3);
    bad["loss"] = Value::Null;
    for set in bad["scores"].as_array_mut().unwrap() {
        set["loss"] = Value::Null;
        set["mean"]["span_f1"] = Value::Null;
    }
    bad["scores"][1]["spread"]["span_f1"]["least"] = Value::Null;
    bad["scores"][1]["each"][0]["scores"]["span_f1"] = Value::Null;
    let html = page(folder(&[scored(0, 3), bad]).path());
    assert!(html.contains("<h3>Score by round</h3>") && !html.contains("Not drawn"), "{html}");
}

#[test]
fn a_log_that_was_edited_is_refused_by_line_and_a_torn_end_is_not() {
    let run = folder(&[plain(0), plain(1)]);
    let log = run.path().join(ROUNDS);
    let whole = fs::read_to_string(&log).unwrap();
    fs::write(&log, format!("{whole}{{\"round\": 2, \"coh")).unwrap();
    assert!(page(run.path()).contains("2 of 3 rounds"));
    fs::write(&log, format!("{whole}{{\"round\": 2}}\n")).unwrap();
    let refused = write(run.path()).unwrap_err().to_string();
    assert!(refused.contains("line 3 is no report"), "{refused}");
    fs::write(&log, &whole).unwrap();
    for (file, what) in [(SUMMARY, "summary"), (INPUTS, "inputs")] {
        fs::write(run.path().join(file), "{}").unwrap();
        let refused = write(run.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("found no {what} of this version")), "{refused}");
        fs::remove_file(run.path().join(file)).unwrap();
    }
    let nothing = tempfile::tempdir().unwrap();
    let refused = write(nothing.path()).unwrap_err().to_string();
    assert!(refused.contains("expected the folder of a run or of a comparison"), "{refused}");
}

#[test]
fn many_clients_and_many_rounds_still_make_a_small_page() {
    let rounds: Vec<Value> =
        (0..400).map(plain).chain((400..404).map(|at| scored(at, 900))).collect();
    let html = page(folder(&rounds).path());
    assert!(html.contains("lower quarter") && html.contains("gained least"));
    assert!(html.len() < 600_000, "{} bytes", html.len());
}

#[test]
fn the_name_of_a_variant_leads_nowhere_but_below_its_comparison() {
    let outside = folder(&[scored(0, 2)]);
    let place = outside.path().join("comparison");
    fs::create_dir_all(place.join("fedavg")).unwrap();
    let inside = folder(&[scored(0, 2), scored(1, 2)]);
    fs::create_dir_all(place.join("fedavg/seed-1")).unwrap();
    for file in [EXPERIMENT, ROUNDS] {
        fs::copy(inside.path().join(file), place.join("fedavg/seed-1").join(file)).unwrap();
    }
    let line = |name: &str| {
        json!({
            "name": name, "method": "fedavg", "tuned": [], "rounds": 2.0,
            "score": {"mean": 0.5, "margin": 0.1, "seeds": 3}, "baseline": null, "difference": null,
            "verdict": null, "by_seed": {"1": 0.5}, "bytes": {"up": 1, "down": 1, "full_up": 1, "full_down": 1},
            "share": 1.0, "multiply_adds": 1, "seconds": 1.0, "peak_rss_bytes": 1, "epsilon": null,
        })
    };
    let comparison = json!({
        "name": "c<d", "seeds": [1], "score": {"name": "span_f1", "on": "central_test"}, "confidence": 0.95,
        "variants": [line("fedavg"), line("../.."), line("<u>")], "at_equal": {}, "notes": ["a & b"],
    });
    fs::write(place.join(COMPARISON), comparison.to_string()).unwrap();
    let html = page(&place);
    assert!(html.contains("href=\"./fedavg/seed-1/report.html\""), "{html}");
    assert_eq!(html.matches("<li><a ").count(), 1);
    assert!(place.join("fedavg/seed-1/report.html").is_file(), "the run's page is made too");
    for drawn in ["Score by variant", "Score by round", "Score against bytes"] {
        assert!(html.contains(&format!("<h3>{drawn}</h3>")), "{drawn}");
    }
    assert!(html.contains("c&lt;d") && html.contains("a &amp; b") && !html.contains("<u>"));
}

#[test]
fn a_log_that_the_summary_was_not_made_from_is_refused() {
    let folder = folder(&[scored(0, 2), scored(1, 2)]);
    let mut mark = fedra_engine::LogMark::default();
    for line in fs::read(folder.path().join(ROUNDS)).unwrap().split_inclusive(|byte| *byte == b'\n')
    {
        mark = mark.with(line).unwrap();
    }
    with_summary(folder.path(), |summary| summary["log"] = json!(mark));
    document(folder.path()).unwrap();
    fs::write(folder.path().join(ROUNDS), "").unwrap();
    let refused = document(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("0 rounds that do not belong to summary.json"), "{refused}");
}

#[test]
fn a_guarantee_is_told_before_anything_is_spent() {
    let folder = folder(&[]);
    let file = folder.path().join(EXPERIMENT);
    let text = fs::read_to_string(&file).unwrap();
    assert!(page(folder.path()).contains("no guarantee"));
    fs::write(&file, format!("{text}\n[privacy]\nepsilon = 8.0\n")).unwrap();
    assert!(page(folder.path()).contains("nothing has been released yet"));
}
