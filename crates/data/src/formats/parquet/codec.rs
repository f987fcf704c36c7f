//! Compressed pages opened, within bounds.
//!
//! The `parquet` crate would take memory for a page on the word of its header, and its Zstandard is a
//! C library. So it is handed pages that are opened already, by Rust libraries whose output grows
//! only as fast as input is understood.

use std::io::Read;

use parquet::basic::Compression;

use crate::error::Mismatch;

/// Writers cut pages at about 1 MiB; a page beyond this is an attack or an accident.
const LARGEST_PAGE: u64 = 256 << 20;
const EXPECTED: &str = "none, Snappy, gzip or Zstandard";

/// The bytes of a page, or of the compressed part of one.
pub(super) fn open(codec: Compression, packed: &[u8]) -> Result<Vec<u8>, Mismatch> {
    let refused = |name: &str| Err((format!("{name} compression"), EXPECTED.to_owned()));
    match codec {
        Compression::UNCOMPRESSED => Ok(packed.to_vec()),
        Compression::SNAPPY => snappy(packed),
        Compression::GZIP(_) => drained(flate2::bufread::MultiGzDecoder::new(packed)),
        Compression::ZSTD(_) => {
            let frames = ruzstd::decoding::StreamingDecoder::new(packed);
            drained(frames.map_err(|error| (error.to_string(), "Zstandard data".to_owned()))?)
        }
        Compression::BROTLI(_) => refused("Brotli"),
        Compression::LZ4 | Compression::LZ4_RAW => refused("LZ4"),
        Compression::LZO => refused("LZO"),
    }
}

fn drained(reader: impl Read) -> Result<Vec<u8>, Mismatch> {
    let mut out = Vec::new();
    let read = reader.take(LARGEST_PAGE + 1).read_to_end(&mut out);
    read.map_err(|error| (error.to_string(), "readable compressed data".to_owned()))?;
    bounded(out.len() as u64)?;
    Ok(out)
}

/// Snappy says its length first. A copy of 64 bytes takes three, so no data gives more than that.
fn snappy(packed: &[u8]) -> Result<Vec<u8>, Mismatch> {
    let broken = |error: snap::Error| (error.to_string(), "Snappy data".to_owned());
    let length = snap::raw::decompress_len(packed).map_err(broken)? as u64;
    bounded(length)?;
    if length > 22 * packed.len() as u64 {
        let found = format!("{} bytes of Snappy data that claim to be {length}", packed.len());
        return Err((found, "no more than they can hold".to_owned()));
    }
    snap::raw::Decoder::new().decompress_vec(packed).map_err(broken)
}

fn bounded(length: u64) -> Result<(), Mismatch> {
    if length <= LARGEST_PAGE {
        return Ok(());
    }
    Err((format!("a page of {length} bytes or more"), format!("at most {LARGEST_PAGE}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_opened_is_named() {
        let named = |codec| open(codec, &[]).unwrap_err().0;
        assert_eq!(named(Compression::LZ4_RAW), "LZ4 compression");
        assert_eq!(named(Compression::LZO), "LZO compression");
    }

    #[test]
    fn snappy_takes_no_memory_on_its_word() {
        let packed = snap::raw::Encoder::new().compress_vec(&[7; 5000]).unwrap();
        assert_eq!(open(Compression::SNAPPY, &packed).unwrap(), [7; 5000]);
        let lie = [&[0x80, 0x80, 0x80, 0x40][..], &packed[2..]].concat();
        let (found, _) = open(Compression::SNAPPY, &lie).unwrap_err();
        assert!(found.contains("claim to be"), "{found}");
    }
}
