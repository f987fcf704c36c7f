//! How a camera was held, which its files say in their EXIF data: tag 0x112 of the first directory.

use super::raster::Raster;

/// What to do with a picture so that it stands upright: `x` and `y` are swapped last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orientation {
    is_mirrored: bool,
    is_upside_down: bool,
    is_on_its_side: bool,
}

impl Orientation {
    /// What EXIF data says; a picture stays as it is where there is none, or none that can be read.
    pub fn of(exif: Option<&[u8]>) -> Self {
        Self::numbered(exif.and_then(tag).unwrap_or(1))
    }

    /// The eight of EXIF.
    fn numbered(value: u16) -> Self {
        Self {
            is_mirrored: matches!(value, 2 | 3 | 7 | 8),
            is_upside_down: matches!(value, 3 | 4 | 6 | 7),
            is_on_its_side: matches!(value, 5..=8),
        }
    }
}

impl Raster {
    /// The same picture, upright.
    pub(super) fn turned(self, orientation: Orientation) -> Self {
        if orientation == Orientation::numbered(1) {
            return self;
        }
        let (width, height) = if orientation.is_on_its_side {
            (self.height, self.width)
        } else {
            (self.width, self.height)
        };
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for y in 0..height {
            for x in 0..width {
                let (x, y) = if orientation.is_on_its_side { (y, x) } else { (x, y) };
                let x = if orientation.is_mirrored { self.width - 1 - x } else { x };
                let y = if orientation.is_upside_down { self.height - 1 - y } else { y };
                let at = (y * self.width + x) * self.channels;
                pixels.extend_from_slice(&self.pixels[at..at + self.channels]);
            }
        }
        Self::new((width, height), self.channels, pixels)
    }
}

/// The value of the tag in a TIFF header and its first directory.
fn tag(exif: &[u8]) -> Option<u16> {
    let is_little = match exif.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let two = |at: usize| {
        let bytes = exif.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let four = |at: usize| {
        let bytes = exif.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = four(4)? as usize;
    let entries = usize::from(two(directory)?);
    let starts = (0..entries).map(|entry| directory + 2 + 12 * entry);
    // One value of 16 bits.
    let is_it = |at: usize| (two(at), two(at + 2), four(at + 4)) == (Some(0x112), Some(3), Some(1));
    starts.into_iter().find(|at| is_it(*at)).and_then(|at| two(at + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_eight_orientations_turns_as_exif_says() {
        // 1 2 3
        // 4 5 6
        let raster = Raster::new((3, 2), 1, vec![1, 2, 3, 4, 5, 6]);
        let expected: [(usize, [u8; 6]); 8] = [
            (3, [1, 2, 3, 4, 5, 6]),
            (3, [3, 2, 1, 6, 5, 4]),
            (3, [6, 5, 4, 3, 2, 1]),
            (3, [4, 5, 6, 1, 2, 3]),
            (2, [1, 4, 2, 5, 3, 6]),
            (2, [4, 1, 5, 2, 6, 3]),
            (2, [6, 3, 5, 2, 4, 1]),
            (2, [3, 6, 2, 5, 1, 4]),
        ];
        for (value, (width, pixels)) in (1..).zip(expected) {
            let turned = raster.clone().turned(Orientation::numbered(value));
            assert_eq!((turned.width, turned.pixels), (width, pixels.to_vec()), "{value}");
        }
    }

    #[test]
    fn the_tag_is_found_in_both_byte_orders_and_broken_data_says_nothing() {
        let other = [0x10, 1, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let own = [0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0];
        let little = [&b"II*\0\x08\0\0\0\x02\0"[..], &other, &own].concat();
        assert_eq!(tag(&little), Some(6));
        for length in 0..little.len() - 2 {
            assert!(tag(&little[..length]).is_none(), "cut to {length}");
        }
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0";
        assert_eq!(tag(big), Some(8));
        assert_eq!(tag(b"II*\0\xff\xff\xff\xff"), None);
        assert_eq!(Orientation::of(None), Orientation::numbered(1));
        assert_eq!(Orientation::of(Some(b"other")), Orientation::numbered(9));
    }
}
