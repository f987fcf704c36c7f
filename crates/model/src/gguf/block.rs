//! The element types of a file, and their values as f32.
//!
//! A quantised row is a run of blocks: 32 or 256 small integers under a scale, some with an offset.
//! The order of the operations is part of the meaning: products and sums are rounded to f32 in the
//! order in which the format's own tools round them, so that values agree with theirs to the bit.

use fedra_compute::Quantisation;
use half::f16;

use crate::hf::Precision;

/// How elements are stored, by the number that the format gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum BlockType {
    F32 = 0,
    F16 = 1,
    BF16 = 30,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q4K = 12,
    Q5K = 13,
    Q6K = 14,
}

/// The format's names by number, also of types that are not read; empty where a number has none.
const NAMES: [&str; 41] = [
    "F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K",
    "Q4_K", "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0",
    "TQ2_0", "", "", "", "MXFP4", "NVFP4",
];

impl BlockType {
    /// Those that are read.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The type with this number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its number in the format.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Its name in the format.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Elements of a block; a row is a whole number of blocks.
    pub const fn elements(self) -> usize {
        self.size().0
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        self.size().1
    }

    /// Elements and bytes of a block: one value, 32 under one scale, or 256 whose scales are
    /// themselves quantised.
    const fn size(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// All names, for messages.
    pub(super) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// What a number means, for messages: also types that are not read.
    pub(super) fn name_of(number: u32) -> String {
        match NAMES.get(number as usize) {
            None | Some(&"") => number.to_string(),
            Some(name) => format!("{number} ({name})"),
        }
    }

    /// The quantised format that holds its blocks without loss, if there is one.
    pub(super) const fn quantisation(self) -> Option<Quantisation> {
        match self {
            Self::Q8_0 => Some(Quantisation::Int8),
            Self::Q4_0 | Self::Q4_1 => Some(Quantisation::Int4),
            Self::F32
            | Self::F16
            | Self::BF16
            | Self::Q5_0
            | Self::Q5_1
            | Self::Q4K
            | Self::Q5K
            | Self::Q6K => None,
        }
    }

    /// Appends the integers and the scales of whole blocks that are [quantised](Self::quantisation) so. A minimum
    /// of -8 scales, which `Q4_0` means, is exact; one that no f16 can be is infinite, and refused later.
    pub(super) fn split(self, bytes: &[u8], (quants, scales): (&mut Vec<u8>, &mut Vec<u16>)) {
        for block in bytes.chunks_exact(self.bytes()) {
            let bits = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
            scales.push(bits(0));
            let first = if self == Self::Q4_1 {
                scales.push(bits(2));
                4
            } else {
                if self == Self::Q4_0 {
                    scales.push(f16::from_f32(-8.0 * half(block)).to_bits());
                }
                2
            };
            quants.extend_from_slice(&block[first..]);
        }
    }

    /// Appends the values of whole blocks to `values`.
    pub(super) fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        let one_by_one = |width: usize| bytes.chunks_exact(width);
        match self {
            Self::F32 => Precision::F32.decode(bytes, values),
            Self::F16 => Precision::F16.decode(bytes, values),
            Self::BF16 => Precision::BF16.decode(bytes, values),
            Self::Q4_0 => one_by_one(18).for_each(|block| {
                let scale = half(block);
                nibbles(&block[2..], |q| scale * f32::from(q.cast_signed() - 8), values);
            }),
            Self::Q4_1 => one_by_one(20).for_each(|block| {
                let (scale, least) = (half(block), half(&block[2..]));
                nibbles(&block[4..], |q| scale * f32::from(q) + least, values);
            }),
            Self::Q5_0 => one_by_one(22).for_each(|block| {
                let scale = half(block);
                let value = |q: u8| scale * f32::from(q.cast_signed() - 16);
                fifths(&block[2..], value, values);
            }),
            Self::Q5_1 => one_by_one(24).for_each(|block| {
                let (scale, least) = (half(block), half(&block[2..]));
                fifths(&block[4..], |q| scale * f32::from(q) + least, values);
            }),
            Self::Q8_0 => one_by_one(34).for_each(|block| {
                let scale = half(block);
                values.extend(block[2..].iter().map(|q| scale * f32::from(q.cast_signed())));
            }),
            Self::Q4K => one_by_one(144).for_each(|block| {
                let (scales, quarters) = (Scales::of(block), &block[16..]);
                for (pair, quarter) in quarters.chunks_exact(32).enumerate() {
                    let (low, high) = (scales.at(2 * pair), scales.at(2 * pair + 1));
                    values.extend(quarter.iter().map(|q| low.of(q & 15)));
                    values.extend(quarter.iter().map(|q| high.of(q >> 4)));
                }
            }),
            Self::Q5K => one_by_one(176).for_each(|block| {
                let (scales, fifth, quarters) = (Scales::of(block), &block[16..48], &block[48..]);
                for (pair, quarter) in quarters.chunks_exact(32).enumerate() {
                    let (low, high) = (scales.at(2 * pair), scales.at(2 * pair + 1));
                    let bit = |h: &u8, at: usize| (h >> at & 1) << 4;
                    let both = || quarter.iter().zip(fifth);
                    values.extend(both().map(|(q, h)| low.of(q & 15 | bit(h, 2 * pair))));
                    values.extend(both().map(|(q, h)| high.of(q >> 4 | bit(h, 2 * pair + 1))));
                }
            }),
            Self::Q6K => one_by_one(210).for_each(|block| sixths(block, values)),
        }
    }
}

