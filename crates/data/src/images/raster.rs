//! Decoded pixels, row by row, the channels of a pixel beside each other.

/// Pixels of 8 bits, grey or RGB.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Raster {
    pub width: usize,
    pub height: usize,
    /// 1 or 3.
    pub channels: usize,
    pub pixels: Vec<u8>,
}

impl Raster {
    /// Pixels of a size.
    ///
    /// # Panics
    /// When there are more or fewer than the size says.
    pub fn new((width, height): (usize, usize), channels: usize, pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len(), width * height * channels, "a raster is full");
        Self { width, height, channels, pixels }
    }

    /// The same with one channel or three, as PIL's `convert("L")` and `convert("RGB")` do.
    pub fn with_channels(self, channels: usize) -> Self {
        let Self { width, height, channels: own, pixels } = self;
        let pixels = match (own, channels) {
            (1, 3) => pixels.into_iter().flat_map(|grey| [grey; 3]).collect(),
            (3, 1) => pixels.chunks_exact(3).map(grey).collect(),
            _ => return Self { width, height, channels: own, pixels },
        };
        Self { width, height, channels, pixels }
    }

    /// The middle of it, as `transformers` crops: where it is smaller, black surrounds it.
    pub fn centre_crop(self, width: usize, height: usize) -> Self {
        let (from_x, to_x) = placed(self.width, width);
        let (from_y, to_y) = placed(self.height, height);
        let (columns, rows) = (self.width.min(width), self.height.min(height));
        if (columns, rows) == (self.width, self.height) && (columns, rows) == (width, height) {
            return self;
        }
        let channels = self.channels;
        let mut pixels = vec![0; width * height * channels];
        for row in 0..rows {
            let from = ((from_y + row) * self.width + from_x) * channels;
            let to = ((to_y + row) * width + to_x) * channels;
            let length = columns * channels;
            pixels[to..to + length].copy_from_slice(&self.pixels[from..from + length]);
        }
        Self::new((width, height), channels, pixels)
    }
}

/// Where a crop of `wanted` begins in `own`, and where that lies in the crop.
fn placed(own: usize, wanted: usize) -> (usize, usize) {
    if own >= wanted { ((own - wanted) / 2, 0) } else { (0, (wanted - own).div_ceil(2)) }
}

/// The luminance of a colour, in PIL's fixed point (ITU-R 601-2).
fn grey(rgb: &[u8]) -> u8 {
    let [red, green, blue] = [rgb[0], rgb[1], rgb[2]].map(u32::from);
    ((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16) as u8
}
