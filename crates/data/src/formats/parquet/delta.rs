//! Numbers as packed differences, and texts by their lengths and common beginnings.
//!
//! ```text
//! block size, miniblocks a block, count, first value
//! then per block: smallest difference, a width of bits for each miniblock, the miniblocks
//! ```

use super::bytes::{Bytes, Read, complaint};
use super::hybrid::bits;

/// Writers use 128 to 4096 numbers a block.
const LARGEST_BLOCK: u64 = 1 << 16;

/// `DELTA_BINARY_PACKED`.
#[derive(Clone, Debug)]
pub(super) struct Deltas {
    bytes: Bytes,
    /// Numbers in a miniblock, a multiple of 8.
    mini: usize,
    miniblocks: usize,
    /// Numbers not handed out.
    left: u64,
    value: i64,
    /// Whether `value` is the first and still to be handed out.
    first: bool,
    smallest: i64,
    /// Widths of the miniblocks of this block that are still to be opened.
    widths: Bytes,
    open: Miniblock,
}

#[derive(Clone, Debug)]
struct Miniblock {
    packed: Bytes,
    width: u32,
    next: usize,
    count: usize,
}

impl Deltas {
    pub fn new(mut bytes: Bytes) -> Read<Self> {
        let (block, miniblocks, left) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
        let value = bytes.zigzag()?;
        let legal = (1..=LARGEST_BLOCK).contains(&block)
            && (1..=block).contains(&miniblocks)
            && block % miniblocks == 0
            && (block / miniblocks).is_multiple_of(8);
        if !legal {
            let found = format!("blocks of {block} numbers in {miniblocks} parts");
            return Err(complaint(found, "parts of a multiple of 8"));
        }
        let (mini, miniblocks) = ((block / miniblocks) as usize, miniblocks as usize);
        let nothing = Bytes::new(Vec::new());
        let open = Miniblock { packed: nothing.clone(), width: 0, next: 0, count: 0 };
        let (smallest, widths) = (0, nothing);
        Ok(Self { bytes, mini, miniblocks, left, value, first: true, smallest, widths, open })
    }

    pub fn next(&mut self) -> Read<i64> {
        if self.left == 0 {
            return Err(complaint("no more numbers", "one for every value"));
        }
        if !self.first {
            while self.open.next == self.open.count {
                self.open()?;
            }
            let open = &mut self.open;
            let delta = bits(open.packed.rest(), open.next * open.width as usize, open.width);
            open.next += 1;
            self.value = self.value.wrapping_add(self.smallest).wrapping_add(delta.cast_signed());
        }
        self.first = false;
        self.left -= 1;
        Ok(self.value)
    }

    /// The bytes after the last number; only whole miniblocks are stored, and none after the last
    /// that is needed.
    pub fn after(mut self) -> Read<Bytes> {
        if self.first {
            self.left = self.left.saturating_sub(1);
        }
        self.left = self.left.saturating_sub((self.open.count - self.open.next) as u64);
        while self.left > 0 {
            self.open()?;
            self.left = self.left.saturating_sub(self.open.count as u64);
        }
        Ok(self.bytes)
    }

    fn open(&mut self) -> Read<()> {
        if self.widths.is_empty() {
            self.smallest = self.bytes.zigzag()?;
            self.widths = self.bytes.split(self.miniblocks)?;
        }
        let width = u32::from(self.widths.byte()?);
        if width > 64 {
            return Err(complaint(format!("numbers of {width} bits"), "at most 64"));
        }
        // At most 2^16 numbers of 64 bits, so this cannot overflow.
        let length = self.mini / 8 * width as usize;
        let packed = self.bytes.split(length)?;
        self.open = Miniblock { packed, width, next: 0, count: self.mini };
        Ok(())
    }
}

/// `DELTA_LENGTH_BYTE_ARRAY`: all lengths, then all texts end to end.
#[derive(Clone, Debug)]
pub(super) struct Lengths {
    lengths: Deltas,
    texts: Bytes,
}

impl Lengths {
    pub fn new(bytes: Bytes) -> Read<Self> {
        let lengths = Deltas::new(bytes)?;
        let texts = lengths.clone().after()?;
        Ok(Self { lengths, texts })
    }

    pub fn next(&mut self) -> Read<&[u8]> {
        let length = length(self.lengths.next()?)?;
        self.texts.take(length)
    }
}

/// `DELTA_BYTE_ARRAY`: how much of the text before is kept, and what follows it.
#[derive(Clone, Debug)]
pub(super) struct Beginnings {
    kept: Deltas,
    rest: Lengths,
    text: Vec<u8>,
}

impl Beginnings {
    pub fn new(bytes: Bytes) -> Read<Self> {
        let kept = Deltas::new(bytes)?;
        let rest = Lengths::new(kept.clone().after()?)?;
        Ok(Self { kept, rest, text: Vec::new() })
    }

    pub fn next(&mut self) -> Read<&[u8]> {
        let kept = length(self.kept.next()?)?;
        if kept > self.text.len() {
            let expected = format!("at most {} letters of the text before", self.text.len());
            return Err(complaint(kept.to_string(), expected));
        }
        self.text.truncate(kept);
        self.text.extend_from_slice(self.rest.next()?);
        Ok(&self.text)
    }
}

fn length(number: i64) -> Read<usize> {
    usize::try_from(number).map_err(|_| complaint(format!("a length of {number}"), "at least 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_example_of_the_specification_reads() {
        // 1, 2, 3, 4, 5: header 128, 1 (their 4 would need more widths), 5, zigzag 1; all
        // differences 1, so no bits.
        let bytes = vec![0x80, 0x01, 0x01, 0x05, 0x02, 0x02, 0x00, 0xaa];
        let mut numbers = Deltas::new(Bytes::new(bytes)).unwrap();
        assert_eq!(numbers.clone().after().unwrap().rest(), [0xaa]);
        let read: Vec<i64> = (0..5).map(|_| numbers.next().unwrap()).collect();
        assert_eq!(read, [1, 2, 3, 4, 5]);
        assert!(numbers.next().is_err());
        assert_eq!(numbers.after().unwrap().rest(), [0xaa]);
    }

    #[test]
    fn impossible_headers_are_refused() {
        for head in [[0x80, 0x01, 0x00, 1, 0], [0x80, 0x01, 0x03, 1, 0], [0x00, 0x00, 0x01, 1, 0]] {
            assert!(Deltas::new(Bytes::new(head.to_vec())).is_err(), "{head:?}");
        }
        let wide = vec![0x80, 0x01, 0x01, 0x05, 0x02, 0x02, 65];
        let mut wide = Deltas::new(Bytes::new(wide)).unwrap();
        assert_eq!(wide.next().unwrap(), 1);
        assert!(wide.next().is_err());
    }
}
