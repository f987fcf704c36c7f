//! The footer: read by the `parquet` crate, after one look at what it would take memory for.
//!
//! Each node of the schema says how many children follow it. The crate makes room for that many
//! before it looks for them, so the numbers are compared with the nodes there are.

use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::delta::varint;
use crate::error::Complaint;

/// The footer's own deepest nesting is about eight.
const DEEPEST: u32 = 32;

/// What the bytes of a footer say.
pub(super) fn read(bytes: &[u8]) -> Result<ParquetMetaData, Complaint> {
    let broken = |found: String| (format!("{found} in the footer"), "a Parquet file".to_owned());
    let mut walk = Walk { bytes, nodes: 0, most_children: 0 };
    walk.footer().ok_or_else(|| broken("bytes that are no Thrift".to_owned()))?;
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

impl Walk<'_> {
    fn footer(&mut self) -> Option<()> {
        self.structure(0, &mut |walk, field, kind| match (field, kind) {
            (2, LIST) => {
                let (count, inner) = walk.list()?;
                walk.nodes = count;
                for _ in 0..count {
                    if inner != STRUCTURE {
                        return None;
                    }
                    walk.node()?;
                }
                Some(())
            }
            (_, kind) => walk.skip(kind, 0),
        })
    }

    fn node(&mut self) -> Option<()> {
        self.structure(0, &mut |walk, field, kind| match (field, kind) {
            (5, I32) => {
                let children = walk.varint()?;
                // Zigzag: even numbers are those from 0.
                walk.most_children = walk.most_children.max(children / 2);
                Some(())
            }
            (_, kind) => walk.skip(kind, 0),
        })
    }

    fn structure(
        &mut self,
        depth: u32,
        each: &mut dyn FnMut(&mut Self, u64, u8) -> Option<()>,
    ) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let mut field = 0_u64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.varint()? / 2,
                step => field + u64::from(step),
            };
            each(self, field, head & 15)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            TRUE | FALSE => Some(()),
            BYTE => self.take(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.take(8),
            BINARY => {
                let length = self.varint()?;
                self.take(length)
            }
            LIST | SET => {
                let (count, inner) = self.list()?;
                for _ in 0..count {
                    // Inside a list a truth value takes a byte.
                    let inner = if matches!(inner, TRUE | FALSE) { BYTE } else { inner };
                    self.skip(inner, depth + 1)?;
                }
                Some(())
            }
            STRUCTURE => self.structure(depth + 1, &mut |walk, _, kind| walk.skip(kind, depth + 1)),
            _ => None,
        }
    }

    /// How many elements a list has, each at least a byte, and of what kind.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => u64::from(few),
        };
        (count <= self.bytes.len() as u64).then_some((count, head & 15))
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

    fn varint(&mut self) -> Option<u64> {
        varint(&mut self.bytes)
    }
}

// The kinds of the protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCTURE: u8 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_more_children_than_there_are_is_refused_before_memory_is_taken() {
        // Version 1, and a schema of one node "x" with 2^30 children.
        let footer = [0x15, 2, 0x19, 0x1c, 0x48, 1, b'x', 0x15, 0x80, 0x80, 0x80, 0x80, 0x08, 0, 0];
        let (found, _) = read(&footer).unwrap_err();
        assert_eq!(found, "a node with 1073741824 children among 1 in the footer");
        let (found, _) = read(&footer[..9]).unwrap_err();
        assert_eq!(found, "bytes that are no Thrift in the footer");
    }
}
