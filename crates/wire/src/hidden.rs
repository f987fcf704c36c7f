//! What crosses a cut: rows of hidden states or of their gradients, and how they lie in sequences.
//!
//! A frame carries lengths where others send a mask: positions and masks follow from lengths, so
//! nobody has to send them. It never carries a token id or a label; there is no field for one.
//!
//! ```text
//! offset  size  field
//! 0       4     "FdHs"
//! 4       1     kind
//! 5       1     encoding
//! 6       2     reserved, zero
//! 8       4     step, counted from zero by the client
//! 12      4     sequences: how many lengths follow
//! 16      4     rows
//! 20      4     width
//! 24      8     a number that belongs to the kind (f64)
//! 32      4 s   lengths
//! ..            rows: f32, bf16, or for each row its scale (f32) and one signed byte an element
//! ```

use std::borrow::Cow;

use fedra_plan::Shape;
use serde::{Deserialize, Serialize};

use crate::codec;
use crate::error::WireError;

const MAGIC: [u8; 4] = *b"FdHs";
/// Bytes of a frame before its lengths.
pub const FRAME_HEADER: usize = 32;

/// How the numbers of a row are written; the numbers stand in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowEncoding {
    /// As they are.
    #[default]
    F32 = 0,
    /// The upper half of each.
    Bf16 = 1,
    /// One byte each, in units of the row's largest.
    Int8 = 2,
}

impl RowEncoding {
    /// Bytes of so many rows.
    pub const fn bytes(self, rows: usize, width: usize) -> usize {
        let row = match self {
            Self::F32 => width.saturating_mul(4),
            Self::Bf16 => width.saturating_mul(2),
            Self::Int8 => width.saturating_add(4),
        };
        rows.saturating_mul(row)
    }
}

/// Numbers of rows, as they are at hand: a GPU that computes in bf16 has them so, and a frame in bf16 brings them so.
#[derive(Clone, Debug, PartialEq)]
pub enum RowValues {
    /// In f32.
    F32(Vec<f32>),
    /// In bf16, by their bits.
    Bf16(Vec<u16>),
}

impl RowValues {
    /// How many numbers.
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers in f32.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        match self {
            Self::F32(values) => Cow::Borrowed(values),
            Self::Bf16(values) => {
                Cow::Owned(values.iter().map(|bits| codec::of_bf16_bits(*bits)).collect())
            }
        }
    }

    /// The same, from those in f32 without a copy.
    pub fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F32(values) => values,
            Self::Bf16(_) => self.to_f32().into_owned(),
        }
    }

    /// Whether all of them are finite.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::F32(values) => codec::within(values, f32::MAX).is_ok(),
            Self::Bf16(values) => first_infinite(values).is_none(),
        }
    }
}

impl From<Vec<f32>> for RowValues {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

macro_rules! frame_kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal,)+) => {
        /// What a frame is; the numbers stand in frames.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FrameKind {
            $($(#[$doc])* $kind = $code,)+
        }

        impl FrameKind {
            const ALL: &'static [Self] = &[$(Self::$kind),+];
        }
    };
}

frame_kinds! {
    /// Hidden states into the server's blocks, to be learnt from.
    Forward = 1,
    /// Hidden states into the server's blocks, to be answered only.
    Score = 2,
    /// Hidden states out of the server's blocks.
    Hidden = 3,
    /// The gradient of the loss by what the server answered.
    Backward = 4,
    /// The gradient of the loss by what the client sent; without rows where nothing below learns.
    Gradient = 5,
    /// The number by which the server multiplies its gradient before its step.
    Step = 6,
    /// An answer without rows.
    Done = 7,
    /// Hidden states of a text that is being written, from a position on; every row is wanted back.
    Decode = 8,
    /// The same, of which the last row is wanted back.
    DecodeLast = 9,
    /// Hidden states to be answered only, while the server watches where its blocks look.
    Watch = 10,
    /// The same; the attention of each sequence's last token counts.
    WatchLast = 11,
    /// Hidden states to be answered; a gradient follows that is measured and not learnt from.
    Trace = 12,
    /// Asks what the server saw.
    Ask = 13,
    /// What it saw: a row for each of its blocks, always in f32.
    Told = 14,
}

