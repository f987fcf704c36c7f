//! A `tokenizer.json`, run by Hugging Face's `tokenizers`.
//!
//! The library decides how text is cut. What stands here is what it leaves to its caller: a file is
//! read whole or refused by name, its numbers agree with each other, nothing in it draws at random,
//! a special token that a text spells stays text, and a panic inside the library is an error.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::{Encoding, Model as _, Token};

use super::blame;
use super::template::{Slot, Template, Templates};
use crate::caught::caught;
use crate::chat::GUARD;
use crate::error::Mismatch;
use crate::{DataError, Result};

/// The largest known file, of 260,000 pieces, has half of this.
const LARGEST_FILE: u64 = 64 << 20;
/// How the names of the library's classes begin that hand types of tokens to the model. Of all others, among them what it
/// calls a tokenizer without a family, all types are 0, unless `model_input_names` says otherwise.
const WITH_TYPES: [&str; 12] = [
    "Albert",
    "Bert",
    "BigBird",
    "ConvBert",
    "Deberta",
    "Electra",
    "Herbert",
    "LayoutLM",
    "Lxmert",
    "MobileBert",
    "RemBert",
    "SqueezeBert",
];
/// Numbers that no vocabulary has; they mark the places of the texts in a template.
const MARKS: [u32; 2] = [u32::MAX - 1, u32::MAX];

/// Cuts text into numbered pieces, by the rules of a `tokenizer.json`.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Tells special tokens from other text, as a chat template writes them.
    written: tokenizers::AddedVocabulary,
    templates: Templates,
    unknown: Option<u32>,
    /// Tokens that no text may hold, ascending.
    specials: Vec<u32>,
    highest: u32,
    /// Whether a word inside a sentence is known by the blank before it.
    is_blank_first: bool,
    /// Whether characters without a piece are spelt as bytes, a token each.
    spells_bytes: bool,
    /// Whether a text that is too long loses its beginning.
    keeps_end: bool,
    json: String,
    file: PathBuf,
}

/// Whether a tokenizer of this configuration says which text of a pair each token belongs to.
fn hands_over_types(config: &Value) -> bool {
    if let Some(names) = config["model_input_names"].as_array() {
        return names.iter().any(|name| name == "token_type_ids");
    }
    // Without a class the library takes the one of the model's family.
    let class = config["tokenizer_class"].as_str();
    class.is_none_or(|class| WITH_TYPES.iter().any(|name| class.starts_with(name)))
}

impl Tokenizer {
    /// Opens a `tokenizer.json`, under what the `tokenizer_config.json` beside it changes: letter
    /// case and accents of BERT's normaliser, the side at which long texts are cut, and whether the
    /// model gets types of tokens.
    pub fn open(file: &Path) -> Result<Self> {
        let beside = file.with_file_name("tokenizer_config.json");
        let config = if beside.is_file() {
            let read = serde_json::from_str::<Value>(&text(&beside)?);
            read.map_err(|error| DataError::file(&beside, error.to_string(), "a JSON object"))?
        } else {
            Value::Null
        };
        let mut tokenizer = Self::from_json(file, as_configured(text(file)?, &config))?;
        if let Some(side) = config["truncation_side"].as_str() {
            tokenizer.keeps_end = side == "left";
        }
        if !hands_over_types(&config) {
            tokenizer.templates = tokenizer.templates.without_types();
        }
        Ok(tokenizer)
    }

