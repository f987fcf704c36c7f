//! The compact protocol of Thrift, as much of it as Parquet's metadata needs.
//!
//! A structure is read by calling back with the number and kind of each field; whatever the caller
//! does not know is skipped. Nothing is kept here, and nesting has a bound, so the memory and the
//! stack a header can cost are those of what the caller decides to keep.

use super::bytes::{Bytes, Read, complaint};

/// Metadata nests five deep; more than this is not Parquet.
const DEEPEST: usize = 16;

/// The kind of a value on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    True,
    False,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Structure,
}

impl Kind {
    fn of(nibble: u8) -> Read<Self> {
        match nibble {
            1 => Ok(Self::True),
            2 => Ok(Self::False),
            3 => Ok(Self::Byte),
            4..=6 => Ok(Self::Integer),
            7 => Ok(Self::Double),
            8 => Ok(Self::Binary),
            9 | 10 => Ok(Self::List),
            11 => Ok(Self::Map),
            12 => Ok(Self::Structure),
            other => Err(complaint(format!("a field of kind {other}"), "a Thrift structure")),
        }
    }
}

/// Reads a structure: calls back for each field, which must then be read or skipped.
pub(super) fn structure(
    bytes: &mut Bytes,
    mut field: impl FnMut(&mut Bytes, i64, Kind) -> Read<()>,
) -> Read<()> {
    let mut id = 0_i64;
    loop {
        let head = bytes.byte()?;
        if head == 0 {
            return Ok(());
        }
        id = match head >> 4 {
            0 => bytes.zigzag()?,
            step => id.saturating_add(i64::from(step)),
        };
        field(bytes, id, Kind::of(head & 0x0f)?)?;
    }
}

/// Reads a list of structures: calls back once for each.
pub(super) fn structures(
    bytes: &mut Bytes,
    kind: Kind,
    mut element: impl FnMut(&mut Bytes) -> Read<()>,
) -> Read<()> {
    expect(kind, Kind::List)?;
    let (count, kind) = list_head(bytes)?;
    expect(kind, Kind::Structure)?;
    for _ in 0..count {
        element(bytes)?;
    }
    Ok(())
}

/// A whole number of any width.
pub(super) fn integer(bytes: &mut Bytes, kind: Kind) -> Read<i64> {
    match kind {
        Kind::Byte => Ok(i64::from(bytes.byte()?.cast_signed())),
        Kind::Integer => bytes.zigzag(),
        Kind::True
        | Kind::False
        | Kind::Double
        | Kind::Binary
        | Kind::List
        | Kind::Map
        | Kind::Structure => Err(unlike(kind, Kind::Integer)),
    }
}

/// A truth value, which stands in the kind itself.
pub(super) fn truth(kind: Kind) -> Read<bool> {
    if kind == Kind::False {
        return Ok(false);
    }
    expect(kind, Kind::True).map(|()| true)
}

/// A text.
pub(super) fn text(bytes: &mut Bytes, kind: Kind) -> Read<String> {
    expect(kind, Kind::Binary)?;
    let length = usize::try_from(bytes.varint()?).unwrap_or(usize::MAX);
    let text = bytes.take(length)?;
    let text = std::str::from_utf8(text).map_err(|_| complaint("a name", "UTF-8"))?;
    Ok(text.to_owned())
}

/// Passes over a value.
pub(super) fn skip(bytes: &mut Bytes, kind: Kind) -> Read<()> {
    skip_within(bytes, kind, DEEPEST)
}

fn skip_within(bytes: &mut Bytes, kind: Kind, deepest: usize) -> Read<()> {
    if deepest == 0 {
        let expected = format!("at most {DEEPEST} structures inside each other");
        return Err(complaint("deeper nesting", expected));
    }
    match kind {
        Kind::True | Kind::False => {}
        Kind::Byte => drop(bytes.byte()?),
        Kind::Integer => drop(bytes.varint()?),
        Kind::Double => drop(bytes.take(8)?),
        Kind::Binary => {
            let length = usize::try_from(bytes.varint()?).unwrap_or(usize::MAX);
            bytes.take(length)?;
        }
        Kind::List => {
            let (count, kind) = list_head(bytes)?;
            for _ in 0..count {
                skip_element(bytes, kind, deepest - 1)?;
            }
        }
        Kind::Map => {
            let count = bytes.varint()?;
            if count > 0 {
                let kinds = bytes.byte()?;
                let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 0x0f)?);
                for _ in 0..count {
                    skip_element(bytes, key, deepest - 1)?;
                    skip_element(bytes, value, deepest - 1)?;
                }
            }
        }
        Kind::Structure => {
            structure(bytes, |bytes, _, kind| skip_within(bytes, kind, deepest - 1))?;
        }
    }
    Ok(())
}

/// In a list or map a truth value takes a byte, so that every element takes at least one and a
/// claimed count ends with the bytes.
fn skip_element(bytes: &mut Bytes, kind: Kind, deepest: usize) -> Read<()> {
    match kind {
        Kind::True | Kind::False => bytes.byte().map(drop),
        Kind::Byte
        | Kind::Integer
        | Kind::Double
        | Kind::Binary
        | Kind::List
        | Kind::Map
        | Kind::Structure => skip_within(bytes, kind, deepest),
    }
}

fn list_head(bytes: &mut Bytes) -> Read<(u64, Kind)> {
    let head = bytes.byte()?;
    let count = match head >> 4 {
        15 => bytes.varint()?,
        small => u64::from(small),
    };
    Ok((count, Kind::of(head & 0x0f)?))
}

fn expect(found: Kind, expected: Kind) -> Read<()> {
    if found == expected { Ok(()) } else { Err(unlike(found, expected)) }
}

fn unlike(found: Kind, expected: Kind) -> (String, String) {
    complaint(format!("a field of kind {found:?}"), format!("one of kind {expected:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_every_kind_are_passed_over() {
        let known = [0x15, 0x0e]; // Field 1 is 7.
        let unknown: [&[u8]; 5] = [
            &[0x11],                                  // Field 2 is true.
            &[0x18, 2, b'a', b'b'],                   // Field 3 is a text.
            &[0x19, 0x25, 2, 4],                      // Field 4 is a list of two numbers.
            &[0x1b, 1, 0x85, 1, b'k', 3],             // Field 5 maps a text to a number.
            &[0x1c, 0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0], // Field 6 holds a double.
        ];
        let last = [0x05, 0x28, 0x09]; // Field 20, spelt out, is -5.
        let mut bytes = Bytes::new([&known[..], &unknown.concat(), &last, &[0]].concat());
        let mut seen = Vec::new();
        structure(&mut bytes, |bytes, id, kind| {
            if id == 1 || id == 20 {
                seen.push(integer(bytes, kind)?);
                return Ok(());
            }
            skip(bytes, kind)
        })
        .unwrap();
        assert_eq!(seen, [7, -5]);
        assert!(bytes.is_empty());
    }

    #[test]
    fn endless_nesting_and_endless_lists_end_in_a_complaint() {
        let mut deep = Bytes::new(vec![0x1c; 100_000]);
        assert_eq!(skip(&mut deep, Kind::Structure).unwrap_err().0, "deeper nesting");
        let mut long = Bytes::new(vec![0xf1, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert!(skip(&mut long, Kind::List).is_err());
    }
}
