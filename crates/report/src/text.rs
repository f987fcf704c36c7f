//! Text on its way into a document or a picture.

use std::fmt::Write;

/// Appends a line.
macro_rules! put {
    ($out:expr, $($line:tt)+) => {{
        use std::fmt::Write as _;
        writeln!($out, $($line)+).expect("a string takes every text");
    }};
}
pub(crate) use put;

/// Text of several lines; tabs and ends of lines stay.
pub(crate) fn lines_escaped(text: &str) -> String {
    text.lines().map(|line| escaped(&line.replace('\t', "    "))).collect::<Vec<_>>().join("\n")
}

/// Lines of at most this many characters, broken at spaces.
pub fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= characters => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text that XML may hold.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write most control characters.
            control if control.is_control() => out.push(' '),
            // What turns the direction of text is shown by its number: it could make one name look like another.
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "U+{:04X} ", letter as u32);
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_what_turns_text_around_are_shown_and_not_obeyed() {
        assert_eq!(escaped("a\u{202e}<b>\u{7}"), "aU+202E &lt;b&gt; ");
    }
}
