//! The end of a Parquet file: what columns it has and where their bytes are.
//!
//! Only what a reader of labelled text needs is kept. Offsets are kept as they are claimed and
//! compared with the file's real length when the bytes are fetched.

use super::bytes::{Bytes, Read, complaint};
use super::thrift::{Kind, integer, skip, structure, structures, text, truth};

/// The schema and the row groups.
#[derive(Debug, Default)]
pub(super) struct Footer {
    pub schema: Vec<Element>,
    pub groups: Vec<Group>,
}

/// A node of the schema, which is listed depth first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub name: String,
    /// The physical type of a leaf.
    pub physical: Option<i64>,
    pub repetition: Repetition,
    pub children: usize,
    pub meaning: Meaning,
}

/// How often a field occurs in its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repetition {
    #[default]
    Required,
    Optional,
    Repeated,
}

/// What the bytes of a leaf stand for, as far as it changes how they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Meaning {
    /// What the physical type says, which includes text.
    #[default]
    Plain,
    /// A number without a sign.
    Unsigned,
    /// Something that would read as a wrong number or text.
    Other(&'static str),
}

/// Rows stored together.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub rows: u64,
    pub chunks: Vec<Chunk>,
}

/// One leaf column of a row group.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    pub physical: i64,
    pub codec: i64,
    /// Values, absent ones included.
    pub values: u64,
    /// Where its pages start.
    pub start: u64,
    /// How many bytes they take.
    pub length: u64,
}

impl Footer {
    pub fn read(bytes: &mut Bytes) -> Read<Self> {
        let mut footer = Self::default();
        structure(bytes, |bytes, id, kind| match id {
            2 => structures(bytes, kind, |bytes| {
                footer.schema.push(Element::read(bytes)?);
                Ok(())
            }),
            4 => structures(bytes, kind, |bytes| {
                let group = Group::read(bytes)?;
                if group.chunks.is_empty() {
                    return Err(complaint("a row group without columns", "at least one column"));
                }
                footer.groups.push(group);
                Ok(())
            }),
            _ => skip(bytes, kind),
        })?;
        if footer.schema.is_empty() {
            return Err(complaint("no schema", "at least a root"));
        }
        Ok(footer)
    }
}

impl Element {
    fn read(bytes: &mut Bytes) -> Read<Self> {
        let mut element = Self::default();
        let mut name = None;
        structure(bytes, |bytes, id, kind| {
            match id {
                1 => element.physical = Some(integer(bytes, kind)?),
                3 => element.repetition = Repetition::of(integer(bytes, kind)?)?,
                4 => name = Some(text(bytes, kind)?),
                5 => element.children = count(integer(bytes, kind)?)? as usize,
                6 => {
                    let converted = Meaning::converted(integer(bytes, kind)?);
                    if element.meaning == Meaning::Plain {
                        element.meaning = converted;
                    }
                }
                10 => {
                    // The newer of the two annotations decides.
                    if let Some(meaning) = Meaning::logical(bytes)? {
                        element.meaning = meaning;
                    }
                }
                _ => skip(bytes, kind)?,
            }
            Ok(())
        })?;
        element.name = name.ok_or_else(|| complaint("a column without a name", "a name"))?;
        Ok(element)
    }
}

impl Repetition {
    fn of(number: i64) -> Read<Self> {
        match number {
            0 => Ok(Self::Required),
            1 => Ok(Self::Optional),
            2 => Ok(Self::Repeated),
            other => Err(complaint(format!("repetition {other}"), "0, 1 or 2")),
        }
    }
}

impl Meaning {
    fn converted(number: i64) -> Self {
        match number {
            5 => Self::Other("a decimal number"),
            6 => Self::Other("a date"),
            7 | 8 => Self::Other("a time"),
            9 | 10 => Self::Other("a timestamp"),
            11..=14 => Self::Unsigned,
            20 => Self::Other("BSON"),
            21 => Self::Other("an interval"),
            _ => Self::Plain,
        }
    }

    fn logical(bytes: &mut Bytes) -> Read<Option<Self>> {
        let mut meaning = None;
        structure(bytes, |bytes, id, kind| {
            meaning = Some(match id {
                5 => Self::Other("a decimal number"),
                6 => Self::Other("a date"),
                7 => Self::Other("a time"),
                8 => Self::Other("a timestamp"),
                10 => {
                    let mut signed = true;
                    structure(bytes, |bytes, id, kind| match id {
                        2 => truth(kind).map(|truth| signed = truth),
                        _ => skip(bytes, kind),
                    })?;
                    meaning = Some(if signed { Self::Plain } else { Self::Unsigned });
                    return Ok(());
                }
                13 => Self::Other("BSON"),
                14 => Self::Other("a UUID"),
                15 => Self::Other("a number of 16 bits"),
                _ => Self::Plain,
            });
            skip(bytes, kind)
        })?;
        Ok(meaning)
    }
}

impl Group {
    fn read(bytes: &mut Bytes) -> Read<Self> {
        let mut group = Self::default();
        structure(bytes, |bytes, id, kind| match id {
            1 => structures(bytes, kind, |bytes| {
                group.chunks.push(Chunk::read(bytes)?);
                Ok(())
            }),
            3 => count(integer(bytes, kind)?).map(|rows| group.rows = rows),
            _ => skip(bytes, kind),
        })?;
        Ok(group)
    }
}

impl Chunk {
    fn read(bytes: &mut Bytes) -> Read<Self> {
        let mut chunk = None;
        structure(bytes, |bytes, id, kind| match id {
            1 => Err(complaint("a column in another file", "one in the file itself")),
            3 if kind == Kind::Structure => {
                chunk = Some(Self::metadata(bytes)?);
                Ok(())
            }
            _ => skip(bytes, kind),
        })?;
        chunk.ok_or_else(|| complaint("a column without metadata", "one that is not encrypted"))
    }

    fn metadata(bytes: &mut Bytes) -> Read<Self> {
        let mut chunk = Self::default();
        let (mut data, mut dictionary) = (None, None);
        structure(bytes, |bytes, id, kind| {
            match id {
                1 => chunk.physical = integer(bytes, kind)?,
                4 => chunk.codec = integer(bytes, kind)?,
                5 => chunk.values = count(integer(bytes, kind)?)?,
                7 => chunk.length = count(integer(bytes, kind)?)?,
                9 => data = Some(count(integer(bytes, kind)?)?),
                11 => dictionary = Some(count(integer(bytes, kind)?)?),
                _ => skip(bytes, kind)?,
            }
            Ok(())
        })?;
        let data = data.ok_or_else(|| complaint("a column without pages", "their offset"))?;
        // Some writers put 0 where there is no dictionary; the file's first four bytes are magic.
        chunk.start = dictionary.filter(|&at| at > 0).map_or(data, |at| at.min(data));
        Ok(chunk)
    }
}

/// A number that counts something.
pub(super) fn count(number: i64) -> Read<u64> {
    u64::try_from(number).map_err(|_| complaint(format!("a count of {number}"), "at least 0"))
}
