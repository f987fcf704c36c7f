//! What small messages have in common: a header, and a checksum that finds accidents.
//!
//! ```text
//!  0  magic            5  zero          8  round u32     16  content
//!  4  version          6  own u16      12  client u32     .  CRC-32 of all before
//! ```

use fedra_plan::Round;

use crate::error::WireError;
use crate::id::ClientId;

const VERSION: u8 = 1;
const HEADER: usize = 16;
const CHECKSUM: usize = 4;

/// The length of a message with so many bytes of content.
pub(crate) const fn length(content: usize) -> usize {
    HEADER + content + CHECKSUM
}

/// A small message.
pub(crate) struct Sealed<'bytes> {
    /// A number that belongs to the kind.
    pub own: u16,
    pub round: Round,
    pub client: ClientId,
    pub content: &'bytes [u8],
}

impl<'bytes> Sealed<'bytes> {
    /// Writes the message.
    pub fn encode(&self, magic: [u8; 4]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length(self.content.len()));
        bytes.extend(magic);
        bytes.extend([VERSION, 0]);
        bytes.extend(self.own.to_le_bytes());
        bytes.extend(self.round.0.to_le_bytes());
        bytes.extend(self.client.0.to_le_bytes());
        bytes.extend(self.content);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a message of this kind.
    pub fn decode(bytes: &'bytes [u8], magic: [u8; 4]) -> Result<Self, WireError> {
        let short = || WireError::length(bytes.len(), length(0));
        let (whole, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or_else(short)?;
        let (header, content) = whole.split_first_chunk::<HEADER>().ok_or_else(short)?;
        let [a, b, c, d, version, zero, low, high, r0, r1, r2, r3, c0, c1, c2, c3] = *header;
        if [a, b, c, d] != magic {
            let found = format!("{:02x?}", [a, b, c, d]);
            return Err(WireError::payload("start", found, format!("{magic:02x?}")));
        }
        if version != VERSION {
            return Err(WireError::payload("format version", version, VERSION));
        }
        if zero != 0 {
            return Err(WireError::reserved(zero));
        }
        let (found, expected) = (u32::from_le_bytes(*checksum), crc32fast::hash(whole));
        if found != expected {
            let [found, expected] = [found, expected].map(|sum| format!("{sum:08x}"));
            return Err(WireError::payload("checksum", found, expected));
        }
        Ok(Self {
            own: u16::from_le_bytes([low, high]),
            round: Round(u32::from_le_bytes([r0, r1, r2, r3])),
            client: ClientId(u32::from_le_bytes([c0, c1, c2, c3])),
            content,
        })
    }
}
