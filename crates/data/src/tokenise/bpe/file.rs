//! A BPE `tokenizer.json` understood, or refused by the name of what is not.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::cut::{Before, Cutter, Digits, Pattern};
use super::merge::{Merger, Unknown, WholeWords, byte_name};
use super::{BLANK, BpeTokenizer, Kind, Normalizer};
use crate::Specials;

/// The tokenizer that a file describes; otherwise what was found in it.
pub(super) fn read(json: String) -> Result<BpeTokenizer, String> {
    let file: File = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let merger = file.model.merger()?;
    let mut tokens = BTreeMap::new();
    for (token, id) in file.model.vocab {
        if let Some((other, _)) = tokens.insert(id, (token.clone(), Kind::Piece)) {
            return Err(format!("{token:?} and {other:?} with the same number {id}"));
        }
    }
    let mut normalizers = Vec::new();
    if let Some(saved) = file.normalizer {
        saved.flatten(&mut normalizers)?;
    }
    let mut added = BTreeMap::new();
    for token in file.added_tokens {
        let kind = if token.special { Kind::Special } else { Kind::Added };
        if !token.special {
            token.check(!normalizers.is_empty())?;
            added.insert(token.content.clone(), token.id);
        }
        tokens.insert(token.id, (token.content, kind));
    }
    let mut cutters = Vec::new();
    if let Some(saved) = file.pre_tokenizer {
        saved.flatten(&mut cutters)?;
    }
    let mut specials = Specials { unknown: merger.unknown.token(), ..Specials::default() };
    if let Some(saved) = file.post_processor {
        saved.around(&mut specials)?;
    }
    Ok(BpeTokenizer { normalizers, cutters, merger, added, tokens, specials, json })
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<SavedNormalizer>,
    pre_tokenizer: Option<SavedCutter>,
    post_processor: Option<SavedProcessor>,
    model: Model,
}

#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the file has them")]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

impl AddedToken {
    fn check(&self, is_text_changed: bool) -> Result<(), String> {
        let refuse = |what: &str| Err(format!("added token {:?} with {what}", self.content));
        match () {
            () if self.content.is_empty() => refuse("no content"),
            () if self.single_word => refuse("single_word"),
            () if self.lstrip => refuse("lstrip"),
            () if self.rstrip => refuse("rstrip"),
            () if self.normalized && is_text_changed => refuse("normalized"),
            () => Ok(()),
        }
    }
}

#[derive(Deserialize)]
struct Model {
    dropout: Option<f64>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: BTreeMap<String, u32>,
    merges: Vec<Merge>,
}

/// A pair, as text with a blank between or as two texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair(String, String),
}

impl Merge {
    fn pair(&self) -> Result<(&str, &str), String> {
        match self {
            Self::Pair(left, right) => Ok((left, right)),
            Self::Text(text) => text
                .split_once(' ')
                .filter(|(_, right)| !right.contains(' '))
                .ok_or_else(|| format!("the merge {text:?}")),
        }
    }
}

impl Model {
    fn merger(&self) -> Result<Merger, String> {
        if self.dropout.is_some_and(|dropout| dropout > 0.0) {
            return Err("dropout".to_owned());
        }
        for (name, affix) in [
            ("continuing_subword_prefix", &self.continuing_subword_prefix),
            ("end_of_word_suffix", &self.end_of_word_suffix),
        ] {
            if let Some(affix) = affix.as_deref().filter(|affix| !affix.is_empty()) {
                return Err(format!("{name} {affix:?}"));
            }
        }
        let number = |token: &str| {
            let known = self.vocab.get(token).copied();
            known.ok_or_else(|| format!("no token {token:?} in the vocabulary"))
        };
        let mut merges = HashMap::new();
        for (rank, merge) in self.merges.iter().enumerate() {
            let (left, right) = merge.pair()?;
            let merged = number(&format!("{left}{right}"))?;
            merges.insert((number(left)?, number(right)?), (rank as u32, merged));
        }
        let unknown = match &self.unk_token {
            None => Unknown::Dropped,
            Some(token) if self.fuse_unk => Unknown::Fused(number(token)?),
            Some(token) => Unknown::Each(number(token)?),
        };
        let byte = |byte| self.vocab.get(&byte_name(byte)).copied();
        let byte_tokens = self.byte_fallback.then(|| (0..=u8::MAX).map(byte).collect());
        let whole_words = if self.ignore_merges { WholeWords::Taken } else { WholeWords::Merged };
        let vocabulary = self.vocab.iter().map(|(token, &id)| (token.clone(), id)).collect();
        Ok(Merger { vocabulary, merges, byte_tokens, unknown, whole_words })
    }
}

