//! What the header of a PNG or JPEG file says, before anything is decoded.
//!
//! A few bytes can declare an image that fills the memory. So width, height and channels are read here and
//! compared with limits, and the decoder is asked for nothing else than what was found.

use crate::error::Mismatch;

/// Most pixels of an image: three bytes each are 192 MiB.
pub(crate) const MOST_PIXELS: u64 = 1 << 26;
/// Most bytes of an image's file.
pub(crate) const MOST_BYTES: u64 = 64 << 20;
const EXPECTED: &str = "a PNG or JPEG image";

/// The start of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub width: u32,
    pub height: u32,
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Png,
    Jpeg,
}

/// First bytes of formats that are not read, with their names.
const OTHERS: [(&[u8], &str); 8] = [
    (b"GIF8", "a GIF image"),
    (b"BM", "a BMP image"),
    (b"RIFF", "a WebP image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000 image"),
    (b"<svg", "an SVG drawing"),
    (b"\x8aMNG", "a MNG image"),
];

impl Header {
    /// Reads and checks it.
    pub fn of(bytes: &[u8]) -> Result<Self, Mismatch> {
        let refuse = |found: &str| Err((found.to_owned(), EXPECTED.to_owned()));
        let (kind, width, height) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            let (width, height) = png_size(bytes).ok_or_else(|| broken("PNG"))?;
            (Kind::Png, width, height)
        } else if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            let (width, height) = jpeg_size(bytes)?;
            (Kind::Jpeg, width, height)
        } else if bytes.is_empty() {
            return refuse("an empty file");
        } else if bytes.get(128..132) == Some(b"DICM") {
            return refuse("a DICOM file");
        } else if let Some((_, name)) = OTHERS.iter().find(|(start, _)| bytes.starts_with(start)) {
            return refuse(name);
        } else {
            return refuse("other bytes");
        };
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > MOST_PIXELS {
            let found = format!("an image of {width} x {height} pixels");
            return Err((found, format!("1 to {MOST_PIXELS} pixels")));
        }
        Ok(Self { kind, width, height })
    }
}

pub(super) fn broken(kind: &str) -> Mismatch {
    (format!("a broken {kind} image"), format!("a whole {kind} image"))
}

/// The size in the first chunk.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    if bytes.get(12..16)? != b"IHDR" {
        return None;
    }
    number(16).zip(number(20))
}

/// The size in the frame header, which stands behind any number of other segments.
fn jpeg_size(bytes: &[u8]) -> Result<(u32, u32), Mismatch> {
    let byte = |at: usize| bytes.get(at).copied().ok_or_else(|| broken("JPEG"));
    let number =
        |at: usize| Ok::<_, Mismatch>(u32::from(byte(at)?) << 8 | u32::from(byte(at + 1)?));
    let mut at = 2;
    loop {
        if byte(at)? != 0xff {
            return Err(broken("JPEG"));
        }
        while byte(at)? == 0xff {
            at += 1;
        }
        let marker = byte(at)?;
        at += 1;
        match marker {
            0x01 | 0xd0..=0xd7 => {}
            // A scan or an end before any frame.
            0xd8..=0xda | 0x00 => return Err(broken("JPEG")),
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let (precision, components) = (byte(at + 2)?, byte(at + 7)?);
                let (height, width) = (number(at + 3)?, number(at + 5)?);
                if precision != 8 || !matches!(components, 1 | 3) {
                    let found =
                        format!("a JPEG image of {components} channels of {precision} bits");
                    return Err((found, "grey or colour of 8 bits".to_owned()));
                }
                // What comes behind the frame has to end: a decoder would fill what is missing with grey.
                if !bytes[at..].windows(2).any(|pair| pair == [0xff, 0xd9]) {
                    return Err((
                        "a JPEG image without an end".to_owned(),
                        "a whole one".to_owned(),
                    ));
                }
                return Ok((width, height));
            }
            _ => at += (number(at)? as usize).max(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes
    }

    fn found(bytes: &[u8]) -> String {
        Header::of(bytes).unwrap_err().0
    }

    #[test]
    fn sizes_are_compared_with_the_limit_before_anything_is_decoded() {
        let header = Header { kind: Kind::Png, width: 7, height: 5 };
        assert_eq!(Header::of(&png(7, 5)), Ok(header));
        assert_eq!(found(&png(1 << 20, 1 << 20)), "an image of 1048576 x 1048576 pixels");
        assert_eq!(found(&png(u32::MAX, u32::MAX)), "an image of 4294967295 x 4294967295 pixels");
        assert_eq!(found(&png(0, 5)), "an image of 0 x 5 pixels");
        let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xc2, 0, 17, 8];
        jpeg.extend([0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0xff, 0xd9]);
        assert_eq!(found(&jpeg), "an image of 65535 x 65535 pixels");
    }

    #[test]
    fn other_formats_and_broken_starts_are_named() {
        for (bytes, name) in [
            (&b"GIF89a"[..], "a GIF image"),
            (b"", "an empty file"),
            (b"hello", "other bytes"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHD", "a broken PNG image"),
            (&[0xff, 0xd8, 0xff], "a broken JPEG image"),
            (&[0xff, 0xd8, 0xff, 0xd9], "a broken JPEG image"),
            (&[0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0], "a broken JPEG image"),
        ] {
            assert_eq!(found(bytes), name);
        }
        let frame = |components, end: &[u8]| {
            let start = [0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 0, 4, 0, 4, components, 0, 0];
            [&start[..], end].concat()
        };
        assert_eq!(found(&frame(4, &[0xff, 0xd9])), "a JPEG image of 4 channels of 8 bits");
        assert_eq!(found(&frame(3, &[])), "a JPEG image without an end");
        assert!(Header::of(&frame(3, &[0xff, 0xd9])).is_ok());
    }
}
