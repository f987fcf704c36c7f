//! One payload: a header, the scope as a bitmap, the values, a checksum.
//!
//! ```text
//!  0  magic "FDRA"        8  layout digest      48  examples u64     64  bitmap of the scope
//!  4  version            40  round u32          56  steps u32         .  values in id order
//!  5  kind               44  client u32         60  loss f32          .  CRC-32 of all before
//!  6  encoding
//!  7  zero
//! ```
//!
//! Numbers are little endian. A receiver knows the layout, and the bitmap then gives the one length
//! that an honest payload has, so nothing is allocated on the word of a sender. The checksum finds
//! accidents; whether a sender may be trusted at all is for the transport to say.

use std::ops::Range;

use crc32fast::Hasher;
use fedra_plan::{Digest, Layout, ParamId, Round, Scope, Shape};

use crate::codec;
use crate::encoding::Encoding;
use crate::error::WireError;
use crate::header::{ClientId, Header, Kind};
use crate::tensors::Tensors;

const MAGIC: [u8; 4] = *b"FDRA";
const VERSION: u8 = 1;
const HEADER: usize = 64;
const CHECKSUM: usize = 4;

/// Writes a payload of the given tensors.
///
/// With an encoding that has [feedback](Encoding::feedback), what earlier payloads lost is added
/// first, and `residual` then holds what this one lost; parameters not sent keep their residual.
pub fn encode(
    layout: &Layout,
    header: &Header,
    tensors: &Tensors,
    residual: Option<&mut Tensors>,
) -> Result<Vec<u8>, WireError> {
    let encoding = header.encoding;
    encoding.check()?;
    tensors.check(layout)?;
    if !header.loss.is_finite() {
        return Err(WireError::Loss { found: header.loss });
    }
    let scope = tensors.scope();
    let mut bytes = Vec::with_capacity(payload_length(layout, &scope, encoding));
    bytes.extend(MAGIC);
    bytes.extend([VERSION, header.kind.code(), encoding.code(), 0]);
    bytes.extend(layout.digest().as_bytes());
    bytes.extend(header.round.0.to_le_bytes());
    bytes.extend(header.client.0.to_le_bytes());
    bytes.extend(header.examples.to_le_bytes());
    bytes.extend(header.steps.to_le_bytes());
    bytes.extend(header.loss.to_le_bytes());
    bytes.extend(scope.bitmap(layout)?);

    let mut residual = residual.filter(|_| encoding.feedback());
    for (id, values) in tensors.iter() {
        let shape = *layout.get(id).ok_or(WireError::UnknownParameter { id })?;
        let encoding = encoding.at(id, shape);
        match residual.as_deref_mut() {
            None => codec::write(encoding, (id, shape), values, &mut bytes)?,
            Some(residual) => {
                let owed = residual.or_zeros(id, values.len());
                for (owed, value) in owed.iter_mut().zip(values) {
                    *owed += value;
                }
                let start = bytes.len();
                codec::write(encoding, (id, shape), owed, &mut bytes)?;
                codec::visit(encoding, (id, shape), &bytes[start..], owed, |owed, sent| {
                    *owed -= sent;
                });
            }
        }
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    Ok(bytes)
}

/// What a receiver knows before a payload arrives.
#[derive(Clone, Copy, Debug)]
pub struct Expectation<'receiver> {
    /// The model here.
    pub layout: &'receiver Layout,
    /// What is due.
    pub kind: Kind,
    /// How it should be written.
    pub encoding: Encoding,
    /// The round that is on.
    pub round: Round,
    /// The one it comes from.
    pub client: ClientId,
    /// The part it should carry; `None` takes any part of the layout.
    pub scope: Option<&'receiver Scope>,
}

/// Checks a payload and reads it whole.
pub fn decode(bytes: &[u8], expected: &Expectation<'_>) -> Result<(Header, Tensors), WireError> {
    let opened = open(bytes, expected)?;
    Ok((*opened.header(), opened.tensors()))
}