impl Unknown {
    fn token(self) -> Option<u32> {
        match self {
            Self::Dropped => None,
            Self::Each(id) | Self::Fused(id) => Some(id),
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum SavedNormalizer {
    Sequence { normalizers: Vec<Self> },
    Prepend { prepend: String },
    Replace { pattern: SavedPattern, content: String },
}

#[derive(Deserialize)]
enum SavedPattern {
    String(String),
    Regex(String),
}

impl SavedNormalizer {
    fn flatten(self, out: &mut Vec<Normalizer>) -> Result<(), String> {
        match self {
            Self::Sequence { normalizers } => {
                normalizers.into_iter().try_for_each(|inner| inner.flatten(out))?;
            }
            Self::Prepend { prepend } => out.push(Normalizer::Prepend(prepend)),
            Self::Replace { pattern: SavedPattern::String(from), content } => {
                out.push(Normalizer::Replace(from, content));
            }
            Self::Replace { pattern: SavedPattern::Regex(regex), .. } => {
                return Err(format!("a normalizer that replaces the pattern {regex:?}"));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum SavedCutter {
    Sequence {
        pretokenizers: Vec<Self>,
    },
    ByteLevel {
        #[serde(default)]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Split {
        pattern: SavedPattern,
        behavior: String,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        #[serde(default)]
        individual_digits: bool,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: Option<String>,
        add_prefix_space: Option<bool>,
        #[serde(default = "yes")]
        split: bool,
    },
}

fn yes() -> bool {
    true
}

impl SavedCutter {
    fn flatten(self, out: &mut Vec<Cutter>) -> Result<(), String> {
        match self {
            Self::Sequence { pretokenizers } => {
                pretokenizers.into_iter().try_for_each(|inner| inner.flatten(out))?;
            }
            Self::ByteLevel { add_prefix_space, use_regex } => {
                out.extend(add_prefix_space.then_some(Cutter::Blank));
                out.extend(use_regex.then_some(Cutter::Pattern(Pattern::Gpt2)));
                out.push(Cutter::Bytes);
            }
            Self::Split { pattern: SavedPattern::String(text), .. } => {
                return Err(format!("a split at {text:?}"));
            }
            Self::Split { pattern: SavedPattern::Regex(regex), behavior, invert } => {
                // The known patterns leave no gaps, so these two come to the same.
                if (behavior.as_str(), invert) != ("Isolated", false)
                    && (behavior.as_str(), invert) != ("Removed", true)
                {
                    return Err(format!("a split {behavior} with invert = {invert}"));
                }
                let known = Pattern::of(&regex);
                let known = known.ok_or_else(|| format!("a split by the pattern {regex:?}"))?;
                out.push(Cutter::Pattern(known));
            }
            Self::Digits { individual_digits } => {
                let digits = if individual_digits { Digits::Single } else { Digits::Runs };
                out.push(Cutter::Digits(digits));
            }
            Self::Metaspace { replacement, prepend_scheme, add_prefix_space, split } => {
                if replacement != BLANK {
                    return Err(format!("Metaspace with {replacement:?}"));
                }
                let before = match (prepend_scheme.as_deref(), add_prefix_space) {
                    (Some("always"), _) | (None, None | Some(true)) => Before::Always,
                    (Some("first"), _) => Before::First,
                    (Some("never"), _) | (None, Some(false)) => Before::Never,
                    (Some(other), _) => return Err(format!("Metaspace that prepends {other:?}")),
                };
                out.push(Cutter::Marks { before, is_split: split });
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum SavedProcessor {
    Sequence { processors: Vec<Self> },
    ByteLevel {},
    TemplateProcessing { single: Vec<TemplatePiece>, special_tokens: BTreeMap<String, Special> },
}

#[derive(Deserialize)]
enum TemplatePiece {
    SpecialToken { id: String },
    Sequence {},
}

#[derive(Deserialize)]
struct Special {
    ids: Vec<u32>,
}

impl SavedProcessor {
    /// The tokens that it puts before and after a text.
    fn around(self, specials: &mut Specials) -> Result<(), String> {
        match self {
            Self::Sequence { processors } => {
                processors.into_iter().try_for_each(|inner| inner.around(specials))
            }
            Self::ByteLevel {} => Ok(()),
            Self::TemplateProcessing { single, special_tokens } => {
                let mut is_after = false;
                for piece in single {
                    let TemplatePiece::SpecialToken { id } = piece else {
                        is_after = true;
                        continue;
                    };
                    let ids = special_tokens.get(&id).map(|special| special.ids.as_slice());
                    let Some(&[number]) = ids else {
                        return Err(format!("a template with {id:?}, which is not one token"));
                    };
                    let slot = if is_after { &mut specials.end } else { &mut specials.start };
                    if slot.replace(number).is_some() {
                        return Err("a template with two tokens in a row".to_owned());
                    }
                }
                Ok(())
            }
        }
    }
}
