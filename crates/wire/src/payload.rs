//! One payload: a header, the scope as a bitmap, the values, a checksum.
//!
//! ```text
//!  0  magic "FDRA"        8  layout digest      48  examples u64     64  bitmap of the scope
//!  4  version            40  round u32          56  steps u32         .  zeros up to a whole line
//!  5  kind               44  client u32         60  loss f32          .  values in id order
//!  6  encoding                                                        .  checksum of all before
//!  7  zero
//! ```
//!
//! A loss that is not told is the NaN of [`UNTOLD`]; before version 3 it was zero, and such payloads are still read.
//! Numbers are little endian. A line is 32 bytes, the unit of the checksum
//! ([`crate::kernels::Lanes`]): with the values on a line of their own, one pass can take their
//! checksum and do what else there is to do with them. A receiver knows the layout, and the bitmap
//! then gives the one length that an honest payload has, so nothing is allocated on the word of a
//! sender. The checksum finds accidents; whether a sender may be trusted at all is for the
//! transport to say.

use std::borrow::Cow;
use std::ops::Range;

use crate::kernels::{Excess, Inspected, LIMIT, Lanes};
use fedra_plan::{Digest, Layout, ParamId, Round, Scope, Shape};

use crate::codec;
use crate::encoding::Encoding;
use crate::error::WireError;
use crate::header::Header;
use crate::id::{ClientId, Kind};
use crate::numbers::to_bytes;
use crate::param_values::ParamValues;

const MAGIC: [u8; 4] = *b"FDRA";
const VERSION: u8 = 3;
/// The version in which a loss of zero was none.
const ZERO_IS_UNTOLD: u8 = 2;
/// What stands in the place of a loss that is not told.
const UNTOLD: u32 = 0x7fc0_0000;
const HEADER: usize = 64;
const LINE: usize = 32;
const CHECKSUM: usize = 8;

/// Writes a payload of the given tensors.
///
/// With an encoding that has [feedback](Encoding::feedback), what earlier payloads lost is added
/// first, and `residual` then holds what this one lost; parameters not sent keep their residual.
pub fn encode(
    layout: &Layout,
    header: &Header,
    tensors: &ParamValues,
    residual: Option<&mut ParamValues>,
) -> Result<Vec<u8>, WireError> {
    tensors.check(layout)?;
    write((layout, header), &tensors.scope(), tensors.iter(), residual)
}

/// The same of tensors that nobody else needs: each is let go once it is written.
pub fn encode_owned(
    layout: &Layout,
    header: &Header,
    tensors: ParamValues,
    residual: Option<&mut ParamValues>,
) -> Result<Vec<u8>, WireError> {
    tensors.check(layout)?;
    write((layout, header), &tensors.scope(), tensors.into_iter(), residual)
}

/// The same of a part of them; what they lack goes as zeros.
pub fn encode_part(
    layout: &Layout,
    header: &Header,
    tensors: &ParamValues,
    scope: &Scope,
) -> Result<Vec<u8>, WireError> {
    tensors.check(layout)?;
    let zeros = |id| vec![0.0; layout.get(id).map_or(0, Shape::elements)];
    let part = scope.iter().map(|id| {
        let values = tensors.get(id).map_or_else(|| Cow::Owned(zeros(id)), Cow::Borrowed);
        (id, values)
    });
    write((layout, header), scope, part, None)
}

