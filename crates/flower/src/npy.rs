//! NumPy's file format, one array without pickles: what the arrays of a SuperLink are made of.

/// The first bytes of a file of version 1.
const MAGIC: &[u8] = b"\x93NUMPY";
/// Data begin at a multiple of it.
const ALIGNED: usize = 64;

/// What a file says of its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// As NumPy writes it: `<f4` or `|u1`.
    pub(crate) kind: String,
    pub(crate) shape: Vec<usize>,
}

impl Header {
    pub(crate) fn new(kind: &str, shape: &[usize]) -> Self {
        Self { kind: kind.to_owned(), shape: shape.to_vec() }
    }

    /// The bytes before the data.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let shape = match &self.shape[..] {
            [one] => format!("({one},)"),
            many => {
                let many: Vec<String> = many.iter().map(ToString::to_string).collect();
                format!("({})", many.join(", "))
            }
        };
        let mut text =
            format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", self.kind);
        let before = MAGIC.len() + 4;
        let whole = (before + text.len() + 1).next_multiple_of(ALIGNED);
        text.extend(std::iter::repeat_n(' ', whole - before - text.len() - 1));
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[1, 0]);
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    /// The header at the beginning of a file, and where the data begin.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, usize), String> {
        let wrong = |what: &str| format!("found {what}, expected an array in NumPy's format");
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("another first line"))?;
        let (at, length) = match rest {
            [1, _, low, high, ..] => (10, usize::from(u16::from_le_bytes([*low, *high]))),
            [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
            _ => return Err(wrong("an unknown version")),
        };
        let text = bytes.get(at..).and_then(|rest| rest.get(..length));
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        let text = text.ok_or_else(|| wrong("a header that is cut short or no text"))?;
        let kind = quoted(text, "descr").ok_or_else(|| wrong("no 'descr'"))?;
        let fortran = after(text, "fortran_order").ok_or_else(|| wrong("no 'fortran_order'"))?;
        if !fortran.starts_with("False") {
            return Err(wrong("columns first, and not rows"));
        }
        let shape = after(text, "shape").and_then(|rest| rest.strip_prefix('('));
        let (shape, _) =
            shape.and_then(|rest| rest.split_once(')')).ok_or_else(|| wrong("no 'shape'"))?;
        let sides = shape.split(',').map(str::trim).filter(|side| !side.is_empty());
        let shape: Result<Vec<usize>, _> = sides.map(str::parse).collect();
        let shape = shape.map_err(|_| wrong("a shape that is no numbers"))?;
        Ok((Self { kind: kind.to_owned(), shape }, at + length))
    }
}

/// What follows a key of a Python dictionary.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

fn quoted<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (value, _) = after(text, key)?.strip_prefix('\'')?.split_once('\'')?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_is_aligned() {
        for shape in [&[][..], &[3], &[2, 5], &[usize::MAX, 4, 5, 6]] {
            let header = Header::new("<f4", shape);
            let mut bytes = header.encode();
            assert_eq!(bytes.len() % ALIGNED, 0);
            let length = bytes.len();
            bytes.extend_from_slice(&[1, 2, 3]);
            assert_eq!(Header::decode(&bytes), Ok((header, length)));
        }
    }

    #[test]
    fn a_header_that_is_none_is_an_error() {
        let whole = Header::new("|u1", &[7]).encode();
        for end in 0..whole.len() {
            assert!(Header::decode(&whole[..end]).is_err(), "{end}");
        }
        let text = |text: &str| {
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&[1, 0, text.len() as u8, 0]);
            bytes.extend_from_slice(text.as_bytes());
            Header::decode(&bytes).unwrap_err()
        };
        assert!(
            text("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }").contains("columns")
        );
        assert!(
            text("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }").contains("shape")
        );
        assert!(text("{'fortran_order': False, 'shape': (3,), }").contains("descr"));
    }
}
