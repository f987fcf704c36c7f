//! BERT's way to clean text and cut it into words, before any pieces.
//!
//! Follows the `BertNormalizer` and `BertPreTokenizer` of Hugging Face step by step, since a
//! pretrained vocabulary only means something under the rules it was made with.

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Which of the cleaning steps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cleaning {
    /// Drop control characters; every blank becomes a space.
    pub clean_text: bool,
    /// Each Chinese character is a word.
    pub handle_chinese_chars: bool,
    /// Drop accents; absent means as `lowercase`.
    pub strip_accents: Option<bool>,
    /// Everything in lower case.
    pub lowercase: bool,
}

impl Cleaning {
    /// The uncased rules.
    pub const UNCASED: Self =
        Self { clean_text: true, handle_chinese_chars: true, strip_accents: None, lowercase: true };

    /// Calls back with each word of a text, punctuation marks being words of their own.
    pub fn words(self, text: &str, mut each: impl FnMut(&str)) {
        let mut word = String::new();
        for letter in self.apply(text).chars() {
            if letter.is_whitespace() {
                flush(&mut word, &mut each);
            } else if is_punctuation(letter) {
                flush(&mut word, &mut each);
                each(letter.encode_utf8(&mut [0; 4]));
            } else {
                word.push(letter);
            }
        }
        flush(&mut word, &mut each);
    }

    fn apply(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for letter in text.chars() {
            if self.clean_text && is_dropped(letter) {
                continue;
            }
            if self.clean_text && is_blank(letter) {
                out.push(' ');
            } else if self.handle_chinese_chars && is_chinese(letter) {
                out.extend([' ', letter, ' ']);
            } else {
                out.push(letter);
            }
        }
        if self.strip_accents.unwrap_or(self.lowercase) && !out.is_ascii() {
            let is_accent =
                |letter: &char| letter.general_category() == GeneralCategory::NonspacingMark;
            out = out.nfd().filter(|letter| !is_accent(letter)).collect();
        }
        if self.lowercase {
            // Letter by letter: `str::to_lowercase` treats a final sigma specially, BERT does not.
            out = out.chars().flat_map(char::to_lowercase).collect();
        }
        out
    }
}

fn flush(word: &mut String, each: &mut impl FnMut(&str)) {
    if !word.is_empty() {
        each(word);
        word.clear();
    }
}

fn is_blank(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r') || letter.is_whitespace()
}

fn is_dropped(letter: char) -> bool {
    let is_control = !matches!(letter, '\t' | '\n' | '\r')
        && letter.general_category_group() == GeneralCategoryGroup::Other;
    letter == '\u{fffd}' || is_control
}

fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || letter.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// The CJK blocks that BERT names; kana and hangul are not among them.
fn is_chinese(letter: char) -> bool {
    matches!(
        letter as u32,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x2_0000..=0x2_A6DF
            | 0x2_A700..=0x2_B73F
            | 0x2_B740..=0x2_B81F
            | 0x2_B920..=0x2_CEAF
            | 0xF900..=0xFAFF
            | 0x2_F800..=0x2_FA1F
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_as_bert_cuts_them() {
        let check = |text: &str, expected: &[&str]| {
            let mut found = Vec::new();
            Cleaning::UNCASED.words(text, |word| found.push(word.to_owned()));
            assert_eq!(found, expected, "{text:?}");
        };
        check("Chest X-ray: CLEAR.", &["chest", "x", "-", "ray", ":", "clear", "."]);
        check("caf\u{e9}\tna\u{ef}ve\u{200b}ly", &["cafe", "naively"]);
        check("\u{4f60}\u{597d}a", &["\u{4f60}", "\u{597d}", "a"]);
        check("50% $3 \u{ab}x\u{bb}", &["50", "%", "$", "3", "\u{ab}", "x", "\u{bb}"]);
        check("", &[]);
    }
}
