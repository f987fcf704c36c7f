//! Compressed pages opened.
//!
//! A page's header claims how long it will be. The claim is a bound on what is produced and never a
//! reason to take memory: output grows only as fast as input is understood.

use std::io::Read as _;

use super::bytes::{Bytes, Read, complaint};

/// How the pages of a column are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Plain,
    Snappy,
    Gzip,
    Zstd,
}

impl Codec {
    pub fn of(number: i64) -> Read<Self> {
        let name = match number {
            0 => return Ok(Self::Plain),
            1 => return Ok(Self::Snappy),
            2 => return Ok(Self::Gzip),
            6 => return Ok(Self::Zstd),
            3 => "LZO",
            4 => "Brotli",
            5 | 7 => "LZ4",
            other => {
                return Err(complaint(format!("compression number {other}"), EXPECTED));
            }
        };
        Err(complaint(format!("{name} compression"), EXPECTED))
    }

    /// The bytes, which must come to `length`.
    pub fn open(self, packed: &[u8], length: usize) -> Read<Bytes> {
        let opened = match self {
            Self::Plain => packed.to_vec(),
            Self::Snappy => snappy(packed, length)?,
            Self::Gzip => drained(flate2::bufread::MultiGzDecoder::new(packed), length)?,
            Self::Zstd => {
                let frames = ruzstd::decoding::StreamingDecoder::new(packed);
                let frames =
                    frames.map_err(|error| complaint(error.to_string(), "Zstandard data"))?;
                drained(frames, length)?
            }
        };
        if opened.len() != length {
            let found = format!("a page of {} bytes", opened.len());
            return Err(complaint(found, format!("the {length} that its header says")));
        }
        Ok(Bytes::new(opened))
    }
}

const EXPECTED: &str = "none, Snappy, gzip or Zstandard";

fn drained(reader: impl std::io::Read, length: usize) -> Read<Vec<u8>> {
    let mut out = Vec::new();
    let read = reader.take(length as u64 + 1).read_to_end(&mut out);
    read.map_err(|error| complaint(error.to_string(), "readable compressed data"))?;
    Ok(out)
}

/// Snappy's block format: literals, and copies of what was already produced.
fn snappy(packed: &[u8], length: usize) -> Read<Vec<u8>> {
    let mut bytes = Bytes::new(packed.to_vec());
    let claimed = bytes.varint()?;
    if claimed != length as u64 {
        let expected = format!("the {length} that the page's header says");
        return Err(complaint(format!("Snappy data of {claimed} bytes"), expected));
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = bytes.byte()?;
        let short = usize::from(tag >> 2);
        let (count, back) = match tag & 3 {
            0 => {
                let mut count = short;
                if short >= 60 {
                    let mut long = [0; 4];
                    let digits = short - 59;
                    long[..digits].copy_from_slice(bytes.take(digits)?);
                    count = u32::from_le_bytes(long) as usize;
                }
                (count + 1, None)
            }
            1 => {
                let high = usize::from(tag >> 5) << 8;
                ((short & 7) + 4, Some(high | usize::from(bytes.byte()?)))
            }
            2 => (short + 1, Some(usize::from(u16::from_le_bytes(bytes.array()?)))),
            _ => (short + 1, Some(bytes.length()?)),
        };
        if count > length - out.len() {
            return Err(complaint("more Snappy data", format!("{length} bytes")));
        }
        let Some(back) = back else {
            out.extend_from_slice(bytes.take(count)?);
            continue;
        };
        let start = out.len().checked_sub(back).filter(|_| back > 0).ok_or_else(|| {
            complaint(format!("a copy from {back} bytes back"), "bytes already there")
        })?;
        // A copy may reach into what it is producing, which repeats it.
        for at in start..start + count {
            out.push(out[at]);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snappy_literals_and_overlapping_copies_expand() {
        // "ab", then 6 bytes from 2 back, then a copy with a two-byte offset, then a long literal.
        let mut packed = vec![72, 0x04, b'a', b'b', 0x09, 2, 0x0e, 8, 0];
        packed.extend([60 << 2, 59]);
        packed.extend([b'z'; 60]);
        let opened = Codec::Snappy.open(&packed, 72).unwrap();
        let expected = format!("abababababab{}", "z".repeat(60));
        assert_eq!(opened.rest(), expected.as_bytes());
        assert!(Codec::Snappy.open(&packed, 71).is_err());
        assert!(Codec::Snappy.open(&packed[..20], 72).is_err());
        assert!(Codec::Snappy.open(&[4, 0x01, 1], 4).is_err(), "a copy of nothing");
    }

    #[test]
    fn what_is_not_opened_is_named() {
        assert_eq!(Codec::of(4).unwrap_err().0, "Brotli compression");
        assert_eq!(Codec::of(7).unwrap_err().0, "LZ4 compression");
        assert_eq!(Codec::of(99).unwrap_err().0, "compression number 99");
    }
}
