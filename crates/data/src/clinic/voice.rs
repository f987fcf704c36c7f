//! A hospital speaking: templates become words, each with its tag.
//!
//! The labels fall out of the grammar, so they are right by construction; what makes them hard to
//! guess from a word alone is the lexicon, where the same word stands in several lists.

use super::hospital::Hospital;
use super::lexicon::{
    DISEASES, ENDINGS, EPONYMS, NAMES, QUALIFIERS, STEMS, SWING, SYLLABLES, SYMPTOMS, TESTS,
    TREATMENTS,
};
use crate::Dice;

/// How often a phrase is a rare one, made up from parts.
const RARE: f64 = 0.1;
/// How often a phrase carries an article or possessive, which then belongs to it (i2b2 guideline).
const DETERMINER: f64 = 0.1;
/// How often a phrase carries a qualifier.
const QUALIFIER: f64 = 0.1;
/// How often a problem is a symptom and not a disease.
const SYMPTOM: f64 = 0.5;

/// What a span of words is, in the terms of i2b2 2010.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Problem,
    Test,
    Treatment,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Test => "test",
            Self::Treatment => "treatment",
        }
    }

    fn of_letter(letter: &str) -> Option<Self> {
        match letter {
            "p" => Some(Self::Problem),
            "t" => Some(Self::Test),
            "x" => Some(Self::Treatment),
            _ => None,
        }
    }
}

/// Words as they are written, with one BIO tag each.
#[derive(Default)]
pub(super) struct Written {
    pub words: Vec<String>,
    pub tags: Vec<String>,
}

impl Written {
    fn plain(&mut self, phrase: &str) {
        for word in phrase.split(' ') {
            self.words.push(word.to_owned());
            self.tags.push("O".to_owned());
        }
    }

    fn span(&mut self, kind: Kind, phrase: &str) {
        for (position, word) in phrase.split(' ').enumerate() {
            let prefix = if position == 0 { 'B' } else { 'I' };
            self.words.push(word.to_owned());
            self.tags.push(format!("{prefix}-{}", kind.name()));
        }
    }

    /// Words as running text: no space before punctuation.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for word in &self.words {
            let hangs = matches!(word.as_str(), "." | "," | ":" | ";");
            if !text.is_empty() && !hangs {
                text.push(' ');
            }
            text.push_str(word);
        }
        text
    }
}

/// One hospital's pen.
pub(super) struct Voice<'a> {
    pub hospital: &'a Hospital,
    pub dice: &'a mut Dice,
}

impl Voice<'_> {
    /// Writes a template; `diseases` fills its `{+}` and `{-}` slots in order.
    pub fn write(&mut self, template: &str, diseases: &mut dyn Iterator<Item = usize>) -> Written {
        let mut out = Written::default();
        let mut open: Option<(Kind, Vec<&str>)> = None;
        for word in template.split(' ') {
            if word == ">" {
                let (kind, words) = open.take().expect("templates close only what they opened");
                out.span(kind, &words.join(" "));
            } else if let Some((_, words)) = &mut open {
                words.push(word);
            } else if let Some(kind) = word.strip_suffix('<').and_then(Kind::of_letter) {
                open = Some((kind, Vec::new()));
            } else if let Some(letter) = word.strip_suffix("{list}") {
                self.list(Kind::of_letter(letter), &mut out);
            } else if let Some(slot) = word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
                self.slot(slot, diseases, &mut out);
            } else {
                out.plain(word);
            }
        }
        out
    }

    /// A disease in the hospital's words.
    pub fn disease(&mut self, index: usize) -> &'static str {
        self.form(DISEASES[index].forms)
    }

    fn slot(&mut self, slot: &str, diseases: &mut dyn Iterator<Item = usize>, out: &mut Written) {
        if let Some(kind) = Kind::of_letter(slot) {
            let after = out.words.last().cloned().unwrap_or_default();
            let phrase = self.phrase(kind, &after);
            return out.span(kind, &phrase);
        }
        match slot {
            "+" | "-" => {
                let index = diseases.next().expect("as many diseases as slots were passed");
                out.plain(self.disease(index));
            }
            "who" => out.plain(&self.person()),
            "name" => out.plain(self.dice.pick(NAMES)),
            "n" => out.plain(&self.number()),
            unknown => unreachable!("templates have no slot {unknown}"),
        }
    }

    /// Two to four swinging words, tagged by the section they stand in.
    fn list(&mut self, kind: Option<Kind>, out: &mut Written) {
        let count = 2 + self.dice.below(3);
        for position in 0..count {
            if position > 0 {
                out.plain(",");
            }
            let word = self.dice.pick(SWING);
            match kind {
                Some(kind) => out.span(kind, word),
                None => out.plain(word),
            }
            if self.dice.chance(0.3) {
                out.plain(&self.number());
            }
        }
    }

    fn phrase(&mut self, kind: Kind, after: &str) -> String {
        if self.dice.chance(RARE) {
            return self.rare(kind);
        }
        let core = match kind {
            Kind::Problem if self.dice.chance(SYMPTOM) => {
                let symptom = self.dice.weighted(&self.hospital.symptoms);
                self.form(SYMPTOMS[symptom])
            }
            Kind::Problem => {
                let disease = self.dice.weighted(&self.hospital.diseases);
                self.disease(disease)
            }
            Kind::Test => {
                let test = self.hospital.lean("tests", TESTS.len(), self.dice);
                self.form(TESTS[test])
            }
            Kind::Treatment => {
                let treatment = self.hospital.lean("treatments", TREATMENTS.len(), self.dice);
                self.form(TREATMENTS[treatment])
            }
        };
        if core.starts_with("a ") || core.starts_with("the ") {
            return core.to_owned();
        }
        let mut words = String::new();
        if self.dice.chance(DETERMINER) && !matches!(after, "no" | "a" | "or" | "not") {
            words.push_str(self.dice.pick(&["the ", "the ", "his ", "her ", "this "]));
        }
        if self.dice.chance(QUALIFIER) {
            words.push_str(self.dice.pick(QUALIFIERS[kind as usize]));
            words.push(' ');
        }
        words + core
    }

    /// A phrase hardly seen twice: an eponym, a made-up drug or a Greek compound.
    fn rare(&mut self, kind: Kind) -> String {
        let row = kind as usize;
        if self.dice.chance(0.5) {
            let name = self.dice.pick(NAMES);
            return format!("{name} {}", self.dice.pick(EPONYMS[row]));
        }
        if kind == Kind::Treatment && self.dice.chance(0.7) {
            return SYLLABLES.iter().map(|part| self.dice.pick(part)).collect();
        }
        format!("{}{}", self.dice.pick(STEMS), self.dice.pick(ENDINGS[row]))
    }

    fn person(&mut self) -> String {
        const WAYS: [&str; 7] = ["pt", "the patient", "patient", "he", "she", "mr", "ms"];
        let way = WAYS[self.hospital.lean("person", WAYS.len(), self.dice)];
        match way {
            "mr" | "ms" => format!("{way} {}", self.dice.pick(NAMES)),
            plain => plain.to_owned(),
        }
    }

    fn number(&mut self) -> String {
        (1 + self.dice.below(30)).to_string()
    }

    /// The hospital's favourite way to write something, or any.
    fn form(&mut self, forms: &'static [&'static str]) -> &'static str {
        forms[self.hospital.choose(forms[0], forms.len(), self.dice)]
    }
}
