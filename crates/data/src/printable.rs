//! Text from outside, made safe to show on a terminal.
//!
//! Names of labels and clients come out of files that anybody may have written. A control character
//! in one could move the cursor, change colours or write over lines above; a mark that turns the
//! direction of text could make one name look like another. They are shown by their number instead,
//! and all else stays as it is.

use std::borrow::Cow;
use std::fmt::Write;

/// One line of text without anything that a terminal would obey; line ends are escaped too.
///
/// ```
/// # use fedra_data::printable;
/// assert_eq!(printable("grippe à virus"), "grippe à virus");
/// assert_eq!(printable("\u{1b}[31mflu\n"), "\\u{1b}[31mflu\\n");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed, |character, shown| shown.extend(character.escape_default()))
}

/// Finished JSON without anything that a terminal would obey, and of the same meaning: such a character
/// can stand only inside a string, where it is written by its number as JSON does. Line ends between values
/// stay.
///
/// ```
/// # use fedra_data::printable_json;
/// assert_eq!(printable_json("{\"label\":\"\u{202e}flu\u{7f}\"}"), r#"{"label":"\u202eflu\u007f"}"#);
/// ```
pub fn printable_json(finished: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| character != '\n' && is_obeyed(character);
    escaped(finished, is_escaped, |character, shown| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _always = write!(shown, "\\u{unit:04x}");
        }
    })
}

/// The text with some characters written otherwise.
fn escaped(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) { write(character, &mut shown) } else { shown.push(character) }
    }
    Cow::Owned(shown)
}

/// Control characters, line and paragraph separators, and what turns the direction of text.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || turns_direction(character)
        || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Whether a character that nobody sees turns the direction of the text behind it.
pub fn turns_direction(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_by_its_number() {
        for (text, shown) in [
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\rb\tc\nd", "a\\rb\\tc\\nd"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{202e}txt", "\\u{202e}txt"),
            ("\u{7f}", "\\u{7f}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn other_text_is_untouched_and_not_copied() {
        for text in ["", "O", "B-problem", "\\n \"quoted\"", "灯 ✓ é"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
