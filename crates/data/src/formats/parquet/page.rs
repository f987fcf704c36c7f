//! Pages: their headers, and the levels and values inside them.
//!
//! The two versions differ in where the levels stand: inside the compressed part with their length
//! before them, or outside it with their lengths in the header.

use std::rc::Rc;

use super::bytes::{Bytes, Read, complaint};
use super::codec::Codec;
use super::footer::count;
use super::hybrid::Hybrid;
use super::schema::Leaf;
use super::thrift::{integer, skip, structure, truth};
use super::values::{Type, Values};

/// Writers cut pages at about 1 MiB; a page beyond this is an attack or an accident.
const LARGEST_PAGE: u64 = 256 << 20;
/// The number of the run-length encoding, which is how levels are written.
const RUNS: i64 = 3;

/// What a page's header says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub kind: i64,
    expanded: usize,
    compressed: usize,
    /// Values, absent ones included.
    pub values: u64,
    encoding: i64,
    definition: i64,
    repetition: i64,
    /// Only in the second version: bytes of the levels.
    definition_bytes: usize,
    repetition_bytes: usize,
    is_plain: bool,
}

/// Kinds of pages.
pub(super) const DATA: i64 = 0;
pub(super) const DICTIONARY: i64 = 2;
pub(super) const DATA_V2: i64 = 3;

impl Header {
    pub fn read(bytes: &mut Bytes) -> Read<Self> {
        let mut header = Self { definition: RUNS, repetition: RUNS, ..Self::default() };
        structure(bytes, |bytes, id, kind| {
            match id {
                1 => header.kind = integer(bytes, kind)?,
                2 => header.expanded = size(integer(bytes, kind)?)?,
                3 => header.compressed = size(integer(bytes, kind)?)?,
                5 | 7 | 8 => header.inner(bytes, id)?,
                _ => skip(bytes, kind)?,
            }
            Ok(())
        })?;
        Ok(header)
    }

    /// Whether the page is long and yet has no values.
    pub fn is_hollow(&self) -> bool {
        const LEVELS_OF_NOTHING: usize = 1 << 10;
        self.values == 0 && self.expanded > LEVELS_OF_NOTHING
    }

    /// The header within the header: of a data page, a dictionary or a data page of version 2.
    fn inner(&mut self, bytes: &mut Bytes, outer: i64) -> Read<()> {
        structure(bytes, |bytes, id, kind| {
            match (outer, id) {
                (_, 1) => self.values = count(integer(bytes, kind)?)?,
                (5 | 7, 2) | (8, 4) => self.encoding = integer(bytes, kind)?,
                (5, 3) => self.definition = integer(bytes, kind)?,
                (5, 4) => self.repetition = integer(bytes, kind)?,
                (8, 5) => self.definition_bytes = size(integer(bytes, kind)?)?,
                (8, 6) => self.repetition_bytes = size(integer(bytes, kind)?)?,
                (8, 7) => self.is_plain = !truth(kind)?,
                _ => skip(bytes, kind)?,
            }
            Ok(())
        })
    }

    /// The stored bytes of the page, which follow its header.
    pub fn body(&self, bytes: &mut Bytes) -> Read<Bytes> {
        bytes.split(self.compressed)
    }

    /// A page of the dictionary.
    pub fn dictionary(&self, kind: Type, body: &Bytes, codec: Codec) -> Read<Vec<String>> {
        // PLAIN and its old name.
        if self.encoding != 0 && self.encoding != 2 {
            let found = format!("a dictionary in encoding number {}", self.encoding);
            return Err(complaint(found, "a plain one"));
        }
        super::values::dictionary(kind, self.values, codec.open(body.rest(), self.expanded)?)
    }
}

/// An open page of data.
pub(super) struct Page {
    /// Values not handed out, absent ones included.
    pub left: u64,
    repetition: Option<Hybrid>,
    definition: Option<Hybrid>,
    present: u32,
    values: Values,
}

/// One value and where it belongs.
pub(super) struct Entry {
    /// Whether it starts a row.
    pub starts: bool,
    /// How much of its path is there.
    pub definition: u32,
    pub value: Option<String>,
}

/// What is needed to open a column's pages.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub leaf: &'a Leaf,
    pub kind: Type,
    pub codec: Codec,
    pub dictionary: Option<&'a Rc<Vec<String>>>,
}

impl Page {
    pub fn open(header: &Header, mut body: Bytes, opening: Opening<'_>) -> Read<Self> {
        let Opening { leaf, kind, codec, dictionary } = opening;
        let repeats = u32::from(leaf.element.is_some());
        let (repetition, definition, values) = if header.kind == DATA_V2 {
            let levels = header.repetition_bytes.checked_add(header.definition_bytes);
            let expanded = levels.and_then(|levels| header.expanded.checked_sub(levels));
            let expanded = expanded.ok_or_else(|| complaint("longer levels", "a longer page"))?;
            let repetition = body.split(header.repetition_bytes)?;
            let definition = body.split(header.definition_bytes)?;
            let codec = if header.is_plain { Codec::Plain } else { codec };
            // A page of nulls alone has nothing to compress.
            let values = match expanded {
                0 => Bytes::new(Vec::new()),
                _ => codec.open(body.rest(), expanded)?,
            };
            let repetition = (repeats > 0).then(|| Hybrid::up_to(repetition, repeats));
            let definition = (leaf.present > 0).then(|| Hybrid::up_to(definition, leaf.present));
            (repetition.transpose()?, definition.transpose()?, values)
        } else {
            let mut whole = codec.open(body.rest(), header.expanded)?;
            let mut levels = |largest: u32, encoding: i64| {
                if largest == 0 {
                    return Ok(None);
                }
                if encoding != RUNS {
                    let found = format!("levels in encoding number {encoding}");
                    return Err(complaint(found, "run-length encoding"));
                }
                let length = whole.length()?;
                Hybrid::up_to(whole.split(length)?, largest).map(Some)
            };
            let repetition = levels(repeats, header.repetition)?;
            let definition = levels(leaf.present, header.definition)?;
            (repetition, definition, whole)
        };
        let values = Values::new(kind, header.encoding, values, dictionary)?;
        let (left, present) = (header.values, leaf.present);
        Ok(Self { left, repetition, definition, present, values })
    }

    pub fn next(&mut self) -> Read<Entry> {
        let starts = match &mut self.repetition {
            Some(levels) => levels.next()? == 0,
            None => true,
        };
        let definition = match &mut self.definition {
            Some(levels) => levels.next()?,
            None => self.present,
        };
        if definition > self.present {
            let found = format!("definition level {definition}");
            return Err(complaint(found, format!("at most {}", self.present)));
        }
        let value = if definition == self.present { Some(self.values.next()?) } else { None };
        self.left -= 1;
        Ok(Entry { starts, definition, value })
    }
}

fn size(number: i64) -> Read<usize> {
    let size = count(number)?;
    if size > LARGEST_PAGE {
        return Err(complaint(
            format!("a page of {size} bytes"),
            format!("at most {LARGEST_PAGE}"),
        ));
    }
    Ok(size as usize)
}
