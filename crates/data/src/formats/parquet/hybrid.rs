//! Small numbers as runs and packed groups: levels, dictionary indices and truth values.
//!
//! A run of a million equal numbers takes five bytes, so numbers are handed out one at a time and
//! never gathered.

use super::bytes::{Bytes, Read, complaint};

/// Numbers of a fixed width of bits.
#[derive(Clone, Debug)]
pub(super) struct Hybrid {
    bytes: Bytes,
    width: u32,
    run: Run,
}

#[derive(Clone, Debug)]
enum Run {
    Equal {
        value: u32,
        left: u64,
    },
    /// Eight numbers are unpacked at a time; `groups` of eight are still packed.
    Packed {
        group: [u32; 8],
        next: usize,
        groups: u64,
    },
}

impl Hybrid {
    /// Numbers of `width` bits.
    pub fn new(bytes: Bytes, width: u32) -> Read<Self> {
        if width > 32 {
            return Err(complaint(format!("numbers of {width} bits"), "at most 32"));
        }
        Ok(Self { bytes, width, run: Run::Equal { value: 0, left: 0 } })
    }

    /// Numbers up to a largest one, as levels are.
    pub fn up_to(bytes: Bytes, largest: u32) -> Read<Self> {
        Self::new(bytes, 32 - largest.leading_zeros())
    }

    /// The next number.
    pub fn next(&mut self) -> Read<u32> {
        loop {
            match &mut self.run {
                Run::Equal { value, left } if *left > 0 => {
                    *left -= 1;
                    return Ok(*value);
                }
                Run::Packed { group, next, .. } if *next < 8 => {
                    *next += 1;
                    return Ok(group[*next - 1]);
                }
                Run::Packed { group, next, groups } if *groups > 0 => {
                    *group = unpack(&mut self.bytes, self.width)?;
                    (*next, *groups) = (0, *groups - 1);
                }
                Run::Equal { .. } | Run::Packed { .. } => self.run = self.head()?,
            }
        }
    }

    fn head(&mut self) -> Read<Run> {
        let head = self.bytes.varint()?;
        if head & 1 == 1 {
            return Ok(Run::Packed { group: [0; 8], next: 8, groups: head >> 1 });
        }
        let mut value = [0; 4];
        let length = self.width.div_ceil(8) as usize;
        value[..length].copy_from_slice(self.bytes.take(length)?);
        Ok(Run::Equal { value: u32::from_le_bytes(value), left: head >> 1 })
    }
}

/// Eight numbers from as many bytes as one has bits. A last group may be cut short.
fn unpack(bytes: &mut Bytes, width: u32) -> Read<[u32; 8]> {
    let length = (width as usize).min(bytes.len());
    if length == 0 && width > 0 {
        return Err(complaint("no bytes", "a group of packed numbers"));
    }
    let mut padded = [0_u8; 32];
    padded[..length].copy_from_slice(bytes.take(length)?);
    let mut group = [0; 8];
    for (place, number) in group.iter_mut().enumerate() {
        *number = bits(&padded, place * width as usize, width) as u32;
    }
    Ok(group)
}

/// So many bits from a bit on, lowest first; bits past the end are 0.
pub(super) fn bits(bytes: &[u8], from: usize, width: u32) -> u64 {
    let mut window = [0_u8; 16];
    let start = (from / 8).min(bytes.len());
    let length = (bytes.len() - start).min(16);
    window[..length].copy_from_slice(&bytes[start..start + length]);
    let mask = (1_u128 << width) - 1;
    ((u128::from_le_bytes(window) >> (from % 8)) & mask) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_example_of_the_specification_reads() {
        // 0 to 7 in three bits, after the header of one group; then a run of five sevens.
        let bytes = vec![0x03, 0b1000_1000, 0b1100_0110, 0b1111_1010, 0x0a, 7];
        let mut numbers = Hybrid::up_to(Bytes::new(bytes), 7).unwrap();
        let read: Vec<u32> = (0..13).map(|_| numbers.next().unwrap()).collect();
        assert_eq!(read, [0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7]);
        assert!(numbers.next().is_err());
    }

    #[test]
    fn numbers_without_bits_are_zeros() {
        let mut numbers = Hybrid::new(Bytes::new(vec![0x08]), 0).unwrap();
        assert_eq!((0..4).map(|_| numbers.next().unwrap()).sum::<u32>(), 0);
        assert!(numbers.next().is_err());
        assert!(Hybrid::new(Bytes::new(vec![]), 33).is_err());
    }

    #[test]
    fn wide_numbers_keep_all_their_bits() {
        let mut bytes = vec![0x03];
        let numbers = [u32::MAX, 0, 1, 0x8000_0000, 5, u32::MAX, 7, 9];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let mut read = Hybrid::new(Bytes::new(bytes), 32).unwrap();
        assert!(numbers.iter().all(|&number| read.next().unwrap() == number));
        assert_eq!(bits(&[0xff; 9], 3, 64), u64::MAX);
    }
}
