//! The keys and values at the head of a file.
//!
//! All integers are one kind of value and all fractions another: files of the same model differ in
//! which width they use. What is asked for by a key is checked when it is asked for, so a key that
//! nobody needs may hold anything.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::cursor::Cursor;
use crate::error::ModelError;

/// Most keys; published files have some forty.
const MAX_KEYS: u64 = 1 << 16;
/// Longest key, by the format's own rule.
const MAX_KEY: u64 = u16::MAX as u64;
/// Longest text; templates of chats have a hundredth of it.
const MAX_TEXT: u64 = 1 << 20;
/// Most elements of all lists together: a few times the largest vocabulary with its merges.
const MAX_ELEMENTS: u64 = 1 << 22;

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
    List(Vec<Self>),
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
            let refuse =
                |found: String, expected: &str| ModelError::config(path, &key, found, expected);
            let value = value(cursor, kind, &mut room, &refuse)?;
            if values.insert(key.clone(), value).is_some() {
                return Err(refuse("a duplicate".into(), "each key once"));
            }
        }
        Ok(Self { path: path.to_path_buf(), values })
    }

    /// The error that a key does not hold what was expected.
    pub fn refuse(&self, key: &str, expected: impl Into<String>) -> ModelError {
        let found = self.values.get(key).map_or_else(|| "nothing".to_owned(), Value::shown);
        ModelError::config(&self.path, key, found, expected)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "text", Value::text)
    }

    pub fn count(&self, key: &str) -> Result<Option<u64>, ModelError> {
        let expected = "a whole number that is not negative";
        self.typed(key, expected, |value| u64::try_from(value.integer()?).ok())
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a finite number", |value| {
            let whole = value.integer().map(|number| number as f64);
            value.number().filter(|number| number.is_finite()).or(whole)
        })
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", Value::flag)
    }

    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ModelError> {
        self.typed(key, "a list of flags", |value| value.list(Value::flag))
    }

    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, ModelError> {
        self.typed(key, "a list of texts", |value| value.list(Value::text))
    }

    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, ModelError> {
        self.typed(key, "a list of whole numbers", |value| value.list(Value::integer))
    }

    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ModelError> {
        self.typed(key, "a list of numbers", |value| value.list(Value::number))
    }

    /// The value of a key, if it is there, as what it is asked for.
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
    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    fn flag(&self) -> Option<bool> {
        if let Self::Flag(flag) = self { Some(*flag) } else { None }
    }

    fn list<'v, T>(&'v self, read: impl Fn(&'v Self) -> Option<T>) -> Option<Vec<T>> {
        if let Self::List(list) = self { list.iter().map(read).collect() } else { None }
    }

    fn shown(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::List(list) => format!("a list of {} values", list.len()),
        }
    }
}

const TEXT: u32 = 8;
const LIST: u32 = 9;

/// Says what is wrong with the value of a key.
type Refuse<'a> = &'a dyn Fn(String, &str) -> ModelError;

fn value(
    cursor: &mut Cursor<'_, impl Read>,
    kind: u32,
    room: &mut u64,
    refuse: Refuse<'_>,
) -> Result<Value, ModelError> {
    if kind != LIST {
        return scalar(cursor, kind, refuse);
    }
    let (kind, length) = (cursor.u32()?, cursor.u64()?);
    cursor.check_room("elements of a list", length, if kind == TEXT { 8 } else { 1 })?;
    if length > *room {
        let found = format!("a list of {length} elements");
        return Err(refuse(found, "at most 4194304 in all lists together"));
    }
    *room -= length;
    let list = (0..length).map(|_| scalar(cursor, kind, refuse)).collect::<Result<_, _>>()?;
    Ok(Value::List(list))
}

fn scalar(
    cursor: &mut Cursor<'_, impl Read>,
    kind: u32,
    refuse: Refuse<'_>,
) -> Result<Value, ModelError> {
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
            [other] => return Err(refuse(format!("the flag {other}"), "0 or 1")),
        },
        TEXT => Value::Text(cursor.text("a value", MAX_TEXT)?),
        LIST => return Err(refuse("a list of lists".into(), "a list of plain values")),
        10 => {
            let number = cursor.u64()?;
            let small = i64::try_from(number);
            Value::Integer(small.map_err(|_| refuse(number.to_string(), "a number below 2^63"))?)
        }
        11 => Value::Integer(i64::from_le_bytes(cursor.bytes()?)),
        12 => Value::Number(f64::from_le_bytes(cursor.bytes()?)),
        other => {
            let found = format!("a value of type {other}");
            return Err(refuse(found, "one of the format's types, 0 to 12"));
        }
    })
}

/// The number that a person wrote: 1e-5, and not the nearest f32 in all its digits. It rounds to
/// the same f32.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}
