//! The lengths that delta encodings of text announce, counted before anything is made of them.
//!
//! A block of numbers that differ little is a few bytes however many they are, and the `parquet`
//! crate takes memory for as many as a header says. Here the blocks are stepped over without
//! decoding: their count must be the page's, and their bytes must be there.

use parquet::basic::Encoding;

use crate::error::Mismatch;

/// Checks the one list of lengths of `DELTA_LENGTH_BYTE_ARRAY`, or the two of `DELTA_BYTE_ARRAY`.
pub(super) fn check(bytes: &[u8], encoding: Encoding, values: u32) -> Result<(), Mismatch> {
    let lists = if encoding == Encoding::DELTA_BYTE_ARRAY { 2 } else { 1 };
    let mut bytes = bytes;
    for _ in 0..lists {
        bytes = step_over(bytes, u64::from(values)).ok_or_else(|| {
            let found = "delta lengths that do not fit their page".to_owned();
            (found, format!("at most {values} of them, all in the page"))
        })?;
    }
    Ok(())
}

/// What follows a list of delta-encoded numbers, if it has at most so many.
fn step_over(mut bytes: &[u8], most: u64) -> Option<&[u8]> {
    let block = varint(&mut bytes)?;
    let minis = varint(&mut bytes)?;
    let count = varint(&mut bytes)?;
    varint(&mut bytes)?;
    if count > most || block == 0 || minis == 0 || minis > block || !block.is_multiple_of(minis) {
        return None;
    }
    let each = block / minis;
    // The first value stands in the header.
    let mut left = count.saturating_sub(1);
    while left > 0 {
        varint(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(usize::try_from(minis).ok()?)?;
        bytes = rest;
        for &width in widths {
            // Behind the last value, miniblocks have a width and no bytes.
            if left == 0 {
                break;
            }
            let size = u64::from(width).checked_mul(each)?.div_ceil(8);
            bytes = bytes.get(usize::try_from(size).ok()?..)?;
            left = left.saturating_sub(each);
        }
    }
    Some(bytes)
}

/// A number in as many bytes as it needs, seven bits in each.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_page_is_refused() {
        // Blocks of 128 in 4 parts, 3 values from 5, one block without width.
        let honest = [128, 1, 4, 3, 10, 0, 0, 0, 0, 0, b'x'];
        assert_eq!(step_over(&honest, 3), Some(&b"x"[..]));
        assert_eq!(step_over(&honest, 2), None);
        let many = [128, 1, 4, 0xff, 0xff, 0xff, 0xff, 0x0f, 10];
        assert_eq!(step_over(&many, 3), None);
        assert!(check(&many, Encoding::DELTA_BYTE_ARRAY, 3).is_err());
        assert_eq!(step_over(&honest[..7], 3), None, "its widths are missing");
    }
}
