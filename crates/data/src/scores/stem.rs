//! Porter's stemmer (Porter 1980, "An algorithm for suffix stripping"), with the amendments that
//! ROUGE is computed with in practice: a few irregular words, `y` after a consonant, `died` and
//! `dies`, `-ally` before other endings, `-fully` and `-logy`.
//!
//! A word is a run of vowels and consonants, `[C](VC){m}[V]`; an ending goes if enough is left before
//! it, which m says. Words are lower-case ASCII letters and digits; a digit is a consonant.

/// Words that the rules would spoil.
const IRREGULAR: [(&str, &str); 15] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

/// Endings of the second step, each with what takes its place where m > 0.
const SECOND: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
];

/// Endings of the third step.
const THIRD: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// Endings of the fourth step, which go where m > 1.
const FOURTH: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
];

/// The stem of a word.
pub(super) fn stem(word: &str) -> String {
    if let Some((_, stem)) = IRREGULAR.iter().find(|(irregular, _)| *irregular == word) {
        return (*stem).to_owned();
    }
    if word == "howe" || word.len() <= 2 {
        return word.to_owned();
    }
    let word = past(plural(word.to_owned()));
    let word = second(last_y(word));
    let word = replaced(&word, &THIRD).unwrap_or(word);
    last_e(fourth(word))
}

fn plural(word: String) -> String {
    if word.ends_with("sses") || (word.ends_with("ies") && word.len() > 4) {
        return word[..word.len() - 2].to_owned();
    }
    if word.ends_with("ss") || !word.ends_with('s') {
        return word;
    }
    word[..word.len() - 1].to_owned()
}

fn past(word: String) -> String {
    if let Some(rest) = word.strip_suffix("ied") {
        return format!("{rest}{}", if word.len() == 4 { "ie" } else { "i" });
    }
    if let Some(rest) = word.strip_suffix("eed") {
        return if measure(rest) > 0 { format!("{rest}ee") } else { word };
    }
    let endings = ["ed", "ing"].into_iter().filter_map(|ending| word.strip_suffix(ending));
    let Some(rest) = endings.into_iter().find(|rest| has_vowel(rest)) else { return word };
    if ["at", "bl", "iz"].iter().any(|ending| rest.ends_with(ending)) {
        return format!("{rest}e");
    }
    if ends_double(rest) {
        let keeps = rest.ends_with(['l', 's', 'z']);
        return rest[..rest.len() - usize::from(!keeps)].to_owned();
    }
    if measure(rest) == 1 && ends_short(rest) { format!("{rest}e") } else { rest.to_owned() }
}

fn last_y(word: String) -> String {
    match word.strip_suffix('y') {
        Some(rest) if rest.len() > 1 && kinds(rest).last() == Some(&Kind::Consonant) => {
            format!("{rest}i")
        }
        Some(_) | None => word,
    }
}

fn second(mut word: String) -> String {
    while let Some(rest) = word.strip_suffix("alli").filter(|rest| measure(rest) > 0) {
        word = format!("{rest}al");
    }
    if let Some(changed) = replaced(&word, &SECOND) {
        return changed;
    }
    let known = SECOND.iter().any(|(ending, _)| word.ends_with(ending));
    match word.strip_suffix("logi") {
        // The l counts as a part of what is left.
        Some(rest) if !known && measure(&format!("{rest}l")) > 0 => format!("{rest}log"),
        Some(_) | None => word,
    }
}

/// The first ending that fits is replaced if enough is left, and no other is tried.
fn replaced(word: &str, endings: &[(&str, &str)]) -> Option<String> {
    let (ending, other) = endings.iter().find(|(ending, _)| word.ends_with(ending))?;
    let rest = &word[..word.len() - ending.len()];
    (measure(rest) > 0).then(|| format!("{rest}{other}"))
}

fn fourth(word: String) -> String {
    let Some(ending) = FOURTH.iter().find(|ending| word.ends_with(**ending)) else { return word };
    let rest = &word[..word.len() - ending.len()];
    let goes = measure(rest) > 1 && (*ending != "ion" || rest.ends_with(['s', 't']));
    if goes { rest.to_owned() } else { word }
}

fn last_e(word: String) -> String {
    let word = match word.strip_suffix('e') {
        Some(rest) if measure(rest) > 1 || (measure(rest) == 1 && !ends_short(rest)) => {
            rest.to_owned()
        }
        Some(_) | None => word,
    };
    let one_l = &word[..word.len().saturating_sub(1)];
    if word.ends_with("ll") && measure(one_l) > 1 { one_l.to_owned() } else { word }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vowel,
    Consonant,
}

/// What each letter is; a `y` is a vowel behind a consonant.
fn kinds(word: &str) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::with_capacity(word.len());
    for letter in word.bytes() {
        kinds.push(match (letter, kinds.last()) {
            (b'a' | b'e' | b'i' | b'o' | b'u', _) | (b'y', Some(Kind::Consonant)) => Kind::Vowel,
            (_, _) => Kind::Consonant,
        });
    }
    kinds
}

/// How often a consonant follows a vowel: m.
fn measure(word: &str) -> usize {
    kinds(word).windows(2).filter(|pair| *pair == [Kind::Vowel, Kind::Consonant]).count()
}

fn has_vowel(word: &str) -> bool {
    kinds(word).contains(&Kind::Vowel)
}

fn ends_double(word: &str) -> bool {
    let letters = word.as_bytes();
    let [.., first, last] = letters else { return false };
    first == last && kinds(word).last() == Some(&Kind::Consonant)
}

/// Consonant, vowel, consonant other than w, x and y; or just the last two of them.
fn ends_short(word: &str) -> bool {
    match kinds(word).as_slice() {
        [Kind::Vowel, Kind::Consonant] => true,
        [.., Kind::Consonant, Kind::Vowel, Kind::Consonant] => !word.ends_with(['w', 'x', 'y']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::stem;

    /// The numbers of `tools/rouge_fixtures.py`: words of our own, stemmed by the reference.
    #[test]
    fn words_have_the_stems_of_the_reference() {
        let fixture: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/fixtures/rouge.json")).unwrap();
        let stems = fixture["stems"].as_object().unwrap();
        assert!(stems.len() > 300);
        for (word, expected) in stems {
            assert_eq!(stem(word), expected.as_str().unwrap(), "{word}");
        }
    }
}
