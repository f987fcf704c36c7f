//! Text cut into the words that merges may not cross.
//!
//! The patterns of GPT-2 and of GPT-4 and its descendants are regular expressions with a
//! look-ahead. Each is written out here as a scanner: they are few, they never change (a vocabulary
//! depends on them), and a pattern that is not known is refused rather than approximated.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use super::letters::ByteLetters;
use super::{BLANK, Place};

/// A way to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cutter {
    /// Digits apart from everything else.
    Digits(Digits),
    /// A known pattern.
    Pattern(Pattern),
    /// Nothing cut, but a blank before the text.
    Blank,
    /// Nothing cut, but bytes as letters.
    Bytes,
    /// Blanks marked, and one added before the text.
    Marks { before: Before, is_split: bool },
}

/// How digits are set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digits {
    Single,
    Runs,
}

/// The patterns that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Blank and letters, blank and digits, blank and the rest; contractions apart.
    Gpt2,
    /// As GPT-4 and Llama 3 cut, with so many digits together; Qwen 2 takes one.
    Gpt4 { digits: usize },
}

/// Where a mark is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Always,
    First,
    Never,
}

impl Cutter {
    /// Adds the parts of a text.
    pub fn cut(&self, text: &str, place: Place, out: &mut Vec<String>) {
        match *self {
            Self::Digits(digits) => digits.cut(text, out),
            Self::Pattern(pattern) => pattern.cut(text, out),
            Self::Blank if text.starts_with(' ') => out.push(text.to_owned()),
            Self::Blank => out.push(format!(" {text}")),
            Self::Bytes => out.push(ByteLetters::of(text)),
            Self::Marks { before, is_split } => {
                let mut text = text.replace(' ', &BLANK.to_string());
                let wanted = match before {
                    Before::Always => true,
                    Before::First => place == Place::First,
                    Before::Never => false,
                };
                if wanted && !text.starts_with(BLANK) {
                    text.insert(0, BLANK);
                }
                if !is_split {
                    return out.push(text);
                }
                let mut start = 0;
                for (at, _) in text.match_indices(BLANK).filter(|&(at, _)| at > 0) {
                    out.push(text[start..at].to_owned());
                    start = at;
                }
                out.push(text[start..].to_owned());
            }
        }
    }
}

impl Digits {
    fn cut(self, text: &str, out: &mut Vec<String>) {
        let mut last = None;
        for letter in text.chars() {
            let is_digit = letter.is_numeric();
            let goes_on = last == Some(is_digit) && !(is_digit && self == Self::Single);
            match out.last_mut() {
                Some(part) if goes_on => part.push(letter),
                Some(_) | None => out.push(letter.to_string()),
            }
            last = Some(is_digit);
        }
    }
}

/// What a pattern tells letters apart by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Blank,
    Other,
}

fn class(letter: char) -> Class {
    if letter.is_whitespace() {
        return Class::Blank;
    }
    match letter.general_category_group() {
        GeneralCategoryGroup::Letter => Class::Letter,
        GeneralCategoryGroup::Number => Class::Number,
        GeneralCategoryGroup::Mark
        | GeneralCategoryGroup::Punctuation
        | GeneralCategoryGroup::Symbol
        | GeneralCategoryGroup::Separator
        | GeneralCategoryGroup::Other => Class::Other,
    }
}

impl Pattern {
    /// The pattern that a regular expression is, if it is known.
    pub fn of(regex: &str) -> Option<Self> {
        const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
        const REST: &str = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
        // Possessive and greedy spellings of the same pattern match alike.
        let plain = regex.replace("++", "+").replace("?+", "?").replace("{1,3}+", "{1,3}");
        let digits = plain.strip_prefix(CONTRACTIONS)?.strip_suffix(REST)?;
        match digits {
            "\\p{N}{1,3}" => Some(Self::Gpt4 { digits: 3 }),
            "\\p{N}" => Some(Self::Gpt4 { digits: 1 }),
            _ => None,
        }
    }

