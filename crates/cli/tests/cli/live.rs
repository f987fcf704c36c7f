//! The terminal while a run is on: a line that never wraps, plain lines elsewhere, nothing left behind.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Place, text};

/// Runs a command at a terminal of so many columns, which the program `script` makes.
fn at_terminal(place: &Place, columns: usize, before: &str, arguments: &str) -> Output {
    let fedra = env!("CARGO_BIN_EXE_fedra");
    let line = format!("stty cols {columns} rows 24; {before} {fedra} {arguments}");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(place.folder.path());
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("COLUMNS");
    command.output().expect("needs the program script")
}

/// What stands on a screen of so many columns at the end; it has as many lines as it takes.
fn screen(bytes: &[u8], columns: usize) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::new()], 0, 0);
    let letters: Vec<char> = String::from_utf8_lossy(bytes).chars().collect();
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        at += 1;
        match letter {
            '\n' => row += 1,
            '\r' => column = 0,
            '\u{1b}' if letters.get(at) == Some(&'[') => {
                let start = at + 1;
                at = start;
                while letters.get(at).is_some_and(|letter| !letter.is_ascii_alphabetic()) {
                    at += 1;
                }
                let number: String =
                    letters[start..at].iter().filter(|l| l.is_ascii_digit()).collect();
                let number = number.parse::<usize>();
                match letters.get(at) {
                    Some('A') => row -= number.unwrap_or(1).min(row),
                    Some('B') => row += number.unwrap_or(1),
                    Some('K') => {
                        let line: &mut Vec<char> = &mut lines[row];
                        if number == Ok(2) { line.clear() } else { line.truncate(column) }
                    }
                    Some(_) | None => {}
                }
                at += 1;
            }
            letter => {
                // A full line continues in the next only when something follows.
                if column == columns {
                    (row, column) = (row + 1, 0);
                    lines.resize(lines.len().max(row + 1), Vec::new());
                }
                let line: &mut Vec<char> = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = letter;
                column += 1;
            }
        }
        while lines.len() <= row {
            lines.push(Vec::new());
        }
    }
    let shown = lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
    shown.collect()
}

#[test]
fn the_live_line_fits_the_terminal_and_leaves_only_what_informs() {
    let place = Place::new();
    for columns in [40, 80, 120] {
        let run = "run tiny.toml --force --set federation.rounds=60";
        let output = at_terminal(&place, columns, "", run);
        assert!(output.status.success(), "{}", text(&output.stdout));
        let drawn = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(drawn.contains("/60") && drawn.contains("clients"), "{columns}: {drawn:?}");
        let lines = screen(&output.stdout, columns);
        let rounds: Vec<&String> = lines.iter().filter(|line| line.contains("round ")).collect();
        // A line that wrapped would have left a part of itself behind.
        assert_eq!(rounds.len(), 1, "{columns}: {lines:#?}");
        assert!(rounds[0].starts_with("fedavg round 60/60"), "{columns}: {lines:#?}");
        assert!(lines.iter().all(|line| !line.contains("/3 clients")), "{columns}: {lines:#?}");
    }
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let place = Place::new();
    let output = at_terminal(&place, 80, "TERM=dumb", "run tiny.toml");
    let said = text(&output.stdout);
    assert!(output.status.success() && !said.contains('\u{1b}'), "{said:?}");
    for round in ["fedavg round 1/3", "fedavg round 2/3", "fedavg round 3/3"] {
        assert!(said.contains(round), "{round}: {said}");
    }
}

#[test]
fn a_comparison_has_a_line_for_all_and_leaves_a_line_for_each_run() {
    let place = Place::new();
    let compare = "compare tiny.toml --seeds 2 --jobs 2 --sweep work.epochs=1,2";
    let output = at_terminal(&place, 60, "", compare);
    let drawn = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{drawn}");
    assert!(drawn.contains("/12 rounds"), "{drawn:?}");
    let lines = screen(&output.stdout, 60);
    let complete = lines.iter().filter(|line| line.contains(": round 3/3")).count();
    assert_eq!(complete, 4, "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("/12 rounds")), "{lines:#?}");
}

#[test]
fn an_interrupt_takes_the_live_line_away() {
    let place = Place::new();
    let folder = place.folder.path();
    let fedra = env!("CARGO_BIN_EXE_fedra");
    let line = format!(
        "stty cols 80 rows 24; echo $$ > pid; exec {fedra} run tiny.toml --set federation.rounds=5000"
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(folder).env("TERM", "xterm");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).env_remove("NO_COLOR");
    let run = command.spawn().expect("needs the program script");
    let log = folder.join("runs/tiny/rounds.jsonl");
    let begun = Instant::now();
    while std::fs::metadata(&log).map_or(0, |log| log.len()) == 0 {
        assert!(begun.elapsed() < Duration::from_mins(2), "no round was completed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = std::fs::read_to_string(folder.join("pid")).expect("the shell wrote its number");
    let told = Command::new("kill").args(["-INT", pid.trim()]).status().expect("kill runs");
    assert!(told.success());
    let output = run.wait_with_output().expect("the run ends");
    let lines = screen(&output.stdout, 80);
    let said = lines.join("\n");
    // That it is stopping is said only where the round takes long enough to say it.
    assert!(said.contains("resume with: fedra run --resume runs/tiny"), "{said}");
    assert!(!said.contains("\u{2500}"), "a bar is left: {said}");
}

#[test]
fn notes_and_errors_break_between_words_at_a_terminal_and_nowhere_in_a_pipe() {
    let place = Place::new();
    let arguments = "run tiny.toml --set federation.min_arrivals=7 --out a-folder-with-a-name";
    let shown = at_terminal(&place, 44, "", arguments);
    let piped = text(&place.fedra(&arguments.split(' ').collect::<Vec<_>>()).stderr);
    assert!(piped.lines().any(|line| line.chars().count() > 60), "{piped}");
    let shown = screen(&shown.stdout, 44).join("\n");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&shown), words(&piped));
    for line in shown.lines().filter(|line| line.chars().count() > 44) {
        assert!(!line.trim().contains(' '), "{line}");
    }
}
