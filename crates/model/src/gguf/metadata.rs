//! The keys and values at the head of a file.
//!
//! All integers are one kind of value and all fractions another: files of the same model differ in
//! which width they use. What is asked for by a key is checked when it is asked for, so a key that
//! nobody needs may hold anything.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::cursor::Cursor;
use crate::error::{ModelError, shortened};

/// Most keys; published files have some forty.
const MAX_KEYS: u64 = 1 << 16;
/// Longest key, by the format's own rule.
const MAX_KEY: u64 = u16::MAX as u64;
/// Longest text; templates of chats have a hundredth of it.
const MAX_TEXT: u64 = 1 << 20;
/// Most elements of all lists together: a few times the largest vocabulary with its merges.
const MAX_ELEMENTS: u64 = 1 << 23;

/// What a file says about itself.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    path: PathBuf,
    values: BTreeMap<String, Value>,
}

#[derive(Debug)]
enum Value {
    Integer(i64),
    Number(f64),
    Flag(bool),
    Text(String),
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Flags(usize),
    Texts(Vec<String>),
}

impl Metadata {
    /// Reads `count` keys with their values.
    pub fn read(
        path: &Path,
        cursor: &mut Cursor<'_, impl Read>,
        count: u64,
    ) -> Result<Self, ModelError> {
        if count > MAX_KEYS {
            return Err(ModelError::file(path, format!("{count} keys"), "at most 65536"));
        }
        let mut values = BTreeMap::new();
        let mut room = MAX_ELEMENTS;
        for _ in 0..count {
            let key = cursor.text("a key", MAX_KEY)?;
            let kind = cursor.u32()?;
            let value = value(cursor, kind, &mut room).map_err(|error| match error {
                Failure::Model(error) => error,
                Failure::Value(found, expected) => refusal(path, &key, found, expected),
            })?;
            if values.insert(key.clone(), value).is_some() {
                return Err(refusal(path, &key, "it for a second time".into(), "each key once"));
            }
        }
        Ok(Self { path: path.to_path_buf(), values })
    }

    /// The error that a key does not hold what was expected.
    pub fn refuse(&self, key: &str, expected: impl Into<String>) -> ModelError {
        let found = self.values.get(key).map_or_else(|| "nothing".to_owned(), Value::shown);
        ModelError::Config {
            path: self.path.clone(),
            key: shortened(key.to_owned()),
            found: shortened(found),
            expected: expected.into(),
        }
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "text", |value| {
            if let Value::Text(text) = value { Some(text.as_str()) } else { None }
        })
    }

    /// A whole number that is not negative.
    pub fn count(&self, key: &str) -> Result<Option<u64>, ModelError> {
        self.typed(key, "a whole number that is not negative", |value| {
            if let Value::Integer(number) = value { u64::try_from(*number).ok() } else { None }
        })
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a finite number", |value| match value {
            Value::Number(number) => Some(*number).filter(|number| number.is_finite()),
            Value::Integer(number) => Some(*number as f64),
            Value::Flag(_)
            | Value::Text(_)
            | Value::Flags(_)
            | Value::Integers(_)
            | Value::Numbers(_)
            | Value::Texts(_) => None,
        })
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", |value| {
            if let Value::Flag(flag) = value { Some(*flag) } else { None }
        })
    }

    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, ModelError> {
        self.typed(key, "a list of texts", |value| {
            if let Value::Texts(list) = value { Some(list.as_slice()) } else { None }
        })
    }

    pub fn integers(&self, key: &str) -> Result<Option<&[i64]>, ModelError> {
        self.typed(key, "a list of whole numbers", |value| {
            if let Value::Integers(list) = value { Some(list.as_slice()) } else { None }
        })
    }

    pub fn numbers(&self, key: &str) -> Result<Option<&[f64]>, ModelError> {
        self.typed(key, "a list of numbers", |value| {
            if let Value::Numbers(list) = value { Some(list.as_slice()) } else { None }
        })
    }

    fn typed<'m, T>(
        &'m self,
        key: &str,
        expected: &str,
        read: impl Fn(&'m Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.refuse(key, expected))
    }
}

