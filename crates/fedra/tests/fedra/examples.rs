//! The examples run, and `docs/library.md` shows them as they are.

#[expect(dead_code, reason = "main only prints what the tests look at")]
#[path = "../../examples/own_data.rs"]
mod own_data;
#[expect(dead_code, reason = "main only prints what the tests look at")]
#[path = "../../examples/own_method.rs"]
mod own_method;

use std::fs;
use std::path::Path;

use fedra::engine::Recipe;
use fedra::folder::output_folder::OverwritePolicy;
use fedra::{Experiment, Output, Overrides, Silent};

#[test]
fn a_method_of_ones_own_sends_what_its_recipe_says() {
    let place = tempfile::tempdir().unwrap();
    let summary = own_method::federate(&place.path().join("run")).unwrap();
    assert_eq!((summary.method.as_str(), summary.rounds), ("upper-half", 3));
    assert!(summary.bytes.up.0 > 0 && summary.bytes.up < summary.bytes.full_up);
}

#[test]
fn rows_of_ones_own_are_learnt() {
    let place = tempfile::tempdir().unwrap();
    let summary = own_data::federate(&place.path().join("run")).unwrap();
    assert_eq!(summary.clients, 3);
    let score = summary.score.expect("a quarter of the rows are for testing");
    assert_eq!(score.name, "macro_f1");
    assert!(score.value > 0.5, "{}", score.value);
}

/// The file in the folder names what no file can bring, so it must not pass for something else.
#[test]
fn what_a_program_brought_cannot_be_run_by_its_file_alone() {
    let place = tempfile::tempdir().unwrap();
    let reopened = |folder: &Path| {
        let file = folder.join("experiment.toml");
        Experiment::open(&file, &Overrides::default()).unwrap_err().to_string()
    };
    let folder = place.path().join("method");
    own_method::federate(&folder).unwrap();
    let refused = reopened(&folder);
    assert!(refused.starts_with("method.name: found \"upper-half\", expected"), "{refused}");

    let folder = place.path().join("rows");
    own_data::federate(&folder).unwrap();
    let refused = reopened(&folder);
    assert!(refused.starts_with("data.source: found \"rows-of-a-program\", expected"), "{refused}");
    // It is a run all the same, and may be replaced where somebody says so.
    let other = Experiment::from_toml(include_str!("../tiny.toml"), &Overrides::default()).unwrap();
    let mut output = Output::new(&folder);
    assert!(fedra::run(&other, &output, &Silent).is_err());
    output.over = OverwritePolicy::AnyRun;
    assert!(fedra::run(&other, &output, &Silent).is_ok());
}

#[test]
fn a_method_of_ones_own_needs_a_name_of_its_own() {
    let experiment =
        Experiment::from_toml(include_str!("../tiny.toml"), &Overrides::default()).unwrap();
    for name in ["fedavg", "", "two words", "a/b"] {
        let recipe = Recipe { method: name.to_owned(), ..experiment.recipe.clone() };
        let refused = experiment.clone().with_recipe(recipe).unwrap_err().to_string();
        let expected = "a name of letters, digits, - and _ that no other method has";
        assert_eq!(refused, format!("method.name: found {name:?}, expected {expected}"));
    }
}

#[test]
fn the_page_shows_the_code_as_it_is() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lines = |path: &str| -> String {
        let text = fs::read_to_string(crate_root.join(path)).unwrap();
        let bare = text.lines().map(|line| line.trim_start_matches("//!").trim());
        bare.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let sources = ["src/lib.rs", "examples/own_method.rs", "examples/own_data.rs"].map(lines);
    let page = fs::read_to_string(crate_root.join("../../docs/library.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3, "the page has {} blocks of code", blocks.len());
    for block in blocks {
        let bare: Vec<&str> =
            block.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let bare = bare.join("\n");
        assert!(sources.iter().any(|source| source.contains(&bare)), "nowhere:\n{block}");
    }
}
