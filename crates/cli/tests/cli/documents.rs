//! The commands that the documents show, run as they stand there: every block marked `sh run`, page by
//! page, each page in a folder of its own.
//!
//! A block that takes long, or needs what a test has not, is no such block: its page says why
//! (`src/documented.rs` holds it to that).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::text;

/// The pages that have blocks to run.
const PAGES: [&str; 6] = [
    "docs/audit.md",
    "docs/chat.md",
    "docs/preferences.md",
    "docs/privacy.md",
    "docs/scores.md",
    "docs/tutorial.md",
];

const FENCE: &str = "```sh run\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a page that are run, each with its line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let whole = fs::read_to_string(root().join(page)).unwrap();
    let mut found = Vec::new();
    for (at, _) in whole.match_indices(FENCE) {
        let block = whole[at + FENCE.len()..].split("\n```").next().unwrap();
        found.push((whole[..at].lines().count() + 1, block.to_owned()));
    }
    found
}

/// What the page shows right behind a block, up to the next one that is run: lines of output.
fn shown(page: &str, line: usize) -> Vec<String> {
    let whole = fs::read_to_string(root().join(page)).unwrap();
    let rest: String = whole.split_inclusive('\n').skip(line).collect();
    let rest = rest.split(FENCE).next().unwrap_or_default();
    let output = rest.split("```text\n").nth(1).and_then(|rest| rest.split("\n```").next());
    output.into_iter().flat_map(str::lines).map(single_blanks).collect()
}

/// A line whose columns may be narrower than on the page.
fn single_blanks(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a page's blocks one after the other, in a fresh folder that has the experiments.
#[track_caller]
fn run(page: &str) {
    assert!(PAGES.contains(&page), "{page} is not listed");
    let folder = tempfile::tempdir().unwrap();
    symlink(root().join("experiments"), folder.path().join("experiments")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_fedra")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let blocks = blocks(page);
    assert!(!blocks.is_empty(), "{page} has no block to run");
    for (line, block) in blocks {
        let mut bash = Command::new("bash");
        bash.args(["-eu", "-o", "pipefail", "-c", &block]).current_dir(folder.path());
        bash.env("PATH", &path)
            .env_remove("FEDRA_DATA")
            .env_remove("FEDRA_MODELS")
            .env("HF_HUB_CACHE", "none");
        let output = bash.output().unwrap();
        let (data, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{page}:{line}: {block}\n{data}\n{said}");
        // A plan has no times and no scores in it: what the page shows of it is what it prints.
        if block.starts_with("fedra plan") {
            let printed: Vec<String> = data.lines().map(single_blanks).collect();
            for expected in shown(page, line) {
                assert!(printed.contains(&expected), "{page}:{line}: {expected:?} in\n{data}");
            }
        }
    }
}

#[test]
fn documented_commands_of_the_tutorial_run() {
    run("docs/tutorial.md");
}

#[test]
fn documented_commands_of_conversations_run() {
    run("docs/chat.md");
}

#[test]
fn documented_commands_of_preferences_run() {
    run("docs/preferences.md");
}

#[test]
fn documented_commands_of_scores_run() {
    run("docs/scores.md");
}

#[test]
fn documented_commands_of_private_runs_run() {
    run("docs/privacy.md");
}

#[test]
fn documented_commands_of_an_audit_run() {
    run("docs/audit.md");
}

#[test]
fn documented_blocks_to_run_are_on_the_pages_that_are_run() {
    let mut pages: Vec<String> = vec!["README.md".to_owned(), "experiments/README.md".to_owned()];
    for folder in ["docs", "docs/methods"] {
        let files = fs::read_dir(root().join(folder)).unwrap();
        pages.extend(files.map(|file| format!("{folder}/{}", file.unwrap().file_name().display())));
    }
    let is_page = |page: &String| Path::new(page).extension().is_some_and(|end| end == "md");
    pages.retain(|page| is_page(page) && !blocks(page).is_empty());
    pages.sort();
    assert_eq!(pages, PAGES);
}
