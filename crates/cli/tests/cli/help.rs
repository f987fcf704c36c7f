//! Help that fits a screen, and manual pages.

use crate::place::Place;

/// Columns that help may take.
const COLUMNS: usize = 100;
/// Lines that `-h` may take.
const LINES: usize = 44;

/// Every command, as words.
fn commands(place: &Place) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut next = 0;
    while next < all.len() {
        let own = all[next].clone();
        next += 1;
        let words: Vec<&str> = own.iter().map(String::as_str).chain(["-h"]).collect();
        let help = place.succeed(&words);
        let Some((_, list)) = help.split_once("Commands:\n") else { continue };
        for line in list.lines().take_while(|line| !line.trim().is_empty()) {
            let name = line.split_whitespace().next().unwrap();
            // A description that continues in the next line is set far to the right.
            if name != "help" && line.starts_with("  ") && !line.starts_with("    ") {
                all.push(own.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
    }
    all
}

#[test]
fn help_of_every_command_fits_a_screen() {
    let place = Place::new();
    let commands = commands(&place);
    assert!(commands.len() > 30, "{commands:?}");
    for command in &commands {
        for flag in ["-h", "--help"] {
            let words: Vec<&str> = command.iter().map(String::as_str).chain([flag]).collect();
            let help = place.succeed(&words);
            let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= COLUMNS, "{words:?}: {widest}");
            if flag == "-h" {
                let lines = help.lines().count();
                assert!(lines <= LINES, "{words:?} has {lines} lines:\n{help}");
            }
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    let page = place.succeed(&["manual", "run"]);
    for part in [".TH fedra-run 1", ".SH SYNOPSIS", "\\-\\-resume", "Resume an interrupted run"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // A command a line, as in the help.
    let list = "Examples:\n.nf\n  fedra run experiments/clinic\\-concepts.toml\n  fedra run";
    assert!(page.contains(list), "{page}");
    assert!(place.succeed(&["manual"]).contains("fedra\\-run(1)"));
    place.succeed(&["manual", "--all", "man"]);
    for command in commands(&place) {
        let name = ["fedra".to_owned()].into_iter().chain(command).collect::<Vec<_>>().join("-");
        assert!(place.path(&format!("man/{name}.1")).exists(), "{name}");
    }
    let refused = place.refused(&["manual", "runn"]);
    assert!(refused.contains("COMMAND: found \"runn\", expected one of"), "{refused}");
}
