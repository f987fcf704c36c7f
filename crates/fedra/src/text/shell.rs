//! Words of a command that somebody may copy into a shell.

use std::borrow::Cow;

use fedra_data::printable;

/// A word as a POSIX shell reads it back: bare where that is safe, else in single quotes. What a
/// terminal would obey is shown and not written, so that such a word can be seen and not be run.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", printable(word).replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_cut_or_obey_stand_in_quotes() {
        for (word, expected) in [
            ("runs/notes-2.toml", "runs/notes-2.toml"),
            ("my notes.toml", "'my notes.toml'"),
            ("it's.toml", "'it'\\''s.toml'"),
            ("$(reboot).toml", "'$(reboot).toml'"),
            ("na\u{ef}ve.csv", "na\u{ef}ve.csv"),
            ("", "''"),
            ("a\nb", "'a\\nb'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
