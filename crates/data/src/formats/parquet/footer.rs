//! The footer: read by the `parquet` crate, after one look at what it would take memory for.
//!
//! Each node of the schema says how many children follow it. The crate makes room for that many
//! before it looks for them, so the numbers are compared with the nodes there are.

use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::delta::varint;
use crate::error::Mismatch;

/// The footer's own deepest nesting is about eight.
const DEEPEST: usize = 32;

/// What the bytes of a footer say.
pub(super) fn read(bytes: &[u8]) -> Result<ParquetMetaData, Mismatch> {
    let broken = |found: String| (format!("{found} in the footer"), "a Parquet file".to_owned());
    let mut walk = Walk { bytes, nodes: 0, most_children: 0 };
    walk.step_over(STRUCTURE, &[]).ok_or_else(|| broken("bytes that are no Thrift".to_owned()))?;
    if walk.most_children > walk.nodes {
        let found = format!("a node with {} children", walk.most_children);
        return Err(broken(format!("{found} among {}", walk.nodes)));
    }
    ParquetMetaDataReader::decode_metadata(bytes).map_err(|error| broken(error.to_string()))
}

/// Thrift's compact protocol, stepped over.
struct Walk<'a> {
    bytes: &'a [u8],
    /// Nodes of the schema.
    nodes: u64,
    most_children: u64,
}

/// Where the list of nodes stands, and the children of each; elements of a list stand in a field 0.
const NODES: &[u64] = &[2];
const CHILDREN: &[u64] = &[2, 0, 5];
/// The kind of a structure.
const STRUCTURE: u8 = 12;

impl Walk<'_> {
    /// Steps over a value of some kind, which stands in these fields.
    fn step_over(&mut self, kind: u8, path: &[u64]) -> Option<()> {
        if path.len() > DEEPEST {
            return None;
        }
        match kind {
            // Truth values, a byte, a double.
            1 | 2 => Some(()),
            3 => self.take(1),
            7 => self.take(8),
            // Whole numbers.
            4..=6 => {
                let number = varint(&mut self.bytes)?;
                if path == CHILDREN {
                    self.most_children = self.most_children.max(number / 2);
                }
                Some(())
            }
            // Bytes.
            8 => {
                let length = varint(&mut self.bytes)?;
                self.take(length)
            }
            // A list or a set, whose elements take at least a byte each, truth values too.
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => varint(&mut self.bytes)?,
                    few => u64::from(few),
                };
                if path == NODES {
                    self.nodes = count;
                }
                let inner = if matches!(head & 15, 1 | 2) { 3 } else { head & 15 };
                let path = [path, &[0]].concat();
                let fits = count <= self.bytes.len() as u64;
                fits.then(|| (0..count).try_for_each(|_| self.step_over(inner, &path)))?
            }
            STRUCTURE => {
                let mut field = 0_u64;
                loop {
                    let head = self.byte()?;
                    field = match head >> 4 {
                        _ if head == 0 => return Some(()),
                        0 => varint(&mut self.bytes)? / 2,
                        step => field + u64::from(step),
                    };
                    self.step_over(head & 15, &[path, &[field]].concat())?;
                }
            }
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    fn take(&mut self, length: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(length).ok()?..)?;
        Some(())
    }
}
