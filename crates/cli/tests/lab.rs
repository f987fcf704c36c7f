//! `fedra lab` through the built binary: files, verdicts, refusals.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fedra(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

const BRIDGE: &str = "\
seed = 1\nworlds = 2\nteacher = 'linear'\nclients = 2\nsamples = 3\nnoise = 0.1\nridge = 0.05\nhidden = 3\n\
rounds = 4\nlocal_steps = 2\ncohort = 2\nheterogeneities = [0.0, 1.0]\nwarmups = [0, 2, 4]\nrates = [0.05, 0.1]\n\
[sizes]\nwidth = 4\nkey_width = 2\ntokens = 3\noutputs = 2\n";

#[test]
fn the_frozen_laboratory_writes_plots_numbers_and_a_page_and_judges_every_shape() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "frozen", "--quick", "--seed", "3", "--out", "lab"];
    let output = fedra(folder.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let text = fs::read_to_string(folder.path().join("lab/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(results["study"]["seed"], 3);
    let verdicts = results["verdicts"].as_array().unwrap();
    assert!(verdicts.len() >= 10);
    let page = fs::read_to_string(folder.path().join("lab/index.html")).unwrap();
    for verdict in verdicts {
        let word = if verdict["seen"].as_bool().unwrap() { "seen    " } else { "NOT SEEN" };
        let line = format!("{word}  {}", verdict["shape"].as_str().unwrap());
        assert!(said.contains(&line), "{line} is not in\n{said}");
    }
    for name in ["profile", "tracking", "local-steps", "warmup"] {
        for name in [format!("{name}.svg"), format!("{name}-share.svg")] {
            let svg = fs::read_to_string(folder.path().join("lab").join(&name)).unwrap();
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(page.contains(&format!("href=\"./{name}\"")), "{name} is not on the page");
        }
    }
    let again = fedra(folder.path(), &["lab", "frozen", "--quick", "--seed", "3", "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again, results, "the same seed gives the same numbers");
}

#[test]
fn runs_that_diverge_are_reported_and_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["lab", "frozen", "--quick", "--rate", "40", "--local-steps", "1", "--out", "lab"];
    let output = fedra(folder.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("diverged"));
    let refused = fedra(folder.path(), &["lab", "frozen", "--rate", "-1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn the_bridge_reads_its_file_and_judges_three_students_in_words_page_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bridge.toml"), BRIDGE).unwrap();
    let output = fedra(folder.path(), &["lab", "bridge", "bridge.toml", "--out", "lab"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let lab = folder.path().join("lab");
    let page = fs::read_to_string(lab.join("index.html")).unwrap();
    for student in ["linear", "softmax", "softmax-mlp"] {
        for name in [format!("{student}.svg"), format!("{student}-gain.svg")] {
            assert!(
                lab.join(&name).is_file() && page.contains(&format!("href=\"./{name}\"")),
                "{name}"
            );
        }
    }
    let text = fs::read_to_string(lab.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let judgements = results["judgements"].as_array().unwrap();
    assert_eq!(judgements.len(), 6, "three students, two heterogeneities");
    for judged in judgements {
        assert_eq!(judged["dip"]["chosen"].as_array().unwrap().len(), 2, "one for each world");
        let never = &judged["dip"]["against_never"];
        let (mean, margin) = (never["mean"].as_f64().unwrap(), never["margin"].as_f64().unwrap());
        let gain = format!("{:+.2} ± {:.2} %", 100.0 * mean, 100.0 * margin);
        assert!(said.contains(&gain) && page.contains(&gain), "{gain} is not in\n{said}");
        assert!(judged["seen"].is_boolean());
    }
    let verdicts =
        page.matches("<td>not seen</td>").count() + page.matches("<td>seen</td>").count();
    assert_eq!(verdicts, 6, "a verdict for each");
    let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text} is not in\n{said}"));
    assert!(place("Verdict: a minimum inside") < place("chosen W "), "the caption is above");
    let conclusion = results["conclusion"].as_str().unwrap();
    assert!(said.contains(conclusion) && page.contains(conclusion), "{conclusion}");
    assert_eq!(results["study"]["choices"][0]["trials"].as_array().unwrap().len(), 2);
}

#[test]
fn where_never_freezing_diverged_the_bridge_says_so_and_counts_nothing_as_a_gain() {
    let folder = tempfile::tempdir().unwrap();
    let text = BRIDGE.replace("[0.05, 0.1]", "[500.0]");
    fs::write(folder.path().join("bridge.toml"), text).unwrap();
    let output = fedra(folder.path(), &["lab", "bridge", "bridge.toml", "--out", "lab"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let words = "not seen: never freezing diverged";
    assert_eq!(said.matches(words).count(), 6, "three students, two heterogeneities:\n{said}");
    let page = fs::read_to_string(folder.path().join("lab/index.html")).unwrap();
    assert_eq!(page.matches(&format!("<td>{words}</td>")).count(), 6);
    let text = fs::read_to_string(folder.path().join("lab/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let judgements = results["judgements"].as_array().unwrap();
    assert!(judgements.iter().all(|judged| judged["dip"].is_null() && judged["seen"] == false));
}

#[test]
fn the_bridge_takes_five_worlds_where_the_file_names_none() {
    let setting: fedra_lab::BridgeSetting =
        toml::from_str(&BRIDGE.replace("worlds = 2\n", "")).unwrap();
    assert_eq!(setting.worlds, 5);
}

#[test]
fn a_bridge_file_with_a_slip_is_refused_and_nothing_is_written() {
    let cases = [
        (BRIDGE.replace("hidden", "hiden"), "hiden"),
        (BRIDGE.replace("cohort = 2", "cohort = 3"), "cohort: found 3"),
        (BRIDGE.replace("[0.05, 0.1]", "[-1.0, 0.1]"), "rates: found [-1.0, 0.1]"),
        (BRIDGE.replace("worlds = 2", "worlds = 1"), "worlds: found 1"),
        (BRIDGE.replace("[0.0, 1.0]", "[0.0]"), "heterogeneities: found [0.0], expected 0 and"),
        (BRIDGE.replace("[0.0, 1.0]", "[0.5, 1.0]"), "heterogeneities: found [0.5, 1.0]"),
        (BRIDGE.replace("seed = 1", "tuned_at = 'one'\nseed = 1"), "tuned_at"),
        (BRIDGE.replace("'linear'", "'cubic'"), "cubic"),
    ];
    for (text, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("bridge.toml"), text).unwrap();
        let output = fedra(folder.path(), &["lab", "bridge", "bridge.toml"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("bridge.toml") && said.contains(expected), "{expected}: {said}");
        assert!(!folder.path().join("runs").exists());
    }
}

#[test]
fn the_shipped_bridge_file_is_one_that_the_command_takes() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/frozen_bridge.toml");
    let setting: fedra_lab::BridgeSetting =
        toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    setting.check().unwrap();
}
