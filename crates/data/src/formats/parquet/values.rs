//! The values of a page, one at a time, as text.
//!
//! Labels, clients and splits are names; whether a file stores them as text, numbers or truth
//! values is its own affair. Numbers print as they do in JSON lines, so that the same table gives
//! the same labels in either format.

use std::rc::Rc;

use super::bytes::{Bytes, Read, complaint};
use super::delta::{Beginnings, Deltas, Lengths};
use super::footer::Meaning;
use super::hybrid::Hybrid;
use super::schema::Leaf;

/// What a value is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Truth,
    Int32 { signed: bool },
    Int64 { signed: bool },
    Float,
    Double,
    Text,
}

impl Type {
    pub fn of(leaf: &Leaf) -> Read<Self> {
        let refused = |what: &str| complaint(what, "text, numbers, truth values or lists of them");
        let signed = match leaf.meaning {
            Meaning::Plain => true,
            Meaning::Unsigned => false,
            Meaning::Other(what) => return Err(refused(what)),
        };
        match leaf.physical {
            0 => Ok(Self::Truth),
            1 => Ok(Self::Int32 { signed }),
            2 => Ok(Self::Int64 { signed }),
            3 => Err(refused("a timestamp of 96 bits")),
            4 => Ok(Self::Float),
            5 => Ok(Self::Double),
            6 => Ok(Self::Text),
            7 => Err(refused("byte strings of a fixed length")),
            other => Err(refused(&format!("values of physical type {other}"))),
        }
    }

    /// The next plainly stored value; truth values are packed and never come here.
    fn plain(self, bytes: &mut Bytes) -> Read<String> {
        match self {
            Self::Truth => Err(complaint("truth values in a dictionary", "packed ones")),
            Self::Int32 { .. } => Ok(self.whole(i64::from(i32::from_le_bytes(bytes.array()?)))),
            Self::Int64 { .. } => Ok(self.whole(i64::from_le_bytes(bytes.array()?))),
            Self::Float => finite(f32::from_le_bytes(bytes.array()?)),
            Self::Double => finite(f64::from_le_bytes(bytes.array()?)),
            Self::Text => {
                let length = bytes.length()?;
                utf8(bytes.take(length)?)
            }
        }
    }

    fn whole(self, number: i64) -> String {
        match self {
            Self::Int32 { signed: true } => (number as i32).to_string(),
            Self::Int32 { signed: false } => (number as u32).to_string(),
            Self::Int64 { signed: false } => (number as u64).to_string(),
            Self::Truth
            | Self::Int64 { signed: true }
            | Self::Float
            | Self::Double
            | Self::Text => number.to_string(),
        }
    }
}

/// The values of one page.
pub(super) enum Values {
    Plain(Type, Bytes),
    Packed { bytes: Bytes, next: usize },
    Runs(Hybrid),
    Dictionary(Rc<Vec<String>>, Hybrid),
    Deltas(Type, Deltas),
    Lengths(Lengths),
    Beginnings(Beginnings),
}

impl Values {
    /// The values in the bytes of a page, by the number of its encoding.
    pub fn new(
        kind: Type,
        encoding: i64,
        mut bytes: Bytes,
        dictionary: Option<&Rc<Vec<String>>>,
    ) -> Read<Self> {
        match (encoding, kind) {
            (0, Type::Truth) => Ok(Self::Packed { bytes, next: 0 }),
            (0, _) => Ok(Self::Plain(kind, bytes)),
            (2 | 8, _) => {
                let words = dictionary
                    .ok_or_else(|| complaint("indices without a dictionary", "its page first"))?;
                // A page of nulls alone may have no bytes at all.
                let width = if bytes.is_empty() { 0 } else { bytes.byte()? };
                let indices = Hybrid::new(bytes, u32::from(width))?;
                Ok(Self::Dictionary(Rc::clone(words), indices))
            }
            (3, Type::Truth) => {
                let length = bytes.length()?;
                Ok(Self::Runs(Hybrid::new(bytes.split(length)?, 1)?))
            }
            (5, Type::Int32 { .. } | Type::Int64 { .. }) => {
                Ok(Self::Deltas(kind, Deltas::new(bytes)?))
            }
            (6, Type::Text) => Ok(Self::Lengths(Lengths::new(bytes)?)),
            (7, Type::Text) => Ok(Self::Beginnings(Beginnings::new(bytes)?)),
            _ => {
                let found = format!("{} for {kind:?}", encoding_name(encoding));
                Err(complaint(found, "plain, dictionary, run-length or delta encoding"))
            }
        }
    }

    pub fn next(&mut self) -> Read<String> {
        match self {
            Self::Plain(kind, bytes) => kind.plain(bytes),
            Self::Packed { bytes, next } => {
                let (byte, bit) = (*next / 8, *next % 8);
                let byte = bytes.rest().get(byte);
                let byte = byte.ok_or_else(|| complaint("no more bytes", "a truth value"))?;
                *next += 1;
                Ok((byte >> bit & 1 == 1).to_string())
            }
            Self::Runs(numbers) => Ok((numbers.next()? == 1).to_string()),
            Self::Dictionary(words, indices) => {
                let index = indices.next()? as usize;
                words.get(index).cloned().ok_or_else(|| {
                    let expected = format!("below the {} of the dictionary", words.len());
                    complaint(format!("index {index}"), expected)
                })
            }
            Self::Deltas(kind, numbers) => Ok(kind.whole(numbers.next()?)),
            Self::Lengths(texts) => utf8(texts.next()?),
            Self::Beginnings(texts) => utf8(texts.next()?),
        }
    }
}

/// The values of a dictionary page.
pub(super) fn dictionary(kind: Type, count: u64, mut bytes: Bytes) -> Read<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..count {
        words.push(kind.plain(&mut bytes)?);
    }
    Ok(words)
}

fn finite<F: Into<f64> + Copy + std::fmt::Debug>(number: F) -> Read<String> {
    if number.into().is_finite() {
        return Ok(format!("{number:?}"));
    }
    Err(complaint(format!("{number:?}"), "a finite number, or null"))
}

fn utf8(bytes: &[u8]) -> Read<String> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| complaint("bytes that are not UTF-8", "UTF-8 text"))?;
    Ok(text.to_owned())
}

fn encoding_name(number: i64) -> String {
    match number {
        3 => "run-length encoding".to_owned(),
        4 => "the old bit-packed encoding".to_owned(),
        5..=7 => "delta encoding".to_owned(),
        9 => "byte-stream-split encoding".to_owned(),
        other => format!("encoding number {other}"),
    }
}
