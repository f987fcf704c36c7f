//! Records in batches: one thread reads lines, others make rows of them, and rows go into the table in
//! their order.
//!
//! Where a record ends is decided before a batch leaves the thread that reads, so a quoted line end never
//! falls between two batches. What is wrong with a file is told of its first wrong line, as if every line
//! had been read after the one before.

use std::path::Path;

use super::fields::NoRow;
use super::reader::Reader;
use crate::work::CHUNK;
use crate::{Result, Row, Stage, TableBuilder, Work};

/// Bytes from which on a batch is full, so that few large records make one too.
const FULL: usize = 1 << 20;

/// Records as they stand in a file, each with a line end behind it.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// All of them, end to end.
    pub text: Vec<u8>,
    /// The line on which each began, and the byte behind it.
    pub ends: Vec<(u64, usize)>,
}

impl Batch {
    /// Takes note of a record whose bytes were added.
    pub fn end_record(&mut self, line: u64) {
        self.ends.push((line, self.text.len()));
    }

    /// The records and their lines, without the line end behind them.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let starts = [0].into_iter().chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).map(|(start, &(line, end))| (line, &self.text[start..end - 1]))
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= CHUNK || self.text.len() >= FULL
    }
}

/// The rows of a batch, each with its line, or why a record makes none.
pub(super) type Rows = Vec<(u64, Result<Row, NoRow>)>;

/// Reads all records of a file. `next` adds one to a batch, or says that there is none, and how many bytes of
/// the file are read by then; `make` makes rows of a batch.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
    mut next: impl FnMut(&mut Batch) -> Result<Option<u64>>,
    make: impl Fn(&Batch) -> Rows + Sync,
) -> Result<()> {
    let total = std::fs::metadata(path).map_or(0, |file| file.len());
    let (mut failure, mut has_ended) = (None, false);
    work.in_order(
        || {
            if let Some(error) = failure.take() {
                return Err(error);
            }
            let (mut batch, mut read) = (Batch::default(), 0);
            while !has_ended && !batch.is_full() {
                match next(&mut batch) {
                    Ok(Some(bytes)) => read = bytes,
                    Ok(None) => has_ended = true,
                    Err(error) if batch.ends.is_empty() => return Err(error),
                    Err(error) => {
                        (failure, has_ended) = (Some(error), true);
                    }
                }
            }
            Ok((!batch.ends.is_empty()).then_some((batch, read)))
        },
        |(batch, read)| Ok((make(&batch), read)),
        |(made, read)| {
            for (line, row) in made {
                reader.push(row, (path, line), builder)?;
            }
            work.tell(Stage::Reading, read.min(total), total)
        },
    )
}
