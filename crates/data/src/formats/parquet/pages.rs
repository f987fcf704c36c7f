//! The pages of a column chunk, opened and checked before the `parquet` crate decodes them.
//!
//! The crate reads the headers. It believes the counts in them, so the ones that it takes memory for
//! are compared with the bytes there are: words of a dictionary, values of a page of lists, and the
//! lengths that delta encodings announce.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::codec;
use super::delta;
use crate::error::Mismatch;

/// Values of a page whose rows are lists; writers stay below a tenth of it.
const MOST_LIST_VALUES: u32 = 1 << 23;

/// The pages of one column chunk.
pub(super) struct Pages {
    inner: SerializedPageReader<Bytes>,
    codec: Compression,
    /// Values that the chunk has left to give.
    left: u64,
    /// The greatest repetition and definition level.
    levels: (i16, i16),
    /// A page that was looked at and not yet taken.
    ahead: Option<Page>,
}

impl Pages {
    /// The pages in the bytes of a chunk, which are the whole of it.
    pub fn new(bytes: Bytes, chunk: &ColumnChunkMetaData, rows: usize) -> Result<Self> {
        let descriptor = chunk.column_descr();
        let levels = (descriptor.max_rep_level(), descriptor.max_def_level());
        let (codec, left) = (chunk.compression(), chunk.num_values().max(0) as u64);
        // Named uncompressed and starting at 0, so that the crate hands out pages as they are.
        let dictionary = chunk.dictionary_page_offset().map(|_| 0);
        let chunk = chunk
            .clone()
            .into_builder()
            .set_compression(Compression::UNCOMPRESSED)
            .set_data_page_offset(0)
            .set_dictionary_page_offset(dictionary)
            .set_total_compressed_size(i64::try_from(bytes.len())?)
            .build()?;
        let inner = SerializedPageReader::new(Arc::new(bytes), &chunk, rows, None)?;
        Ok(Self { inner, codec, left, levels, ahead: None })
    }

    /// The next page with values. Writers do close empty ones, at which the crate would stop in the
    /// middle of a row.
    fn advance(&mut self) -> Result<()> {
        while self.ahead.is_none() {
            match self.inner.get_next_page()? {
                None => return Ok(()),
                Some(page) if page.is_data_page() && page.num_values() == 0 => {}
                Some(page) => self.ahead = Some(self.opened(page)?),
            }
        }
        Ok(())
    }

    fn opened(&mut self, mut page: Page) -> Result<Page> {
        let codec = self.codec;
        let open = |packed: &[u8]| codec::open(codec, packed).map_err(error);
        match &mut page {
            Page::DictionaryPage { buf, num_values, .. } => {
                *buf = Bytes::from(open(buf)?);
                // A word takes at least the four bytes of its length, or is a number as long.
                if *num_values as usize > buf.len() / 4 {
                    let found = format!("a dictionary of {num_values} words");
                    return Err(error((found, format!("at most {} bytes of them", buf.len()))));
                }
            }
            Page::DataPage { buf, num_values, encoding, .. } => {
                *buf = Bytes::from(open(buf)?);
                let levels = if is_delta(*encoding) { self.level_bytes(buf) } else { 0 };
                self.check(buf, levels, *num_values, *encoding)?;
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => {
                let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                let Some((before, packed)) = buf.split_at_checked(levels) else {
                    let found = format!("{levels} bytes of levels in a page of {}", buf.len());
                    return Err(error((found, "levels inside their page".to_owned())));
                };
                if *is_compressed && codec != Compression::UNCOMPRESSED && !packed.is_empty() {
                    *buf = Bytes::from([before, &open(packed)?].concat());
                }
                *is_compressed = false;
                self.check(buf, levels, *num_values, *encoding)?;
            }
        }
        Ok(page)
    }

    /// Compares what a data page announces with what it holds.
    fn check(&mut self, buf: &Bytes, levels: usize, values: u32, encoding: Encoding) -> Result<()> {
        if u64::from(values) > self.left {
            let found = format!("a page of {values} values");
            return Err(error((found, format!("at most the {} left in its chunk", self.left))));
        }
        self.left -= u64::from(values);
        if self.levels.0 > 0 && values > MOST_LIST_VALUES {
            let found = format!("a page of lists with {values} values");
            return Err(error((found, format!("at most {MOST_LIST_VALUES}"))));
        }
        if !is_delta(encoding) {
            return Ok(());
        }
        delta::check(buf.get(levels..).unwrap_or_default(), encoding, values).map_err(error)
    }

    /// How many bytes the levels of a page of the first version take: each part says its length.
    fn level_bytes(&self, buf: &[u8]) -> usize {
        let mut at = 0;
        for level in [self.levels.0, self.levels.1] {
            if level > 0 {
                let length = buf.get(at..).and_then(<[u8]>::first_chunk::<4>);
                let length = length.map_or(0, |length| u32::from_le_bytes(*length) as usize);
                at = at.saturating_add(4).saturating_add(length);
            }
        }
        at
    }
}

fn is_delta(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY)
}

fn error((found, expected): Mismatch) -> ParquetError {
    ParquetError::General(format!("{found}, expected {expected}"))
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.advance()?;
        Ok(self.ahead.take())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(ParquetError::NYI("pages are read, never skipped".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.peek_next_page().map(drop)
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.advance()?;
        Ok(self.ahead.as_ref().is_none_or(|page| matches!(page, Page::DataPageV2 { .. })))
    }
}