    /// The tokenizer that a text describes; `file` is where it came from, for messages.
    pub fn from_json(file: &Path, json: String) -> Result<Self> {
        let refuse = |(found, expected): Mismatch| DataError::file(file, found, expected);
        let whole = blame::whole(&json).map_err(refuse)?;
        let loaded = guarded(|| json.parse::<tokenizers::Tokenizer>());
        let mut inner = loaded.map_err(|error| refuse(blame::section(&whole, &error)))?;
        // Length and padding are the caller's affair, and special tokens are not spelt in a text.
        inner.with_padding(None);
        let mut written = inner.get_added_vocabulary().clone();
        written.set_encode_special_tokens(false);
        inner.set_encode_special_tokens(true);
        let dropped = guarded(|| inner.with_truncation(None).map(drop));
        dropped.map_err(|error| refuse((error, "a tokenizer without truncation".into())))?;

        let specials = added_tokens(&inner, &whole).map_err(refuse)?;
        let templates = guarded(|| templates(&inner)).map_err(|error| {
            refuse((format!("a post_processor that fails ({error})"), "one that works".into()))
        })?;
        let unknown = unknown(&whole["model"], &inner);
        let specials = specials.into_iter().filter(|id| Some(*id) != unknown).collect();
        let known = inner.get_vocab(true).into_values().max();
        let framed = templates.pair.as_ref().and_then(Template::highest_id);
        let highest = known.max(framed).max(templates.single.highest_id()).unwrap_or(0);
        let is_blank_first = starts_with_blank(&whole["pre_tokenizer"])
            || blame::kinds(&whole["normalizer"]).contains(&"ByteLevel");
        let keeps_end = whole["truncation"]["direction"].as_str() == Some("Left");
        let spells_bytes = blame::kinds(&whole["decoder"]).contains(&"ByteFallback");
        let file = file.to_owned();
        Ok(Self {
            inner,
            written,
            templates,
            unknown,
            specials,
            highest,
            is_blank_first,
            spells_bytes,
            keeps_end,
            json,
            file,
        })
    }

