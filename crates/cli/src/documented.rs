//! The documents, held to the program: every `fedra` command that they show is one that it takes.
//!
//! A command is parsed here and not run, so all of them can be checked in a moment, also those that take
//! hours. `tests/cli/documents.rs` runs the blocks that are marked `sh run`; a block that is not says
//! why, in a sentence with [`NOT_RUN`]. One page is run as a whole, by a script ([`RUN_AS_A_WHOLE`]).
//! `links` follows every link.

mod links;
mod markdown;
mod shell;

use std::fs;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use self::markdown::{Block, Document, root};

/// What the sentence says that excuses a block from being run.
const NOT_RUN: &str = "are not run by tests:";
/// The page all of whose blocks a script runs, and that script, which fails on a block that it does not
/// know.
const RUN_AS_A_WHOLE: (&str, &str) = ("docs/deploy.md", "tools/flower/deploy.py");
/// The info string of a block that is run.
const RUN: &str = "sh run";
/// Words that stand for something else, and belong into a synopsis, a block of `text`.
const PLACEHOLDERS: [&str; 8] = ["FILE", "DIR", "NAME", "HOST", "KEY", "VALUE", "MODEL", "N"];

/// The documents whose commands people copy. The change log tells of commands as they were.
fn with_commands() -> Vec<Document> {
    let told = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
    markdown::all().into_iter().filter(|page| !told.contains(&page.path.as_str())).collect()
}

fn whole_command() -> Command {
    crate::Arguments::command()
}

/// Is it nothing but the name of a command, such as `attack split`?
fn is_a_name(words: &[String]) -> bool {
    let mut at = whole_command();
    words.iter().all(|word| {
        let found = at.find_subcommand(word).cloned();
        found.is_some_and(|found| {
            at = found;
            true
        })
    })
}

/// Why the program, or a reader who copies it, could not take this.
fn refusal(words: &[String]) -> Option<String> {
    let optional = words.iter().find(|word| word.starts_with('[') || word.ends_with("..."));
    if let Some(word) = optional {
        return Some(format!("{word} is a synopsis, expected a command or a block of `text`"));
    }
    let experiments = words.iter().filter(|word| word.starts_with("experiments/"));
    if let Some(lost) = experiments.into_iter().find(|word| !root().join(word).exists()) {
        return Some(format!("{lost} does not exist"));
    }
    let given = std::iter::once("fedra").chain(words.iter().map(String::as_str));
    let error = whole_command().try_get_matches_from(given).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// The same where it is to be copied as it stands.
fn complaint_to_copy(words: &[String]) -> Option<String> {
    let stands_for = |word: &&String| {
        let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric());
        parts.any(|part| PLACEHOLDERS.contains(&part))
    };
    match words.iter().find(stands_for) {
        Some(word) => Some(format!("{word} stands for something else, expected an example of it")),
        None => refusal(words),
    }
}

/// Does the block tell somebody to run `fedra`, whatever its info string says?
fn shows_a_command(block: &Block) -> bool {
    let known = |words: &Vec<String>| {
        words.first().is_some_and(|word| is_a_name(std::slice::from_ref(word)))
    };
    shell::fedra_commands(&block.text).iter().any(known)
}

fn is_script(block: &Block) -> bool {
    block.info == "sh" || block.info == RUN
}

#[test]
fn every_documented_command_is_one_that_the_program_takes() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in with_commands() {
        for block in page.blocks.iter().filter(|block| is_script(block)) {
            for words in shell::fedra_commands(&block.text) {
                seen += 1;
                let said = complaint_to_copy(&words);
                wrong.extend(said.map(|said| page.at(block.line, &words.join(" "), &said)));
            }
        }
        for (line, span) in &page.spans {
            for words in shell::fedra_commands(span).into_iter().filter(|words| !is_a_name(words)) {
                seen += 1;
                let said = refusal(&words);
                wrong.extend(said.map(|said| page.at(*line, &words.join(" "), &said)));
            }
        }
    }
    assert!(seen > 100, "{seen} commands: they were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_documented_command_at_the_top_of_an_experiment_is_one_that_the_program_takes() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let mut files: Vec<_> = fs::read_dir(root().join("experiments"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let header = text.lines().take_while(|line| line.starts_with('#'));
        let script: Vec<&str> = header.map(|line| line.trim_start_matches('#').trim()).collect();
        // A sentence may hold an apostrophe, which a script may not.
        let script = shell::lines_with_fedra(&script);
        for words in shell::fedra_commands(&script) {
            seen += 1;
            let said = complaint_to_copy(&words);
            let at = |said| format!("{}: {}: {said}", path.display(), words.join(" "));
            wrong.extend(said.map(at));
        }
    }
    assert!(seen > 50, "{seen} commands: they were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_documented_block_of_commands_is_run_or_says_why_not() {
    let mut wrong = Vec::new();
    let (whole, script) = RUN_AS_A_WHOLE;
    let script = fs::read_to_string(root().join(script)).unwrap();
    assert!(script.contains(&format!("PAGE = ROOT / \"{whole}\"")), "{whole} is not run");
    for page in with_commands().into_iter().filter(|page| page.path != whole) {
        let runs = page.blocks.iter().any(|block| block.info == RUN);
        let excused = page.prose.contains(NOT_RUN);
        for block in &page.blocks {
            let is_quiet = block.info == "text" || block.info == RUN || !shows_a_command(block);
            if is_quiet {
                continue;
            }
            if !is_script(block) {
                let said =
                    "a block with commands, expected `sh run`, `sh` or, for a synopsis, `text`";
                wrong.push(page.at(block.line, &block.info, said));
            }
            // Where some blocks are run, the sentence stands right before those that are not.
            if if runs { !block.before.contains(NOT_RUN) } else { !excused } {
                let said = format!("not run, expected a sentence with \"{NOT_RUN}\" before it");
                wrong.push(page.at(block.line, &block.info, &said));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The names of all commands below one, such as `fedra attack split`.
fn names(of: &Command, so_far: &str, found: &mut Vec<String>) {
    let name = format!("{so_far}{}", of.get_name());
    let mut below = of.get_subcommands().filter(|command| command.get_name() != "help").peekable();
    if below.peek().is_none() {
        found.push(name.clone());
    }
    below.for_each(|command| names(command, &format!("{name} "), found));
}

#[test]
fn every_command_is_documented_in_the_list_of_commands() {
    let page = with_commands().into_iter().find(|page| page.path == "docs/commands.md").unwrap();
    let mut all = Vec::new();
    names(&whole_command(), "", &mut all);
    all.retain(|name| !page.spans.iter().any(|(_, span)| span == name));
    assert!(all.is_empty(), "docs/commands.md lacks {}", all.join(", "));
}

#[test]
fn a_command_that_the_program_does_not_take_is_found() {
    let words = |text: &str| shell::fedra_commands(text).remove(0);
    assert_eq!(complaint_to_copy(&words("fedra run experiments/safl.toml --seed 2")), None);
    for wrong in [
        "fedra run experiments/safl.toml --sede 2",
        "fedra run experiments/lost.toml",
        "fedra run FILE.toml",
        "fedra plan study.toml [--json]",
        "fedra account epsilon --q 0.1 --sigma S --steps 1 --delta 1e-5",
        "fedra attack",
    ] {
        assert!(complaint_to_copy(&words(wrong)).is_some(), "{wrong}");
    }
    assert!(is_a_name(&["attack".to_owned(), "split".to_owned()]));
    assert!(!is_a_name(&["attacks".to_owned()]));
}
