//! Marks inside of text that is being written, and what keeps a message's letters letters.
//!
//! A template may treat what it is given as any program does, so where a message ends up is found by
//! marks that travel with it. They are characters that Unicode reserves for such inner use and no text
//! has ([U+FDD0 and on](https://www.unicode.org/faq/private_use.html#noncharacters)); a text that has
//! one is refused.

/// In front of what the assistant says.
pub(crate) const OPEN: char = '\u{fdd0}';
/// Behind it.
pub(crate) const CLOSE: char = '\u{fdd1}';
/// Inside of a special token that a message spells, which is therefore none.
pub(crate) const GUARD: char = '\u{fdd2}';

/// Refuses a text that has one of the marks.
pub(super) fn check(text: &str) -> Result<(), (String, &'static str)> {
    match text.chars().find(|letter| [OPEN, CLOSE, GUARD].contains(letter)) {
        None => Ok(()),
        Some(mark) => {
            let found = format!("the noncharacter U+{:04X}", mark as u32);
            Err((found, "characters"))
        }
    }
}

/// The text with a guard inside of every special token that it spells, or begins or ends with a part of:
/// what stands beside it is not its own.
pub(super) fn guarded(text: &str, specials: &[String]) -> Option<String> {
    let mut places = Vec::new();
    for special in specials {
        let Some(first) = special.chars().next() else { continue };
        places.extend(text.match_indices(special.as_str()).map(|(at, _)| at + first.len_utf8()));
        // A token whose other half the template writes.
        let inner = || special.char_indices().map(|(at, _)| at).skip(1);
        places.extend(inner().filter(|&at| text.starts_with(&special[at..])).map(|_| 0));
        places.extend(inner().filter(|&at| text.ends_with(&special[..at])).map(|_| text.len()));
    }
    if places.is_empty() {
        return None;
    }
    places.sort_unstable();
    places.dedup();
    let (mut out, mut from) = (String::with_capacity(text.len() + 3 * places.len()), 0);
    for at in places {
        out.push_str(&text[from..at]);
        out.push(GUARD);
        from = at;
    }
    out.push_str(&text[from..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_special_token_is_broken_wherever_it_could_come_about() {
        let specials = ["<|end|>", "<s>"].map(str::to_owned);
        let shown = |text: &str| guarded(text, &specials).map(|text| text.replace(GUARD, "!"));
        assert_eq!(shown("plain < text | of > signs"), None);
        assert_eq!(shown("a <|end|> b<s>c").as_deref(), Some("a <!|end|> b<!s>c"));
        assert_eq!(shown("s> begins and ends <|en").as_deref(), Some("!s> begins and ends <|en!"));
        assert_eq!(shown("a <").as_deref(), Some("a <!"));
        assert!(check("a\u{fdd1}").is_err() && check("a\u{fdcf}").is_ok());
    }
}