    /// The words of a text before they become pieces, as normalised.
    pub(super) fn words(&self, text: &str, mut each: impl FnMut(&str)) -> Result<()> {
        use tokenizers::{
            Normalizer as _, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _,
        };
        let words = guarded(|| {
            let mut normal = tokenizers::NormalizedString::from(text);
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut normal)?;
            }
            let mut cut = PreTokenizedString::from(normal);
            if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut cut)?;
            }
            Ok::<_, tokenizers::Error>(cut)
        });
        let words = words.map_err(|error| self.uncut(text, &error))?;
        for (word, _, _) in words.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            each(word);
        }
        Ok(())
    }

    /// What stands in place of a special token that the text spells; `None` for any other token.
    fn spelt_special(&self, text: &str, id: u32) -> Result<Option<Vec<u32>>> {
        let is_special = self.specials.binary_search(&id).is_ok();
        // A fast encoding has numbers and no words.
        let token = if is_special { self.inner.id_to_token(id) } else { None };
        let Some(token) = token.filter(|token| text.contains(token.as_str())) else {
            return Ok(None);
        };
        let mut ids = Vec::new();
        for letter in token.chars() {
            let letter = letter.encode_utf8(&mut [0; 4]).to_owned();
            let pieces = guarded(|| self.inner.get_model().tokenize(&letter));
            let pieces = pieces.map_err(|error| self.uncut(&token, &error))?;
            let plain = pieces.iter().map(|piece| piece.id);
            ids.extend(plain.filter(|id| self.specials.binary_search(id).is_err()));
        }
        if ids.is_empty() {
            ids.push(self.unknown.unwrap_or(id));
        }
        Ok(Some(ids))
    }

    fn uncut(&self, text: &str, error: &str) -> DataError {
        let mut shown: String = text.chars().take(40).collect();
        if shown.len() < text.len() {
            shown.push_str("..");
        }
        let found = format!("no pieces for the text {shown:?} ({error})");
        DataError::file(&self.file, found, "a tokenizer that cuts any text")
    }

    /// The pieces of a text, without special tokens: those that the text itself spells are cut into their
    /// letters, and are unknown where letters have no pieces. A special token that the text does not spell is
    /// the tokenizer's own work, a byte or a placeholder, and stays.
    pub fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = guarded(|| self.inner.encode_fast(text, false));
        let encoding = encoding.map_err(|error| self.uncut(text, &error))?;
        let mut ids = Vec::with_capacity(encoding.len() + 8);
        for &id in encoding.get_ids() {
            match self.spelt_special(text, id)? {
                None => ids.push(id),
                Some(letters) => ids.extend(letters),
            }
        }
        Ok(ids)
    }

    /// The pieces of a word that stands inside a sentence.
    pub fn word(&self, word: &str) -> Result<Vec<u32>> {
        if self.is_blank_first { self.pieces(&format!(" {word}")) } else { self.pieces(word) }
    }

    /// The pieces of a text, without special tokens, and where each stands in it.
    pub fn placed_pieces(&self, text: &str) -> Result<Vec<PlacedPiece>> {
        let encoding = guarded(|| self.inner.encode_char_offsets(text, false));
        let encoding = encoding.map_err(|error| self.uncut(text, &error))?;
        let mut pieces = Vec::with_capacity(encoding.len());
        let places = encoding.get_offsets().iter().zip(encoding.get_word_ids());
        for (&id, (&(start, end), &word)) in encoding.get_ids().iter().zip(places) {
            let place = |id| PlacedPiece { id, start, end, word };
            match self.spelt_special(text, id)? {
                None => pieces.push(place(id)),
                Some(letters) => pieces.extend(letters.into_iter().map(place)),
            }
        }
        Ok(pieces)
    }

    /// The pieces of what a chat template wrote, whose special tokens are what they are, and where each stands,
    /// in bytes. Guards are no part of the text and have no piece.
    pub(crate) fn written_pieces(&self, text: &str) -> Result<Vec<PlacedPiece>> {
        use tokenizers::{OffsetType, PreTokenizer as _};
        let encoding = guarded(|| {
            let mut cut = self.written.extract_and_normalize(self.inner.get_normalizer(), text);
            if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut cut)?;
            }
            self.inner.get_model().tokenize_in_pretokenized(&mut cut, None)?;
            cut.into_encoding(None, 0, OffsetType::Byte)
        });
        let encoding = encoding.map_err(|error| self.uncut(text, &error))?;
        let places = encoding.get_offsets().iter().zip(encoding.get_word_ids());
        let pieces = encoding.get_ids().iter().zip(places);
        let pieces =
            pieces.map(|(&id, (&(start, end), &word))| PlacedPiece { id, start, end, word });
        let is_guard = |piece: &PlacedPiece| {
            text.get(piece.start..piece.end).is_some_and(|text| text.chars().eq([GUARD]))
        };
        Ok(pieces.filter(|piece| !is_guard(piece)).collect())
    }

    /// The special tokens as they are spelt.
    pub(crate) fn special_texts(&self) -> Vec<String> {
        let texts = self.specials.iter().chain(&self.unknown);
        texts.filter_map(|&id| self.inner.id_to_token(id)).filter(|text| !text.is_empty()).collect()
    }

    /// How a token is spelt.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The number of a token that is spelt so.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The text of tokens, special ones left out. Bytes that make no character are replaced.
    pub fn text(&self, tokens: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(tokens, true)).map_err(|error| {
            let found = format!("no text for {} tokens ({error})", tokens.len());
            DataError::file(&self.file, found, "a decoder that reads any tokens")
        })
    }

    /// Whether a token stands for one byte, such as `<0x0A>`: what it says depends on the bytes beside it.
    pub fn is_byte(&self, token: u32) -> bool {
        let hex = |token: &String| {
            let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
            digits.is_some_and(|hex| hex.len() == 2 && u8::from_str_radix(hex, 16).is_ok())
        };
        self.spells_bytes && self.inner.id_to_token(token).as_ref().is_some_and(hex)
    }

    /// What stands around one text and around two.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// The token that stands for what has no pieces.
    pub fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// Whether a text that is too long loses its beginning and not its end.
    pub fn keeps_end(&self) -> bool {
        self.keeps_end
    }

    /// How many different tokens there are, added and special ones included.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The largest number that a sequence may hold; a model needs an embedding for each up to it.
    pub fn highest_id(&self) -> u32 {
        self.highest
    }

    /// The tokenizer as a Hugging Face `tokenizer.json`.
    pub fn json(&self) -> &str {
        &self.json
    }
}

/// Its file and size; the vocabulary would fill pages.
impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = out.debug_struct("Tokenizer");
        shown.field("file", &self.file).field("templates", &self.templates).finish_non_exhaustive()
    }
}

/// A piece and where it stands in its text: `start..end` in characters (Unicode scalar values), which
/// is how Python counts them too, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPiece {
    /// The token.
    pub id: u32,
    /// The first character.
    pub start: usize,
    /// The character behind the last.
    pub end: usize,
    /// Which of the words it is part of, as the tokenizer tells words apart before it cuts them;
    /// absent where it does not say.
    pub word: Option<u32>,
}

