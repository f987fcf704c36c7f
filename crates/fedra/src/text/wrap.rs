//! Sentences on a terminal: lines break between words, and what follows is indented.
//!
//! A word is what stands between blanks. A command is copied as a whole, so it is never broken either: text
//! in backticks, `fedra` with its flags and files, and an indented line that holds nothing else. What is longer than a line by itself stays whole.
//! Lines that show a place in a file stay as they are.

/// The text with no line broken inside a word; lines of up to `width` characters, where words allow.
///
/// ```
/// # use fedra::text::wrap::wrapped;
/// assert_eq!(wrapped("note: as long as this", 14), "note: as long\n  as this");
/// ```
pub fn wrapped(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| wrapped_line(line, width)).collect();
    lines.join("\n")
}

fn wrapped_line(line: &str, width: usize) -> String {
    if length(line) <= width || shows_a_place(line) || is_command(line) {
        return line.to_owned();
    }
    let indent = " ".repeat(hanging(line, width));
    let (mut out, mut used) = (String::new(), 0);
    for (blanks, piece) in pieces(line, width.saturating_sub(indent.len())) {
        let is_first = out.is_empty();
        if !is_first && used + blanks + length(&piece) > width {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else {
            out.push_str(&" ".repeat(blanks));
            used += blanks;
        }
        out.push_str(&piece);
        used += length(&piece);
    }
    out
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// `--> file:3:1`, `3 | key = 1` and what is under them.
fn shows_a_place(line: &str) -> bool {
    let rest = line.trim_start().trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_numbered = rest.len() < line.trim_start().len() && rest.starts_with(" |");
    is_numbered || rest.starts_with("-->") || line.trim_start().starts_with('|')
}

/// A command with a line to itself, which somebody copies however long it is.
fn is_command(line: &str) -> bool {
    let inside = line.trim_start_matches(' ');
    let begins = ["fedra ", "hf ", "pip "].iter().any(|program| inside.starts_with(program));
    begins && inside.len() < line.len() && !inside.contains("  ")
}

/// Where lines below the first begin: under the second column of a table of facts, or a little to the right.
fn hanging(line: &str, width: usize) -> usize {
    let leading = line.len() - line.trim_start_matches(' ').len();
    let inside = &line[leading..];
    let Some(gap) = inside.find("  ") else {
        return if leading > 2 { leading } else { leading + 2 };
    };
    let behind = inside[gap..].len() - inside[gap..].trim_start_matches(' ').len();
    let column = leading + length(&inside[..gap]) + behind;
    if column <= width / 2 { column } else { leading + 2 }
}

/// What is not broken, each with the blanks before it.
fn pieces(line: &str, room: usize) -> Vec<(usize, String)> {
    let mut pieces: Vec<(usize, String)> = Vec::new();
    let (mut is_quoted, mut command) = (false, None);
    let mut rest = line;
    while !rest.is_empty() {
        let word_and_more = rest.trim_start_matches(' ');
        let blanks = rest.len() - word_and_more.len();
        let end = word_and_more.find(' ').unwrap_or(word_and_more.len());
        let (word, more) = word_and_more.split_at(end);
        rest = more;
        if word.is_empty() {
            continue;
        }
        let sticks = is_quoted || command.is_some_and(|before| is_next(before, word));
        // A sentence continues behind a comma or a full stop.
        let goes_on = word == "fedra" || (sticks && !word.ends_with([',', ';', ':', '.']));
        let ticks = word.matches('`').count() % 2 == 1;
        command = Some(word).filter(|_| goes_on && !is_quoted && !ticks);
        is_quoted ^= ticks;
        match pieces.last_mut() {
            Some((_, last)) if sticks && length(last) + blanks + length(word) <= room => {
                last.push_str(&" ".repeat(blanks));
                last.push_str(word);
            }
            Some(_) | None => pieces.push((blanks, word.to_owned())),
        }
    }
    pieces
}

/// Whether a word belongs to the command that another word is part of: the name of what `fedra` does, the value
/// of a flag, a flag or a file.
fn is_next(before: &str, word: &str) -> bool {
    let is_bare_flag = before.starts_with("--") && !before.contains('=');
    before == "fedra"
        || (is_bare_flag && !word.starts_with('('))
        || word.starts_with('-')
        || word.contains(['/', '='])
        || word.contains(".toml")
        || word.chars().all(|letter| letter.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_broken_at_any_width_and_no_letter_is_lost() {
        let text = "warning: round 3: Krankenhaus-Süd/Innere-Medizin: did not answer within 60 s; see \
                    /srv/runs/a-rather-long-folder/events.jsonl, then `fedra status runs/x --json` or \
                    fedra run exp.toml --out ../again and wait";
        let words: Vec<&str> = text.split_whitespace().collect();
        for width in 1..200 {
            let lines = wrapped(text, width);
            assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), words, "{width}");
            for line in lines.lines().filter(|line| line.chars().count() > width) {
                let longest = line.split_whitespace().map(|word| word.chars().count()).max();
                let alone = line.trim_start().split(' ').count() == 1;
                assert!(alone && longest.is_some_and(|it| it + 2 > width), "{width}: {line}");
            }
        }
    }

    #[test]
    fn commands_are_copied_as_a_whole() {
        let hint = "hint: the run is kept, and `fedra run --resume runs/x` goes on with it";
        assert!(wrapped(hint, 40).contains("`fedra run --resume runs/x`"), "{}", wrapped(hint, 40));
        let hint = "hint: another folder keeps both: fedra run a.toml --out runs/b-2 does that";
        assert!(
            wrapped(hint, 44).contains("fedra run a.toml --out runs/b-2"),
            "{}",
            wrapped(hint, 44)
        );
        let alone = "  pip install hub && hf download org/name config.json --local-dir models/name";
        assert_eq!(wrapped(&format!("To get one:\n{alone}"), 30), format!("To get one:\n{alone}"));
    }

    #[test]
    fn facts_hang_under_their_values_and_places_in_files_stay() {
        let fact = "bytes down    12,000,000 in all (12.0 MB, 100 % of everything)";
        let shown = wrapped(fact, 40);
        assert_eq!(
            shown,
            "bytes down    12,000,000 in all (12.0\n              MB, 100 % of everything)"
        );
        for place in
            ["  --> a/very/long/file/name.toml:3:1", "12 | key = \"a long value that goes on\""]
        {
            assert_eq!(wrapped(place, 20), place);
        }
    }
}