/// Checks a payload from the first byte to the last, without taking memory for its values.
pub fn open<'bytes>(
    bytes: &'bytes [u8],
    expected: &Expectation<'_>,
) -> Result<Opened<'bytes>, WireError> {
    let layout = expected.layout;
    let bitmap_length = layout.len().div_ceil(8);
    let shortest = HEADER + bitmap_length + CHECKSUM;
    if bytes.len() < shortest {
        return Err(WireError::Length { found: bytes.len(), expected: shortest });
    }
    let found: [u8; 4] = field(bytes, 0);
    if found != MAGIC {
        return Err(WireError::Magic { found, expected: MAGIC });
    }
    let [version, kind, encoding, reserved] = field(bytes, 4);
    if version != VERSION {
        return Err(WireError::Version { found: version, expected: VERSION });
    }
    if Kind::ALL.iter().find(|known| known.code() == kind) != Some(&expected.kind) {
        return Err(WireError::OtherKind { found: kind, expected: expected.kind });
    }
    if encoding != expected.encoding.code() {
        let expected = expected.encoding.code();
        return Err(WireError::OtherEncoding { found: encoding, expected });
    }
    if reserved != 0 {
        return Err(WireError::Reserved { found: reserved });
    }
    let digest = Digest::from_bytes(field(bytes, 8));
    if digest != layout.digest() {
        return Err(WireError::OtherLayout { found: digest, expected: layout.digest() });
    }
    let scope = Scope::from_bitmap(layout, &bytes[HEADER..HEADER + bitmap_length])?;
    let length = payload_length(layout, &scope, expected.encoding);
    if bytes.len() != length {
        return Err(WireError::Length { found: bytes.len(), expected: length });
    }

    let (content, checksum) = bytes.split_at(length - CHECKSUM);
    let (front, mut rest) = content.split_at(HEADER + bitmap_length);
    let mut hasher = Hasher::new();
    hasher.update(front);
    let mut parts = Vec::with_capacity(scope.len());
    let mut values = Ok(());
    for id in &scope {
        let shape = *layout.get(id).ok_or(WireError::UnknownParameter { id })?;
        let encoding = expected.encoding.at(id, shape);
        let (part, after) = rest.split_at(encoding.length(shape));
        rest = after;
        values = values.and(codec::check(encoding, (id, shape), part, &mut hasher));
        parts.push((id, shape, part));
    }
    // A damaged payload is reported as damaged, whatever else its values look like.
    let found = u32::from_le_bytes(field(checksum, 0));
    let computed = hasher.finalize();
    if found != computed {
        return Err(WireError::Checksum { found, expected: computed });
    }
    values?;

    let header = Header {
        kind: expected.kind,
        encoding: expected.encoding,
        round: Round(u32::from_le_bytes(field(bytes, 40))),
        client: ClientId(u32::from_le_bytes(field(bytes, 44))),
        examples: u64::from_le_bytes(field(bytes, 48)),
        steps: u32::from_le_bytes(field(bytes, 56)),
        loss: f32::from_le_bytes(field(bytes, 60)),
    };
    check_claims(&header, &scope, expected)?;
    Ok(Opened { header, scope, parts })
}

/// Holds what an undamaged payload claims against what is due.
fn check_claims(
    header: &Header,
    scope: &Scope,
    expected: &Expectation<'_>,
) -> Result<(), WireError> {
    if header.round != expected.round {
        return Err(WireError::OtherRound { found: header.round, expected: expected.round });
    }
    if header.client != expected.client {
        return Err(WireError::OtherSender { found: header.client, expected: expected.client });
    }
    if !header.loss.is_finite() {
        return Err(WireError::Loss { found: header.loss });
    }
    let Some(due) = expected.scope else {
        return Ok(());
    };
    let stray = (scope - due).iter().next().map(|id| (id, false));
    let missing = (due - scope).iter().next().map(|id| (id, true));
    match stray.into_iter().chain(missing).min() {
        None => Ok(()),
        Some((stray, missing)) => {
            Err(WireError::OtherScope { found: scope.len(), expected: due.len(), stray, missing })
        }
    }
}