/// The f16 at the start of some bytes.
fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Four bits each: the lower ones of all 16 bytes, then the upper ones.
fn nibbles(bytes: &[u8], value: impl Fn(u8) -> f32, values: &mut Vec<f32>) {
    values.extend(bytes.iter().map(|q| value(q & 15)));
    values.extend(bytes.iter().map(|q| value(q >> 4)));
}

/// As [`nibbles`], with the fifth bits of all 32 elements in the four bytes before.
fn fifths(bytes: &[u8], value: impl Fn(u8) -> f32, values: &mut Vec<f32>) {
    let (fifth, quarters) = bytes.split_at(4);
    let fifth = u32::from_le_bytes([fifth[0], fifth[1], fifth[2], fifth[3]]);
    let bit = |at: usize| ((fifth >> at & 1) as u8) << 4;
    let numbered = || quarters.iter().enumerate();
    values.extend(numbered().map(|(at, q)| value(q & 15 | bit(at))));
    values.extend(numbered().map(|(at, q)| value(q >> 4 | bit(at + 16))));
}

/// Six bits each in two halves of 128 elements, with a signed scale for every 16.
fn sixths(block: &[u8], values: &mut Vec<f32>) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, whole) = rest.split_at(16);
    let whole = half(whole);
    for part in 0..2 {
        let (low, high) = (&low[64 * part..][..64], &high[32 * part..][..32]);
        for quarter in 0..4 {
            for at in 0..32 {
                let byte = low[at + 32 * (quarter % 2)];
                let four = if quarter < 2 { byte & 15 } else { byte >> 4 };
                let q = four | (high[at] >> (2 * quarter) & 3) << 4;
                let scale = scales[8 * part + 2 * quarter + at / 16].cast_signed();
                values.push(whole * f32::from(scale) * f32::from(q.cast_signed() - 32));
            }
        }
    }
}

/// The eight scales and offsets of a large block, six bits each in twelve bytes.
struct Scales<'b> {
    scale: f32,
    least: f32,
    packed: &'b [u8],
}

/// The scale and offset of 32 elements.
#[derive(Clone, Copy)]
struct Affine {
    scale: f32,
    least: f32,
}

impl<'b> Scales<'b> {
    fn of(block: &'b [u8]) -> Self {
        Self { scale: half(block), least: half(&block[2..]), packed: &block[4..16] }
    }

    fn at(&self, part: usize) -> Affine {
        let p = self.packed;
        let (scale, least) = if part < 4 {
            (p[part] & 63, p[part + 4] & 63)
        } else {
            let shared = p[part + 4];
            (shared & 15 | p[part - 4] >> 6 << 4, shared >> 4 | p[part] >> 6 << 4)
        };
        Affine { scale: self.scale * f32::from(scale), least: self.least * f32::from(least) }
    }
}

impl Affine {
    fn of(self, q: u8) -> f32 {
        self.scale * f32::from(q) - self.least
    }
}