impl FrameKind {
    /// Whether its rows are whole sequences, whose lengths it has to say.
    const fn has_lengths(self) -> bool {
        matches!(self, Self::Forward | Self::Score | Self::Watch | Self::WatchLast | Self::Trace)
    }

    /// Whether its rows are gradients; hidden states otherwise.
    pub const fn is_gradient(self) -> bool {
        matches!(self, Self::Backward | Self::Gradient)
    }
}

/// A frame in full.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenFrame {
    /// What it is.
    pub kind: FrameKind,
    /// Which exchange it belongs to, or the position of its first row in a text.
    pub step: u32,
    /// The lengths of the sequences, for kinds that bring whole ones.
    pub lengths: Vec<usize>,
    /// Elements of a row.
    pub width: usize,
    /// The rows, one after another.
    pub rows: RowValues,
    /// The squared norm of the server's gradient, the factor of a step, or how many parts of a step follow
    /// this gradient; zero elsewhere.
    pub number: f64,
}

impl HiddenFrame {
    /// Rows of a kind without lengths.
    pub fn of_rows(
        kind: FrameKind,
        step: u32,
        (width, rows): (usize, impl Into<RowValues>),
    ) -> Self {
        Self { kind, step, lengths: Vec::new(), width, rows: rows.into(), number: 0.0 }
    }

    /// A kind that carries one number and no row.
    pub const fn of_number(kind: FrameKind, step: u32, number: f64) -> Self {
        let rows = RowValues::F32(Vec::new());
        Self { kind, step, lengths: Vec::new(), width: 0, rows, number }
    }

    /// The frame as bytes. Refuses numbers that are not finite.
    pub fn encode(&self, encoding: RowEncoding) -> Result<Vec<u8>, WireError> {
        let rows = self.rows.len().checked_div(self.width).unwrap_or(0);
        let count = |what, count: usize| {
            u32::try_from(count)
                .map_err(|_| WireError::frame(what, count, format!("at most {}", u32::MAX)))
        };
        let mut bytes = Vec::with_capacity(
            FRAME_HEADER + 4 * self.lengths.len() + encoding.bytes(rows, self.width),
        );
        bytes.extend(MAGIC);
        bytes.extend([self.kind as u8, encoding as u8, 0, 0]);
        bytes.extend(self.step.to_le_bytes());
        bytes.extend(count("number of sequences", self.lengths.len())?.to_le_bytes());
        bytes.extend(count("number of rows", rows)?.to_le_bytes());
        bytes.extend(count("width of a row", self.width)?.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        for &length in &self.lengths {
            bytes.extend(count("length of sequence", length)?.to_le_bytes());
        }
        let written = match (encoding, &self.rows) {
            (RowEncoding::Bf16, RowValues::Bf16(values)) => {
                let start = bytes.len();
                bytes.resize(start + 2 * values.len(), 0);
                for (place, bits) in bytes[start..].as_chunks_mut().0.iter_mut().zip(values) {
                    *place = bits.to_le_bytes();
                }
                first_infinite(values).map_or(Ok(()), Err)
            }
            (RowEncoding::Bf16, RowValues::F32(values)) => {
                codec::write_plain(values, f32::MAX, &mut bytes, codec::bf16_bytes)
            }
            (RowEncoding::F32, values) => {
                codec::write_plain(&values.to_f32(), f32::MAX, &mut bytes, f32::to_le_bytes)
            }
            (RowEncoding::Int8, values) => {
                let values = values.to_f32();
                codec::within(&values, f32::MAX).map(|()| {
                    let start = bytes.len();
                    bytes.resize(start + encoding.bytes(rows, self.width), 0);
                    let (width, rows) = (self.width, values.chunks(self.width.max(1)));
                    for (row, body) in rows.zip(bytes[start..].chunks_mut(width + 4)) {
                        codec::write_int8(Shape::vector(width), row, body);
                    }
                })
            }
        };
        written.map_err(not_finite)?;
        Ok(bytes)
    }

    /// Reads a frame. Everything that it claims is held against its real length and against what
    /// is expected before any memory is taken for it.
    pub fn decode(bytes: &[u8], expected: &ExpectedFrame<'_>) -> Result<Self, WireError> {
        let head = Head::read(bytes)?;
        head.check(bytes.len(), expected)?;
        let lengths: Vec<usize> = bytes[FRAME_HEADER..FRAME_HEADER + 4 * head.sequences]
            .chunks_exact(4)
            .map(|four| u32_at(four, 0) as usize)
            .collect();
        if head.kind.has_lengths() {
            check_lengths(&lengths, (head.rows, expected.longest))?;
        }
        let body = &bytes[FRAME_HEADER + 4 * head.sequences..];
        let rows = read_rows(body, expected.encoding, head.width);
        let sound = match &rows {
            RowValues::F32(values) => codec::within(values, f32::MAX),
            RowValues::Bf16(values) => first_infinite(values).map_or(Ok(()), Err),
        };
        sound.map_err(not_finite)?;
        let Head { kind, step, width, number, .. } = head;
        Ok(Self { kind, step, lengths, width, rows, number })
    }
}

/// What a frame has to be.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedFrame<'a> {
    /// One of these.
    pub kinds: &'a [FrameKind],
    /// How rows are written.
    pub encoding: RowEncoding,
    /// Which exchange is on, where the frame cannot say it.
    pub step: Option<u32>,
    /// Elements of a row.
    pub width: usize,
    /// How many rows, where that is known; an answer may also have none.
    pub rows: Option<usize>,
    /// Most rows, where it is not.
    pub most_rows: usize,
    /// The longest sequence.
    pub longest: usize,
}