/// The file with BERT's normaliser as the configuration of BERT's tokenizer wants it. What is no
/// JSON is left to whoever reads it.
fn as_configured(json: String, config: &Value) -> String {
    let is_bert = config["tokenizer_class"].as_str().is_some_and(|name| name.starts_with("Bert"));
    let Some(mut whole) = serde_json::from_str::<Value>(&json).ok().filter(|_| is_bert) else {
        return json;
    };
    let normalizer = &mut whole["normalizer"];
    if normalizer["type"].as_str() != Some("BertNormalizer") {
        return json;
    }
    let before = normalizer.clone();
    for (key, place) in [
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "handle_chinese_chars"),
    ] {
        if let Some(value) = config.get(key).filter(|value| value.is_boolean()) {
            normalizer[place] = value.clone();
        }
    }
    if *normalizer == before { json } else { whole.to_string() }
}

/// The text of a file of a reasonable size.
pub(super) fn text(path: &Path) -> Result<String> {
    let size = fs::metadata(path).map_err(|e| DataError::io("open", path, e))?.len();
    if size > LARGEST_FILE {
        let found = format!("{size} bytes");
        return Err(DataError::file(path, found, format!("at most {LARGEST_FILE}")));
    }
    fs::read_to_string(path).map_err(|e| DataError::io("read", path, e))
}

/// What a call into the library gives; a panic inside it is an error like any other.
fn guarded<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match caught(call) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(words) => Err(format!("panic: {words}")),
    }
}

/// The special ones among the added tokens, ascending. The library numbers an added token that its
/// vocabulary lacks anew; a file that says another number contradicts itself.
fn added_tokens(inner: &tokenizers::Tokenizer, whole: &Value) -> Result<Vec<u32>, Mismatch> {
    let mut specials = Vec::new();
    for token in whole["added_tokens"].as_array().into_iter().flatten() {
        let content = token["content"].as_str().unwrap_or_default();
        let given = inner.token_to_id(content);
        if token["id"].as_u64() != given.map(u64::from) {
            let found = format!("the added token {content:?} with the number {}", token["id"]);
            let expected = match given {
                Some(id) => format!("{id}, the one that the vocabulary gives it"),
                None => "a token that is not empty".to_owned(),
            };
            return Err((found, expected));
        }
        if token["special"] == Value::Bool(true) {
            specials.extend(given);
        }
    }
    specials.sort_unstable();
    specials.dedup();
    Ok(specials)
}

/// Sends two marks through the post-processor and reads the templates off what comes out.
fn templates(inner: &tokenizers::Tokenizer) -> tokenizers::Result<Templates> {
    let mark = |place: usize| {
        let token = Token::new(MARKS[place], "x".to_owned(), (0, 1));
        Encoding::from_tokens(vec![token], place as u32)
    };
    let slots = |processed: &Encoding| -> Vec<Slot> {
        let tokens = processed.get_ids().iter().zip(processed.get_type_ids());
        tokens
            .map(|(&id, &kind)| match id {
                id if id == MARKS[0] => Slot::First { kind },
                id if id == MARKS[1] => Slot::Second { kind },
                id => Slot::Special { id, kind },
            })
            .collect()
    };
    let single = Template::new(slots(&inner.post_process(mark(0), None, true)?), 1)
        .ok_or("its template for one text does not hold that text once")?;
    let pair = Template::new(slots(&inner.post_process(mark(0), Some(mark(1)), true)?), 2);
    Ok(Templates { single, pair })
}

/// The number of the unknown token that a model names.
fn unknown(model: &Value, inner: &tokenizers::Tokenizer) -> Option<u32> {
    match model["unk_token"].as_str() {
        Some(token) => inner.token_to_id(token),
        None => model["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
    }
}

/// Whether words are told apart by the blank before them: byte level, and marks for blanks.
fn starts_with_blank(pre_tokenizer: &Value) -> bool {
    let kinds = blame::kinds(pre_tokenizer);
    kinds.contains(&"ByteLevel") || kinds.contains(&"Metaspace")
}