impl Value {
    fn shown(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Integers(list) => format!("a list of {} whole numbers", list.len()),
            Self::Numbers(list) => format!("a list of {} numbers", list.len()),
            Self::Flags(length) => format!("a list of {length} flags"),
            Self::Texts(list) => format!("a list of {} texts", list.len()),
        }
    }
}

/// Either the file as a whole is wrong, or the value of the key at hand: found and expected.
enum Failure {
    Model(ModelError),
    Value(String, &'static str),
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

fn refusal(path: &Path, key: &str, found: String, expected: &str) -> ModelError {
    ModelError::Config {
        path: path.to_path_buf(),
        key: shortened(key.to_owned()),
        found,
        expected: expected.into(),
    }
}

const TEXT: u32 = 8;
const LIST: u32 = 9;

fn value(cursor: &mut Cursor<'_, impl Read>, kind: u32, room: &mut u64) -> Result<Value, Failure> {
    if kind == TEXT {
        return Ok(Value::Text(cursor.text("a value", MAX_TEXT)?));
    }
    if kind != LIST {
        return scalar(cursor, kind);
    }
    let (kind, length) = (cursor.u32()?, cursor.u64()?);
    // A text is at least its length.
    cursor.check_room("elements of a list", length, if kind == TEXT { 8 } else { 1 })?;
    if length > *room {
        let found = format!("a list of {length} elements");
        return Err(Failure::Value(found, "at most 8388608 in all lists together"));
    }
    *room -= length;
    if kind == TEXT {
        let texts = (0..length).map(|_| cursor.text("an element", MAX_TEXT));
        return Ok(Value::Texts(texts.collect::<Result<_, _>>()?));
    }
    let (mut integers, mut numbers, mut flags) = (Vec::new(), Vec::new(), 0);
    for _ in 0..length {
        match scalar(cursor, kind)? {
            Value::Integer(number) => integers.push(number),
            Value::Number(number) => numbers.push(number),
            Value::Flag(_) => flags += 1,
            Value::Text(_)
            | Value::Integers(_)
            | Value::Numbers(_)
            | Value::Flags(_)
            | Value::Texts(_) => unreachable!("a scalar is one number or flag"),
        }
    }
    Ok(match (integers.is_empty(), numbers.is_empty()) {
        (false, _) => Value::Integers(integers),
        (true, false) => Value::Numbers(numbers),
        (true, true) => Value::Flags(flags),
    })
}

fn scalar(cursor: &mut Cursor<'_, impl Read>, kind: u32) -> Result<Value, Failure> {
    Ok(match kind {
        0 => Value::Integer(i64::from(u8::from_le_bytes(cursor.bytes()?))),
        1 => Value::Integer(i64::from(i8::from_le_bytes(cursor.bytes()?))),
        2 => Value::Integer(i64::from(u16::from_le_bytes(cursor.bytes()?))),
        3 => Value::Integer(i64::from(i16::from_le_bytes(cursor.bytes()?))),
        4 => Value::Integer(i64::from(cursor.u32()?)),
        5 => Value::Integer(i64::from(i32::from_le_bytes(cursor.bytes()?))),
        6 => Value::Number(shortest(f32::from_le_bytes(cursor.bytes()?))),
        7 => match cursor.bytes()? {
            [0] => Value::Flag(false),
            [1] => Value::Flag(true),
            [other] => return Err(Failure::Value(format!("the flag {other}"), "0 or 1")),
        },
        10 => {
            let number = cursor.u64()?;
            let small = i64::try_from(number);
            let large = |_| Failure::Value(number.to_string(), "a number below 2^63");
            Value::Integer(small.map_err(large)?)
        }
        11 => Value::Integer(i64::from_le_bytes(cursor.bytes()?)),
        12 => Value::Number(f64::from_le_bytes(cursor.bytes()?)),
        LIST => return Err(Failure::Value("a list of lists".into(), "a list of plain values")),
        other => {
            let found = format!("a value of type {other}");
            return Err(Failure::Value(found, "one of the format's types, 0 to 12"));
        }
    })
}

/// The number that a person wrote: 1e-5, and not the nearest f32 in all its digits. It rounds to
/// the same f32.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}