/// The same of values in f32 that somebody puts where they are to lie, as little-endian bytes: of each parameter of the
/// scope in its turn, over zeros.
pub fn encode_in_place<E: From<WireError>>(
    (layout, header): (&Layout, &Header),
    scope: &Scope,
    mut put: impl FnMut(ParamId, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let header = &Header { encoding: Encoding::F32, ..*header };
    let front = front((layout, header), scope)?;
    let parts = parts(layout, scope, header.encoding)?;
    let end = parts.last().map_or(front.len(), |(_, _, place)| place.end);
    let mut bytes = vec![0; end + CHECKSUM];
    bytes[..front.len()].copy_from_slice(&front);
    for (id, _, place) in &parts {
        put(*id, &mut bytes[place.clone()])?;
    }
    let Inspected { lanes, excess } = crate::kernels::inspect(&bytes[front.len()..end]);
    refuse_excess(excess, (front.len(), &parts))?;
    let checksum = crate::kernels::lanes(&front).then(lanes).finish();
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

fn write<V: AsRef<[f32]>>(
    (layout, header): (&Layout, &Header),
    scope: &Scope,
    mut tensors: impl Iterator<Item = (ParamId, V)>,
    residual: Option<&mut ParamValues>,
) -> Result<Vec<u8>, WireError> {
    let encoding = header.encoding;
    if encoding == Encoding::F32 {
        // Both are in the order of ids.
        return encode_in_place((layout, header), scope, |id, into| {
            let next = tensors.next().filter(|(next, _)| *next == id);
            let (_, values) = next.ok_or(WireError::UnknownParameter { id })?;
            crate::kernels::store(values.as_ref(), into);
            Ok(())
        });
    }
    let mut bytes = Vec::with_capacity(payload_length(layout, scope, encoding));
    bytes.extend(front((layout, header), scope)?);

    let mut residual = residual.filter(|_| encoding.feedback());
    for (id, values) in tensors {
        let values = values.as_ref();
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
    bytes.extend(crate::kernels::checksum(&bytes).to_le_bytes());
    Ok(bytes)
}

/// Lets the front and the values of a payload be edited where they lie, and seals it anew.
///
/// For whoever needs many payloads and has memory for one: nothing is checked, as nothing is when
/// a sender writes what it likes.
pub fn rewrite(
    payload: &mut [u8],
    layout: &Layout,
    edit: impl FnOnce(&mut [u8], &mut [u8]),
) -> Result<(), WireError> {
    let (found, start) = (payload.len(), front_length(layout));
    let length = || WireError::length(found, start + CHECKSUM);
    let (content, checksum) = payload.split_last_chunk_mut::<CHECKSUM>().ok_or_else(length)?;
    let (front, values) = content.split_at_mut_checked(start).ok_or_else(length)?;
    edit(front, values);
    *checksum = crate::kernels::checksum(content).to_le_bytes();
    Ok(())
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

impl<'receiver> Expectation<'receiver> {
    /// A payload that begins with this header, whatever part of the layout it carries.
    pub const fn of(layout: &'receiver Layout, header: &Header) -> Self {
        let Header { kind, encoding, round, client, .. } = *header;
        Self { layout, kind, encoding, round, client, scope: None }
    }
}

/// Checks a payload and reads it whole.
pub fn decode(
    bytes: &[u8],
    expected: &Expectation<'_>,
) -> Result<(Header, ParamValues), WireError> {
    let opened = open(bytes, expected)?;
    Ok((opened.header, opened.tensors()))
}

/// Checks a payload from the first byte to the last, without taking memory for its values.
pub fn open<B: AsRef<[u8]>>(bytes: B, expected: &Expectation<'_>) -> Result<Opened<B>, WireError> {
    let Front { header, scope, parts, .. } = check(bytes.as_ref(), expected)?;
    Ok(Opened { bytes, header, scope, parts })
}

/// Refuses a payload with anything wrong about it.
pub(crate) fn check(bytes: &[u8], expected: &Expectation<'_>) -> Result<Front, WireError> {
    let front = Front::read(bytes, expected)?;
    let values = &bytes[front.values.clone()];
    let (lanes, sound) = if expected.encoding == Encoding::F32 {
        let inspected = crate::kernels::inspect(values);
        (inspected.lanes, front.refuse_excess(inspected.excess))
    } else {
        let legal = |(id, shape, place): &Part| {
            let encoding = expected.encoding.at(*id, *shape);
            codec::check(encoding, (*id, *shape), &bytes[place.clone()])
        };
        (crate::kernels::lanes(values), front.parts.iter().try_for_each(legal))
    };
    // A damaged payload is reported as damaged, whatever else its values or claims look like.
    front.refuse_damage(bytes, lanes)?;
    sound?;
    front.check_claims(expected)?;
    Ok(front)
}

/// A parameter and the place of its bytes in a payload.
pub(crate) type Part = (ParamId, Shape, Range<usize>);

/// All that stands before the values, in a payload whose length is right. Until the checksum is
/// known these are words of somebody who may have been misheard.
pub(crate) struct Front {
    pub(crate) header: Header,
    pub(crate) scope: Scope,
    pub(crate) parts: Vec<Part>,
    pub(crate) values: Range<usize>,
}

impl Front {
    pub(crate) fn read(bytes: &[u8], expected: &Expectation<'_>) -> Result<Self, WireError> {
        let layout = expected.layout;
        let start = front_length(layout);
        let shortest = start + CHECKSUM;
        if bytes.len() < shortest {
            return Err(WireError::length(bytes.len(), shortest));
        }
        let found: [u8; 4] = field(bytes, 0);
        if found != MAGIC {
            let [found, expected] = [found, MAGIC].map(|start| format!("{start:02x?}"));
            return Err(WireError::payload("start", found, expected));
        }
        let [version, kind, encoding, reserved] = field(bytes, 4);
        if ![ZERO_IS_UNTOLD, VERSION].contains(&version) {
            return Err(WireError::payload("format version", version, VERSION));
        }
        if kind != expected.kind as u8 {
            let name = format!("{:?}", expected.kind).to_lowercase();
            let due = format!("{} ({name})", expected.kind as u8);
            return Err(WireError::payload("kind", kind, due));
        }
        if encoding != expected.encoding.code() {
            let due = format!("{} ({})", expected.encoding.code(), expected.encoding);
            return Err(WireError::payload("encoding", encoding, due));
        }
        let (bitmap, zeros) = bytes[HEADER..start].split_at(layout.len().div_ceil(8));
        if let Some(&found) = zeros.iter().chain([&reserved]).find(|byte| **byte != 0) {
            return Err(WireError::reserved(found));
        }
        let digest = Digest::from_bytes(field(bytes, 8));
        if digest != layout.digest() {
            return Err(WireError::payload("layout", digest, layout.digest()));
        }
        let scope = Scope::from_bitmap(layout, bitmap)?;
        let length = payload_length(layout, &scope, expected.encoding);
        if bytes.len() != length {
            return Err(WireError::length(bytes.len(), length));
        }
        let parts = parts(layout, &scope, expected.encoding)?;
        let header = Header {
            kind: expected.kind,
            encoding: expected.encoding,
            round: Round(u32::from_le_bytes(field(bytes, 40))),
            client: ClientId(u32::from_le_bytes(field(bytes, 44))),
            examples: u64::from_le_bytes(field(bytes, 48)),
            steps: u32::from_le_bytes(field(bytes, 56)),
            loss: loss_of(version, u32::from_le_bytes(field(bytes, 60))),
        };
        Ok(Self { header, scope, parts, values: start..length - CHECKSUM })
    }

    /// Holds the checksum against the front, which is hashed here, and the sums of the values.
    pub(crate) fn refuse_damage(&self, bytes: &[u8], values: Lanes) -> Result<(), WireError> {
        let found = u64::from_le_bytes(field(bytes, self.values.end));
        let expected = crate::kernels::lanes(&bytes[..self.values.start]).then(values).finish();
        if found == expected {
            return Ok(());
        }
        let [found, expected] = [found, expected].map(|sum| format!("{sum:016x}"));
        Err(WireError::payload("checksum", found, expected))
    }

    /// Names the parameter of a number that must not be summed.
    pub(crate) fn refuse_excess(&self, excess: Option<Excess>) -> Result<(), WireError> {
        refuse_excess(excess, (self.values.start, &self.parts))
    }

    /// Holds what is claimed against what is due.
    pub(crate) fn check_claims(&self, expected: &Expectation<'_>) -> Result<(), WireError> {
        let Self { header, scope, .. } = self;
        if header.round != expected.round {
            return Err(WireError::payload("round", header.round, expected.round));
        }
        if header.client != expected.client {
            let sender = (header.client, expected.client);
            return Err(WireError::payload("sender in the header", sender.0, sender.1));
        }
        check_loss(header.loss)?;
        let Some(due) = expected.scope else {
            return Ok(());
        };
        let stray = (scope - due).iter().next().map(|id| (id, false));
        let missing = (due - scope).iter().next().map(|id| (id, true));
        match stray.into_iter().chain(missing).min() {
            None => Ok(()),
            Some((stray, missing)) => {
                let how = if missing { "without" } else { "and with them" };
                let found = format!("{}, {how} {stray}", scope.len());
                Err(WireError::payload("number of parameters", found, due.len()))
            }
        }
    }
}

/// A payload that passed every check, with its bytes, its own or borrowed: it need not be checked again
/// when its turn comes. Its values still lie in the bytes.
#[derive(Clone, Debug)]
pub struct Opened<B = Vec<u8>> {
    /// The payload itself.
    pub bytes: B,
    /// What the sender claims.
    pub header: Header,
    /// The part of the model that was sent.
    pub scope: Scope,
    pub(crate) parts: Vec<Part>,
}

impl<B: AsRef<[u8]>> Opened<B> {
    /// Each parameter with its bytes.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (ParamId, Shape, &[u8])> {
        let bytes = self.bytes.as_ref();
        self.parts.iter().map(move |(id, shape, place)| (*id, *shape, &bytes[place.clone()]))
    }

    /// The values.
    pub fn tensors(&self) -> ParamValues {
        self.iter().collect()
    }

    /// The values of each parameter, in id order, read when their turn comes.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, Vec<f32>)> {
        self.parts().map(|part| (part.0, values(self.header.encoding, part)))
    }

    /// The Euclidean norm of all values.
    pub fn norm(&self) -> f64 {
        if self.header.encoding == Encoding::F32 {
            let values = self.parts.first().zip(self.parts.last());
            let values = values.map_or(0..0, |(first, last)| first.2.start..last.2.end);
            return crate::kernels::squares(&self.bytes.as_ref()[values]).sqrt();
        }
        self.squares().map(|(_, squares)| squares).sum::<f64>().sqrt()
    }

    /// The values of each parameter as bytes of f32, in id order, where they lie if they are such already.
    pub fn plain(&self) -> impl Iterator<Item = (ParamId, Cow<'_, [u8]>)> {
        let encoding = self.header.encoding;
        self.parts().map(move |part| {
            if encoding == Encoding::F32 {
                (part.0, Cow::Borrowed(part.2))
            } else {
                (part.0, Cow::Owned(to_bytes(&values(encoding, part))))
            }
        })
    }

    /// The sum of squares of each parameter, in f64, in id order.
    pub fn squares(&self) -> impl Iterator<Item = (ParamId, f64)> {
        self.iter().map(|(id, values)| (id, square_in_turn(&values)))
    }
}

// What is generic over the bytes is compiled where it is used, perhaps without optimisation: it only hands them on.

fn square_in_turn(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
}

fn values(encoding: Encoding, (id, shape, bytes): (ParamId, Shape, &[u8])) -> Vec<f32> {
    let mut values = vec![0.0; shape.elements()];
    let encoding = encoding.at(id, shape);
    codec::visit(encoding, (id, shape), bytes, &mut values, |place, value| *place = value);
    values
}

/// Refuses a loss that is no number.
fn check_loss(loss: Option<f32>) -> Result<(), WireError> {
    match loss.filter(|loss| !loss.is_finite()) {
        None => Ok(()),
        Some(found) => Err(WireError::Loss { found }),
    }
}

/// The loss that these bits are in a payload of this version; absent where it is not told.
fn loss_of(version: u8, bits: u32) -> Option<f32> {
    let untold = if version == ZERO_IS_UNTOLD { 0.0_f32.to_bits() } else { UNTOLD };
    (bits != untold).then(|| f32::from_bits(bits))
}

/// The exact length of a payload: it depends on nothing but these three.
pub fn payload_length(layout: &Layout, scope: &Scope, encoding: Encoding) -> usize {
    let values = scope
        .iter()
        .filter_map(|id| layout.get(id).map(|shape| encoding.at(id, *shape).length(*shape)));
    values.fold(front_length(layout) + CHECKSUM, usize::saturating_add)
}

/// What stands before the values.
fn front((layout, header): (&Layout, &Header), scope: &Scope) -> Result<Vec<u8>, WireError> {
    header.encoding.check()?;
    check_loss(header.loss)?;
    let mut bytes = Vec::with_capacity(front_length(layout));
    bytes.extend(MAGIC);
    bytes.extend([VERSION, header.kind as u8, header.encoding.code(), 0]);
    bytes.extend(layout.digest().as_bytes());
    bytes.extend(header.round.0.to_le_bytes());
    bytes.extend(header.client.0.to_le_bytes());
    bytes.extend(header.examples.to_le_bytes());
    bytes.extend(header.steps.to_le_bytes());
    bytes.extend(header.loss.map_or(UNTOLD, f32::to_bits).to_le_bytes());
    bytes.extend(scope.bitmap(layout)?);
    bytes.resize(front_length(layout), 0);
    Ok(bytes)
}

/// Where the values of each parameter lie.
fn parts(layout: &Layout, scope: &Scope, encoding: Encoding) -> Result<Vec<Part>, WireError> {
    let mut end = front_length(layout);
    let place = |id| {
        let shape = *layout.get(id).ok_or(WireError::UnknownParameter { id })?;
        let from = end;
        end += encoding.at(id, shape).length(shape);
        Ok((id, shape, from..end))
    };
    scope.iter().map(place).collect()
}

/// Names the parameter of a number, among values in f32 that start there, that must not be summed.
fn refuse_excess(
    excess: Option<Excess>,
    (start, parts): (usize, &[Part]),
) -> Result<(), WireError> {
    let Some(excess) = excess else {
        return Ok(());
    };
    let place = start + excess.index * 4;
    let owner = parts.iter().find(|(_, _, part)| part.contains(&place));
    let &(id, ..) = owner.expect("the parts cover all values");
    Err(WireError::Magnitude { id, found: excess.value, limit: LIMIT })
}

/// The length of what stands before the values: header, bitmap, zeros.
fn front_length(layout: &Layout) -> usize {
    (HEADER + layout.len().div_ceil(8)).next_multiple_of(LINE)
}

/// The bytes of a field that is known to lie inside.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the caller compared the length with the header's")
}
