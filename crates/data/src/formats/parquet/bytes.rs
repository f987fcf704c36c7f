//! A cursor over bytes that never reads past its end.
//!
//! Everything in a Parquet file is reached through one of these, so a length that a file claims is
//! compared with the bytes there are in one place. The bytes are shared, not copied: levels and
//! values of a page walk the same buffer.

use std::rc::Rc;

use super::super::columns::Complaint;

/// The crate's inner result: what was found and what was expected.
pub(super) type Read<T> = Result<T, Complaint>;

/// A complaint from two phrases.
pub(super) fn complaint(found: impl Into<String>, expected: impl Into<String>) -> Complaint {
    (found.into(), expected.into())
}

/// A position in shared bytes, and where to stop.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    data: Rc<Vec<u8>>,
    at: usize,
    end: usize,
}

impl Bytes {
    pub fn new(data: Vec<u8>) -> Self {
        let end = data.len();
        Self { data: Rc::new(data), at: 0, end }
    }

    /// How many bytes are left.
    pub fn len(&self) -> usize {
        self.end - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that is left.
    pub fn rest(&self) -> &[u8] {
        &self.data[self.at..self.end]
    }

    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Read<&[u8]> {
        if count > self.len() {
            return Err(self.too_short(count));
        }
        self.at += count;
        Ok(&self.data[self.at - count..self.at])
    }

    /// The next bytes as a cursor of their own.
    pub fn split(&mut self, count: usize) -> Read<Self> {
        let start = self.at;
        self.take(count)?;
        Ok(Self { data: Rc::clone(&self.data), at: start, end: self.at })
    }

    pub fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// A little-endian length of four bytes.
    pub fn length(&mut self) -> Read<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    /// An unsigned number in groups of seven bits, lowest first.
    pub fn varint(&mut self) -> Read<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(complaint("a number of more than ten bytes", "a number of 64 bits"))
    }

    /// A signed number, small magnitudes first: 0, -1, 1, -2, ..
    pub fn zigzag(&mut self) -> Read<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn too_short(&self, wanted: usize) -> Complaint {
        complaint(format!("{} bytes", self.len()), format!("at least {wanted} more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_past_the_end_of_a_part() {
        let mut whole = Bytes::new(vec![1, 2, 3, 4]);
        let mut part = whole.split(2).unwrap();
        assert_eq!(part.take(2).unwrap(), [1, 2]);
        assert_eq!(part.byte().unwrap_err(), complaint("0 bytes", "at least 1 more"));
        assert!(whole.clone().split(usize::MAX).is_err());
        assert_eq!(whole.rest(), [3, 4]);
        assert!(whole.length().is_err() && whole.byte().is_ok());
    }

    #[test]
    fn numbers_read_as_thrift_writes_them() {
        let mut bytes = Bytes::new(vec![0xac, 0x02, 0x01, 0x02, 0x80]);
        assert_eq!(bytes.varint().unwrap(), 300);
        assert_eq!((bytes.zigzag().unwrap(), bytes.zigzag().unwrap()), (-1, 1));
        assert!(bytes.varint().is_err());
        assert!(Bytes::new(vec![0xff; 11]).varint().is_err());
        let lowest = Bytes::new([vec![0xff; 9], vec![1]].concat()).zigzag().unwrap();
        assert_eq!(lowest, i64::MIN);
    }
}