/// The kind of a frame and what its parts take, for whoever counts bytes.
pub fn frame_parts(bytes: &[u8]) -> Option<FrameParts> {
    let head = Head::read(bytes).ok()?;
    let metadata = FRAME_HEADER.checked_add(head.sequences.checked_mul(4)?)?;
    Some(FrameParts { kind: head.kind, metadata, rows: bytes.len().checked_sub(metadata)? })
}

/// What the parts of a frame take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameParts {
    /// What the frame is.
    pub kind: FrameKind,
    /// Bytes of header and lengths.
    pub metadata: usize,
    /// Bytes of rows.
    pub rows: usize,
}

/// The fixed fields.
struct Head {
    kind: FrameKind,
    encoding: u8,
    step: u32,
    sequences: usize,
    rows: usize,
    width: usize,
    number: f64,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < FRAME_HEADER {
            let expected = format!("at least {FRAME_HEADER}");
            return Err(WireError::frame("number of bytes", bytes.len(), expected));
        }
        if bytes[..4] != MAGIC {
            let found = format!("{:02x?}", &bytes[..4]);
            return Err(WireError::frame("start", found, format!("{MAGIC:02x?}")));
        }
        let Some(kind) = FrameKind::ALL.iter().find(|kind| **kind as u8 == bytes[4]).copied()
        else {
            let expected = format!("1 to {}", FrameKind::ALL.len());
            return Err(WireError::frame("kind", bytes[4], expected));
        };
        if bytes[6..8] != [0, 0] {
            let found = format!("{:?}", &bytes[6..8]);
            return Err(WireError::frame("reserved field", found, "zeros"));
        }
        let number = f64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
        if !number.is_finite() {
            return Err(WireError::frame("number", number, "a finite number"));
        }
        Ok(Self {
            kind,
            encoding: bytes[5],
            step: u32_at(bytes, 8),
            sequences: u32_at(bytes, 12) as usize,
            rows: u32_at(bytes, 16) as usize,
            width: u32_at(bytes, 20) as usize,
            number,
        })
    }

    fn check(&self, found: usize, expected: &ExpectedFrame<'_>) -> Result<(), WireError> {
        if !expected.kinds.contains(&self.kind) {
            let name = |kind: &FrameKind| format!("{kind:?}").to_lowercase();
            let kinds: Vec<String> = expected.kinds.iter().map(name).collect();
            return Err(WireError::frame("kind", name(&self.kind), kinds.join(" or ")));
        }
        if self.encoding != expected.encoding as u8 {
            let found = format!("code {}", self.encoding);
            let due = format!("{:?}", expected.encoding).to_lowercase();
            return Err(WireError::frame("encoding", found, due));
        }
        if let Some(step) = expected.step.filter(|step| *step != self.step) {
            return Err(WireError::frame("step", self.step, step));
        }
        if self.rows > 0 && self.width != expected.width {
            return Err(WireError::frame("width of a row", self.width, expected.width));
        }
        match expected.rows {
            Some(rows) if self.rows != rows && self.rows != 0 => {
                return Err(WireError::frame("number of rows", self.rows, rows));
            }
            None if self.rows > expected.most_rows => {
                let most = format!("at most {}", expected.most_rows);
                return Err(WireError::frame("number of rows", self.rows, most));
            }
            Some(_) | None => {}
        }
        if self.sequences > self.rows {
            let most = format!("at most {}, the rows", self.rows);
            return Err(WireError::frame("number of sequences", self.sequences, most));
        }
        let body = expected.encoding.bytes(self.rows, self.width);
        let length = (FRAME_HEADER + 4 * self.sequences).saturating_add(body);
        if found != length {
            return Err(WireError::frame("number of bytes", found, length));
        }
        Ok(())
    }
}

