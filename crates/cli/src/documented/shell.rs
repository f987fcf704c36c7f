//! The `fedra` commands of a shell script, as words.
//!
//! A script is cut at its operators, and quotes are taken off: enough for the scripts that documents
//! show. Variables stay as they are written.

/// Words that may stand before a command.
const BEFORE: [&str; 7] = ["time", "do", "then", "else", "exec", "nohup", "!"];

/// The words behind `fedra`, or behind `cargo run --release --`, of every command.
pub fn fedra_commands(script: &str) -> Vec<Vec<String>> {
    let script = without_here_documents(script);
    simple_commands(&script).into_iter().filter_map(of_fedra).collect()
}

/// Of comments in a file: the lines that are commands, and those that go on with one.
pub fn lines_with_fedra(lines: &[&str]) -> String {
    let mut script = String::new();
    let mut goes_on = false;
    for line in lines {
        let begins = line.starts_with("fedra ") || line.contains("=... fedra ");
        if begins || goes_on {
            script.extend([line, "\n"]);
            goes_on = line.ends_with('\\');
        }
    }
    script
}

fn of_fedra(words: Vec<String>) -> Option<Vec<String>> {
    let is_before = |word: &String| {
        let assigned = word.split_once('=').is_some_and(|(name, _)| {
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty()
        });
        assigned || BEFORE.contains(&word.as_str())
    };
    let words: Vec<String> = words.into_iter().skip_while(is_before).collect();
    let cargo = ["cargo", "run", "--release", "--"];
    if words.first()? == "fedra" {
        return Some(words[1..].to_vec());
    }
    (words.len() > cargo.len() && words[..cargo.len()] == cargo)
        .then(|| words[cargo.len()..].to_vec())
}

/// The script without the texts behind `<<`.
fn without_here_documents(script: &str) -> String {
    let mut kept = String::new();
    let mut end: Option<String> = None;
    for line in script.lines() {
        match &end {
            Some(mark) if line.trim() == mark => end = None,
            Some(_) => {}
            None => {
                let mark =
                    line.split_once("<<").and_then(|(_, rest)| rest.split_whitespace().next());
                end = mark.map(|mark| mark.trim_matches(['\'', '"', '-']).to_owned());
                kept.extend([line, "\n"]);
            }
        }
    }
    kept
}

/// The script cut at line ends and operators, each command in words.
fn simple_commands(script: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut word: Option<String> = None;
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            '\'' => {
                let inside = letters.by_ref().take_while(|&c| c != '\'');
                word.get_or_insert_default().extend(inside);
            }
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(inside) = letters.next().filter(|&c| c != '"') {
                    match inside {
                        '\\' => word.extend(letters.next()),
                        inside => word.push(inside),
                    }
                }
            }
            '#' if word.is_none() => while letters.next_if(|&c| c != '\n').is_some() {},
            '\n' | ';' | '|' | '&' | '(' | ')' | '<' | '>' => {
                // `2>file` is no word of the command.
                let stream = matches!(letter, '<' | '>');
                let is_number = |word: &String| word.chars().all(|c| c.is_ascii_digit());
                words.extend(word.take().filter(|word| !(stream && is_number(word))));
                commands.push(std::mem::take(&mut words));
            }
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

#[test]
fn commands_are_found_wherever_a_shell_finds_them() {
    let script = "fedra data a.toml   # it's a look\nA=1 time fedra run 'b c.toml' \\\n  --set \"x='y z'\" 2>log &\n\
                  for n in 1 2; do fedra join d.toml --client h-$n -q & done\ncat > e <<'EOF'\nfedra isn't here\nEOF\n\
                  echo fedra run | fedra generate - --stop '\\n'; cargo run --release -- quickstart\n";
    let commands: Vec<String> =
        fedra_commands(script).into_iter().map(|words| words.join("|")).collect();
    assert_eq!(
        commands,
        [
            "data|a.toml",
            "run|b c.toml|--set|x='y z'",
            "join|d.toml|--client|h-$n|-q",
            "generate|-|--stop|\\n",
            "quickstart",
        ]
    );
    let comment = ["What's it?", "fedra run a.toml \\", "--seed 2", "Nobody's."];
    assert_eq!(lines_with_fedra(&comment), "fedra run a.toml \\\n--seed 2\n");
}