/// A payload that passed every check, with its bytes: it need not be checked again when its turn
/// comes.
#[derive(Clone, Debug)]
pub struct Accepted {
    bytes: Vec<u8>,
    header: Header,
    scope: Scope,
    parts: Vec<(ParamId, Shape, Range<usize>)>,
}

impl Accepted {
    /// Checks a payload like [`open`] and keeps it.
    pub fn open(bytes: Vec<u8>, expected: &Expectation<'_>) -> Result<Self, WireError> {
        let Opened { header, scope, parts } = open(&bytes, expected)?;
        let mut end = HEADER + expected.layout.len().div_ceil(8);
        let place = |(id, shape, part): (ParamId, Shape, &[u8])| {
            let start = end;
            end += part.len();
            (id, shape, start..end)
        };
        let parts = parts.into_iter().map(place).collect();
        Ok(Self { bytes, header, scope, parts })
    }

    /// The payload, to be read.
    pub fn opened(&self) -> Opened<'_> {
        let part = |(id, shape, place): &(ParamId, Shape, Range<usize>)| {
            (*id, *shape, &self.bytes[place.clone()])
        };
        let parts = self.parts.iter().map(part).collect();
        Opened { header: self.header, scope: self.scope.clone(), parts }
    }
}

/// A payload that passed every check; its values still lie in the bytes.
#[derive(Clone, Debug)]
pub struct Opened<'bytes> {
    header: Header,
    scope: Scope,
    parts: Vec<(ParamId, Shape, &'bytes [u8])>,
}

impl Opened<'_> {
    /// What the sender claims.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The part of the model that was sent.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The values.
    pub fn tensors(&self) -> Tensors {
        let read = |&(id, shape, bytes): &(ParamId, Shape, &[u8])| {
            let mut values = vec![0.0; shape.elements()];
            let encoding = self.header.encoding.at(id, shape);
            codec::visit(encoding, (id, shape), bytes, &mut values, |place, value| {
                *place = value;
            });
            (id, values)
        };
        self.parts.iter().map(read).collect()
    }

    /// The sum of squares of each parameter, in f64, in id order.
    pub fn squares(&self) -> impl Iterator<Item = (ParamId, f64)> {
        let mut values = Vec::new();
        self.parts.iter().map(move |&(id, shape, bytes)| {
            values.clear();
            values.resize(shape.elements(), 0.0);
            let encoding = self.header.encoding.at(id, shape);
            codec::visit(encoding, (id, shape), bytes, &mut values, |place, value| {
                *place = value;
            });
            (id, values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum())
        })
    }

    /// Adds the values, times the weight, to the sum, straight from the bytes.
    ///
    /// A parameter that the sum lacks starts from zero.
    pub fn add_to(&self, sum: &mut Tensors, weight: f32) {
        for &(id, shape, bytes) in &self.parts {
            let sum = sum.or_zeros(id, shape.elements());
            let encoding = self.header.encoding.at(id, shape);
            codec::visit(encoding, (id, shape), bytes, sum, |place, value| {
                *place += weight * value;
            });
        }
    }
}

/// The exact length of a payload: it depends on nothing but these three.
pub fn payload_length(layout: &Layout, scope: &Scope, encoding: Encoding) -> usize {
    let values = scope
        .iter()
        .filter_map(|id| layout.get(id).map(|shape| encoding.at(id, *shape).length(*shape)));
    let fixed = HEADER + layout.len().div_ceil(8) + CHECKSUM;
    values.fold(fixed, usize::saturating_add)
}

/// The bytes of a field that is known to lie inside.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the caller compared the length with the header's")
}
