//! PNG and JPEG to 8-bit grey or RGB, as PIL's `convert("RGB")` has them.
//!
//! Palettes are looked up, transparency is dropped, and colours of 16 bits lose their lower byte. Grey of 16
//! bits is cut off at 255, as PIL does it: white is then most of such an image, so whoever has them should
//! write 8 bits. An orientation in the file's EXIF data is applied.

use std::io::Cursor;

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, Limits};

use super::header::{Header, Kind, broken};
use super::raster::Raster;
use crate::caught::caught;
use crate::error::Complaint;

/// Bytes of memory that a decoder may take for each pixel, and for all the rest.
const PER_PIXEL: u64 = 16;
const BESIDE: u64 = 16 << 20;

/// The pixels of an encoded image.
pub(super) fn decode(bytes: &[u8]) -> Result<Raster, Complaint> {
    let header = Header::of(bytes)?;
    let name = match header.kind {
        Kind::Png => "PNG",
        Kind::Jpeg => "JPEG",
    };
    let said = |error: &dyn std::fmt::Display| {
        let (found, expected) = broken(name);
        (format!("{found} ({error})"), expected)
    };
    let mut limits = Limits::no_limits();
    let pixels = u64::from(header.width) * u64::from(header.height);
    limits.max_alloc = Some(pixels * PER_PIXEL + BESIDE);
    let decoded = caught(|| match header.kind {
        Kind::Png => {
            let decoder = PngDecoder::with_limits(Cursor::new(bytes), limits.clone())?;
            opened(decoder, (&header, limits))
        }
        Kind::Jpeg => opened(JpegDecoder::new(Cursor::new(bytes))?, (&header, limits)),
    });
    let image = decoded.map_err(|panic| said(&panic))?.map_err(|error| said(&error))?;
    raster(image).ok_or_else(|| broken(name))
}

/// An image and whether its grey values have 16 bits.
type Decoded = (DynamicImage, bool);

fn opened<D: ImageDecoder>(
    mut decoder: D,
    (header, limits): (&Header, Limits),
) -> image::ImageResult<Decoded> {
    if decoder.dimensions() != (header.width, header.height) {
        let kind = image::error::ParameterErrorKind::DimensionMismatch;
        let error = image::error::ParameterError::from_kind(kind);
        return Err(image::ImageError::Parameter(error));
    }
    decoder.set_limits(limits)?;
    let is_wide_grey = decoder.original_color_type() == ExtendedColorType::L16;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok((image, is_wide_grey))
}

fn raster((image, is_wide_grey): Decoded) -> Option<Raster> {
    let size = (image.width() as usize, image.height() as usize);
    let high = |value: u16| (value >> 8) as u8;
    let grey = |value: u16| if is_wide_grey { value.min(255) as u8 } else { high(value) };
    let firsts = |pixels: Vec<u8>, of: usize| -> Vec<u8> {
        pixels.chunks_exact(of).flat_map(|pixel| pixel[..of - 1].to_vec()).collect()
    };
    let (channels, pixels): (usize, Vec<u8>) = match image {
        DynamicImage::ImageLuma8(image) => (1, image.into_raw()),
        DynamicImage::ImageLumaA8(image) => (1, firsts(image.into_raw(), 2)),
        DynamicImage::ImageRgb8(image) => (3, image.into_raw()),
        DynamicImage::ImageRgba8(image) => (3, firsts(image.into_raw(), 4)),
        DynamicImage::ImageLuma16(image) => (1, image.into_raw().into_iter().map(grey).collect()),
        DynamicImage::ImageLumaA16(image) => {
            (1, image.into_raw().chunks_exact(2).map(|pixel| grey(pixel[0])).collect())
        }
        DynamicImage::ImageRgb16(image) => (3, image.into_raw().into_iter().map(high).collect()),
        DynamicImage::ImageRgba16(image) => {
            let pixels = image.into_raw();
            let colours = pixels.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]);
            (3, colours.map(high).collect())
        }
        // Neither format has floats.
        DynamicImage::ImageRgb32F(_) | DynamicImage::ImageRgba32F(_) | _ => return None,
    };
    (pixels.len() == size.0 * size.1 * channels).then(|| Raster::new(size, channels, pixels))
}
