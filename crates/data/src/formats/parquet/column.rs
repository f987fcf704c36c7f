//! One column of a row group, row by row.

use std::rc::Rc;

use super::super::columns::Cell;
use super::bytes::{Bytes, Read, complaint};
use super::codec::Codec;
use super::footer::Chunk;
use super::page::{DATA, DATA_V2, DICTIONARY, Entry, Header, Opening, Page};
use super::schema::Leaf;
use super::values::Type;

/// What a value costs beside its letters when rows are held to a limit: about its part of a row in
/// memory, since a run of a billion empty texts takes ten bytes of a file.
const OVERHEAD: u64 = 128;

/// A column being read.
pub(super) struct ColumnReader {
    leaf: Leaf,
    kind: Type,
    codec: Codec,
    /// Pages not opened yet.
    bytes: Bytes,
    dictionary: Option<Rc<Vec<String>>>,
    page: Option<Page>,
    /// Values of the chunk not handed out.
    left: u64,
    /// The entry after the row read last: where a list ends shows only with the next row's start.
    ahead: Option<Entry>,
    /// The row that comes next.
    row: u64,
}

/// One row of a column, and what it costs.
pub(super) struct Value {
    pub cell: Option<Cell>,
    pub bytes: u64,
}

impl ColumnReader {
    /// Opens a column whose pages are these bytes.
    pub fn new(leaf: Leaf, chunk: &Chunk, bytes: Vec<u8>) -> Read<Self> {
        if chunk.physical != leaf.physical {
            let found = format!("values of physical type {}", chunk.physical);
            return Err(complaint(found, format!("type {}, as in the schema", leaf.physical)));
        }
        let (kind, codec) = (Type::of(&leaf)?, Codec::of(chunk.codec)?);
        let bytes = Bytes::new(bytes);
        let (left, row) = (chunk.values, 0);
        let (dictionary, page, ahead) = (None, None, None);
        Ok(Self { leaf, kind, codec, bytes, dictionary, page, left, ahead, row })
    }

    /// The value of a row, which may not lie before the one asked for last; `most` bounds what one
    /// row may take.
    pub fn at(&mut self, row: u64, most: u64) -> Read<Value> {
        loop {
            let value = self.next(most)?;
            self.row += 1;
            if self.row > row {
                return Ok(value);
            }
        }
    }

    /// How many rows were read.
    pub fn read(&self) -> u64 {
        self.row
    }

    /// Whether every value was handed out.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.ahead.is_none()
    }

    fn next(&mut self, most: u64) -> Read<Value> {
        let first = match self.ahead.take() {
            Some(entry) => entry,
            None => self.entry()?.ok_or_else(|| complaint("fewer values", "one for every row"))?,
        };
        let mut bytes = cost(&first);
        let Some(element) = self.leaf.element else {
            return Ok(Value { cell: first.value.map(Cell::One), bytes });
        };
        if !first.starts {
            return Err(complaint("a list that goes on", "one that begins"));
        }
        // Below the level of an element the list is empty, and below that it is null.
        if first.definition < element {
            let cell = (first.definition + 1 == element).then(|| Cell::List(Vec::new()));
            self.ahead = self.entry()?;
            return Ok(Value { cell, bytes });
        }
        let mut items = Vec::new();
        let mut entry = first;
        loop {
            let missing = || complaint("a null inside a list", "a value");
            items.push(entry.value.ok_or_else(missing)?);
            entry = match self.entry()? {
                Some(next) if !next.starts => next,
                other => {
                    self.ahead = other;
                    return Ok(Value { cell: Some(Cell::List(items)), bytes });
                }
            };
            bytes += cost(&entry);
            if bytes > most {
                let found = format!("more than {most} bytes in one list");
                return Err(complaint(found, "a record within the limit"));
            }
        }
    }

    /// The next value of the chunk, through as many pages as it takes.
    fn entry(&mut self) -> Read<Option<Entry>> {
        if self.left == 0 {
            return Ok(None);
        }
        loop {
            if let Some(page) = &mut self.page
                && page.left > 0
            {
                self.left -= 1;
                return page.next().map(Some);
            }
            self.open_page()?;
        }
    }

    fn open_page(&mut self) -> Read<()> {
        if self.bytes.is_empty() {
            return Err(complaint("no more pages", format!("{} more values", self.left)));
        }
        let header = Header::read(&mut self.bytes)?;
        let body = header.body(&mut self.bytes)?;
        match header.kind {
            DICTIONARY if self.dictionary.is_some() => {
                return Err(complaint("a second dictionary", "at most one"));
            }
            DICTIONARY if header.values > self.left => {
                let found = format!("a dictionary of {} words", header.values);
                return Err(complaint(found, format!("at most the {} values", self.left)));
            }
            DICTIONARY => {
                let words = header.dictionary(self.kind, &body, self.codec)?;
                self.dictionary = Some(Rc::new(words));
            }
            DATA | DATA_V2 => {
                // Writers do close empty pages; nothing but this bounds what they expand to.
                if header.is_hollow() {
                    return Err(complaint("a long page without values", "values in it"));
                }
                if header.values > self.left {
                    let found = format!("a page of {} values", header.values);
                    return Err(complaint(found, format!("at most the {} left", self.left)));
                }
                let (leaf, kind, codec) = (&self.leaf, self.kind, self.codec);
                let dictionary = self.dictionary.as_ref();
                let opening = Opening { leaf, kind, codec, dictionary };
                self.page = Some(Page::open(&header, body, opening)?);
            }
            // An index page, or a kind that is not invented yet: it holds no values.
            _ => {}
        }
        Ok(())
    }
}

fn cost(entry: &Entry) -> u64 {
    OVERHEAD + entry.value.as_ref().map_or(0, |value| value.len() as u64)
}