    fn cut(self, text: &str, out: &mut Vec<String>) {
        let letters: Vec<(usize, char)> = text.char_indices().collect();
        let mut at = 0;
        while at < letters.len() {
            let end = match self {
                Self::Gpt2 => gpt2(&letters, at),
                Self::Gpt4 { digits } => gpt4(&letters, at, digits),
            };
            // Every letter is of some class, so each branch takes at least one.
            let end = end.max(at + 1);
            let stop = letters.get(end).map_or(text.len(), |letter| letter.0);
            out.push(text[letters[at].0..stop].to_owned());
            at = end;
        }
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
fn gpt2(letters: &[(usize, char)], at: usize) -> usize {
    if let Some(end) = contraction(letters, at, |letter| letter) {
        return end;
    }
    let start = at + usize::from(letters[at].1 == ' ');
    match letters.get(start).map(|letter| class(letter.1)) {
        Some(kind @ (Class::Letter | Class::Number | Class::Other)) => run(letters, start, kind),
        Some(Class::Blank) | None => blanks(letters, at),
    }
}

/// The contractions in any case; a mark before letters; a few digits; a blank before the rest and
/// line ends after it; line ends with the blanks before them; blanks.
fn gpt4(letters: &[(usize, char)], at: usize, digits: usize) -> usize {
    let folded = |letter: char| match letter {
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    };
    if let Some(end) = contraction(letters, at, folded) {
        return end;
    }
    let first = letters[at].1;
    let is_line_end = |letter: char| matches!(letter, '\r' | '\n');
    let class_at = |place: usize| letters.get(place).map(|letter| class(letter.1));
    match class(first) {
        Class::Letter => return run(letters, at, Class::Letter),
        Class::Number => return run(letters, at, Class::Number).min(at + digits),
        Class::Blank | Class::Other => {
            if !is_line_end(first) && class_at(at + 1) == Some(Class::Letter) {
                return run(letters, at + 1, Class::Letter);
            }
        }
    }
    let start = at + usize::from(first == ' ');
    if class_at(start) == Some(Class::Other) {
        let end = run(letters, start, Class::Other);
        return end + letters[end..].iter().take_while(|letter| is_line_end(letter.1)).count();
    }
    // The last line end among the blanks, if there is one, ends the part.
    let end = run(letters, at, Class::Blank);
    match letters[at..end].iter().rposition(|letter| is_line_end(letter.1)) {
        Some(last) => at + last + 1,
        None => blanks(letters, at),
    }
}

/// The end of a contraction that starts here.
fn contraction(letters: &[(usize, char)], at: usize, fold: impl Fn(char) -> char) -> Option<usize> {
    let after = |place: usize| letters.get(at + place).map(|letter| fold(letter.1));
    if letters[at].1 != '\'' {
        return None;
    }
    match (after(1), after(2)) {
        (Some('s' | 't' | 'm' | 'd'), _) => Some(at + 2),
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => Some(at + 3),
        _ => None,
    }
}

/// The end of the letters of one class from here on.
fn run(letters: &[(usize, char)], at: usize, kind: Class) -> usize {
    at + letters[at..].iter().take_while(|letter| class(letter.1) == kind).count()
}

/// Blanks, but the last is left to the word that follows.
fn blanks(letters: &[(usize, char)], at: usize) -> usize {
    let end = run(letters, at, Class::Blank);
    if end < letters.len() && end > at + 1 { end - 1 } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cutter: Cutter, text: &str, expected: &[&str]) {
        let mut found = Vec::new();
        cutter.cut(text, Place::First, &mut found);
        assert_eq!(found, expected, "{text:?}");
    }

    // What the real expressions give for texts like these is held in tests/tokenizer.rs.
    #[test]
    fn each_pattern_cuts_where_it_should() {
        let gpt2 = Cutter::Pattern(Pattern::Gpt2);
        check(
            gpt2,
            "I'll  go 12x!?\n ok",
            &["I", "'ll", " ", " go", " 12", "x", "!?", "\n", " ok"],
        );
        check(gpt2, "end  ", &["end", "  "]);
        let llama = Cutter::Pattern(Pattern::Gpt4 { digits: 3 });
        check(
            llama,
            "I'LL 12345 (go)!\n\n x",
            &["I", "'LL", " ", "123", "45", " (", "go", ")!\n\n", " x"],
        );
        check(llama, " \n  \ty", &[" \n", "  ", "\ty"]);
        let single = Cutter::Digits(Digits::Single);
        check(single, "a12b", &["a", "1", "2", "b"]);
        check(Cutter::Digits(Digits::Runs), "a12b", &["a", "12", "b"]);
        let marks = Cutter::Marks { before: Before::First, is_split: true };
        check(marks, "a bc", &["\u{2581}a", "\u{2581}bc"]);
    }

    #[test]
    fn only_known_patterns_are_accepted() {
        let llama = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| \
                     ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
        assert_eq!(Pattern::of(llama), Some(Pattern::Gpt4 { digits: 3 }));
        let possessive = llama.replace("]?\\p{L}+", "]?+\\p{L}++");
        assert_eq!(Pattern::of(&possessive), Some(Pattern::Gpt4 { digits: 3 }));
        assert_eq!(Pattern::of(&llama.replace("{1,3}", "{1,2}")), None);
        assert_eq!(Pattern::of("\\w+"), None);
    }
}