fn check_lengths(lengths: &[usize], (rows, longest): (usize, usize)) -> Result<(), WireError> {
    if lengths.is_empty() {
        return Err(WireError::frame("number of sequences", 0, "at least 1"));
    }
    if let Some(length) = lengths.iter().find(|length| !(1..=longest).contains(*length)) {
        return Err(WireError::frame("length of sequence", length, format!("1 to {longest}")));
    }
    let sum: usize = lengths.iter().sum();
    if sum != rows {
        return Err(WireError::frame("sum of lengths", sum, format!("{rows}, the rows")));
    }
    Ok(())
}

fn not_finite(found: f32) -> WireError {
    WireError::frame("value", found, "finite numbers")
}

/// The first number that is none.
fn first_infinite(values: &[u16]) -> Option<f32> {
    const EXPONENT: u16 = 0x7f80;
    // The largest first: a search that stops at the first looks at one value at a time.
    let largest = values.iter().fold(0, |most, bits| most.max(bits & EXPONENT));
    let is_none = |bits: &&u16| *bits & EXPONENT == EXPONENT;
    let first = (largest == EXPONENT).then(|| values.iter().find(is_none)).flatten();
    first.map(|bits| codec::of_bf16_bits(*bits))
}

fn read_rows(body: &[u8], encoding: RowEncoding, width: usize) -> RowValues {
    RowValues::F32(match encoding {
        RowEncoding::F32 => {
            body.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
        }
        RowEncoding::Bf16 => {
            let bits = body.as_chunks().0.iter().map(|two| u16::from_le_bytes(*two));
            return RowValues::Bf16(bits.collect());
        }
        RowEncoding::Int8 => {
            let mut rows = Vec::with_capacity(body.len());
            for row in body.chunks_exact(width + 4) {
                let scale = f32::from_le_bytes(row[..4].try_into().expect("four bytes"));
                rows.extend(row[4..].iter().map(|byte| f32::from(byte.cast_signed()) * scale));
            }
            rows
        }
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward() -> HiddenFrame {
        let rows = vec![1.0, -2.0, 0.5, 3.0, 0.0, 0.0].into();
        let (kind, lengths) = (FrameKind::Forward, vec![2, 1]);
        HiddenFrame { kind, step: 7, lengths, width: 2, rows, number: 0.0 }
    }

    fn expected(encoding: RowEncoding) -> ExpectedFrame<'static> {
        let kinds = &[FrameKind::Forward];
        let (rows, most_rows, longest) = (None, 100, 4);
        ExpectedFrame { kinds, encoding, step: Some(7), width: 2, rows, most_rows, longest }
    }

    #[test]
    fn a_frame_comes_back_exactly_in_f32_and_nearly_in_fewer_bytes() {
        let frame = forward();
        for (encoding, error) in
            [(RowEncoding::F32, 0.0), (RowEncoding::Bf16, 0.0), (RowEncoding::Int8, 3.0 / 254.0)]
        {
            let bytes = frame.encode(encoding).unwrap();
            assert_eq!(bytes.len(), FRAME_HEADER + 8 + encoding.bytes(3, 2));
            let back = HiddenFrame::decode(&bytes, &expected(encoding)).unwrap();
            assert_eq!(back.lengths, [2, 1]);
            for (left, right) in back.rows.to_f32().iter().zip(&*frame.rows.to_f32()) {
                assert!((left - right).abs() <= error, "{encoding:?}: {left} and {right}");
            }
        }
    }

    #[test]
    fn rows_that_are_bf16_make_the_same_frames_as_in_f32() {
        let narrow = RowValues::Bf16([1.0_f32, -2.0, 0.5, 3.0, 0.0, 0.0].map(bits).to_vec());
        let frame = HiddenFrame { rows: narrow.clone(), ..forward() };
        for encoding in [RowEncoding::F32, RowEncoding::Bf16, RowEncoding::Int8] {
            assert_eq!(frame.encode(encoding).unwrap(), forward().encode(encoding).unwrap());
        }
        let bytes = frame.encode(RowEncoding::Bf16).unwrap();
        let back = HiddenFrame::decode(&bytes, &expected(RowEncoding::Bf16)).unwrap();
        assert_eq!(back.rows, narrow);
        for none in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let rows = RowValues::Bf16(vec![0, bits(none), bits(1.0)]);
            assert!(!rows.is_finite());
            let frame = HiddenFrame { rows, ..forward() };
            assert!(frame.encode(RowEncoding::Bf16).is_err(), "{none}");
            let mut bytes = bytes.clone();
            let end = bytes.len();
            bytes[end - 2..].copy_from_slice(&bits(none).to_le_bytes());
            assert!(HiddenFrame::decode(&bytes, &expected(RowEncoding::Bf16)).is_err(), "{none}");
        }
    }

    fn bits(value: f32) -> u16 {
        (value.to_bits() >> 16) as u16
    }

    #[test]
    fn what_a_frame_claims_is_held_against_its_bytes_and_what_is_expected() {
        let good = forward().encode(RowEncoding::F32).unwrap();
        let check = |at: usize, value: u32, message: &str| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let found = HiddenFrame::decode(&bytes, &expected(RowEncoding::F32)).unwrap_err();
            assert_eq!(found.to_string(), message);
        };
        check(8, 6, "a frame: step is 6, expected 7");
        check(12, 9, "a frame: number of sequences is 9, expected at most 3, the rows");
        check(12, 0, "a frame: number of bytes is 64, expected 56");
        check(16, 4_000_000, "a frame: number of rows is 4000000, expected at most 100");
        check(16, 2, "a frame: number of bytes is 64, expected 56");
        check(20, 3, "a frame: width of a row is 3, expected 2");
        check(32, 0, "a frame: length of sequence is 0, expected 1 to 4");
        check(32, 5, "a frame: length of sequence is 5, expected 1 to 4");
        check(32, 3, "a frame: sum of lengths is 4, expected 3, the rows");
        check(40, f32::NAN.to_bits(), "a frame: value is NaN, expected finite numbers");
        check(0, 0, "a frame: start is [00, 00, 00, 00], expected [46, 64, 48, 73]");
        for length in 0..good.len() {
            assert!(HiddenFrame::decode(&good[..length], &expected(RowEncoding::F32)).is_err());
        }
    }

    #[test]
    fn numbers_that_are_not_finite_never_leave() {
        let mut rows = forward().rows.into_f32();
        rows[3] = f32::INFINITY;
        assert!(!RowValues::F32(rows.clone()).is_finite());
        let frame = HiddenFrame { rows: rows.into(), ..forward() };
        assert!(frame.encode(RowEncoding::F32).is_err());
    }
}
