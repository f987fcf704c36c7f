//! PNG and JPEG to 8-bit grey or RGB, as PIL's `convert("RGB")` has them.
//!
//! Palettes are looked up, and colours of 16 bits lose their lower byte. What is transparent is put on white, or
//! shows its own colour, as the caller says. Grey of 16 bits is cut off at 255, as PIL does it: white is then most of such an image, so whoever has them should
//! write 8 bits. An orientation in the file's EXIF data is applied.

use std::io::Cursor;

use png::{BitDepth, ColorType, Transformations};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::header::{Header, Kind, broken};
use super::orientation::Orientation;
use super::raster::Raster;
use crate::caught::caught;
use crate::error::Mismatch;

/// Bytes of memory that a decoder may take for each pixel, and for all the rest.
const PER_PIXEL: usize = 16;
const BESIDE: usize = 16 << 20;

/// What becomes of transparency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transparency {
    /// It is left out: pixels show their colour, as PIL's `convert("RGB")` has it.
    Dropped,
    /// Pixels are put on white, as `transformers` does it where a file says `do_convert_rgb`.
    OnWhite,
}

/// The pixels of an encoded image.
pub(super) fn decode(bytes: &[u8], transparency: Transparency) -> Result<Raster, Mismatch> {
    let header = Header::of(bytes)?;
    let (name, decoded) = match header.kind {
        Kind::Png => ("PNG", caught(|| png(bytes, header, transparency))),
        Kind::Jpeg => ("JPEG", caught(|| jpeg(bytes, header))),
    };
    let (raster, orientation) = decoded.flatten().map_err(|error| {
        let (found, expected) = broken(name);
        (format!("{found} ({error})"), expected)
    })?;
    Ok(raster.turned(orientation))
}

type Decoded = Result<(Raster, Orientation), String>;

fn png(bytes: &[u8], header: Header, transparency: Transparency) -> Decoded {
    let said = |error: png::DecodingError| error.to_string();
    let size = (header.width as usize, header.height as usize);
    let limits = png::Limits { bytes: size.0 * size.1 * PER_PIXEL + BESIDE };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(said)?;
    let mut samples = vec![0; reader.output_buffer_size().ok_or("too many pixels")?];
    let frame = reader.next_frame(&mut samples).map_err(said)?;
    let (channels, has_alpha) = match frame.color_type {
        ColorType::Grayscale => (1, false),
        ColorType::GrayscaleAlpha => (1, true),
        ColorType::Rgb => (3, false),
        ColorType::Rgba => (3, true),
        ColorType::Indexed => return Err("a palette without colours".to_owned()),
    };
    samples.truncate(frame.buffer_size());
    if frame.bit_depth == BitDepth::Sixteen {
        let is_grey = frame.color_type == ColorType::Grayscale;
        let byte = |[high, low]: [u8; 2]| {
            if is_grey && high > 0 { 255 } else { [high, low][usize::from(is_grey)] }
        };
        samples = samples.as_chunks().0.iter().copied().map(byte).collect();
    }
    if has_alpha {
        let shown = |colour: u8, alpha: u8| match transparency {
            Transparency::Dropped => colour,
            Transparency::OnWhite => on_white(colour, alpha),
        };
        samples = samples
            .chunks_exact(channels + 1)
            .flat_map(|pixel| {
                pixel[..channels].iter().map(|colour| shown(*colour, pixel[channels]))
            })
            .collect();
    }
    let exif = reader.info().exif_metadata.as_deref();
    Ok((filled(size, channels, samples)?, Orientation::of(exif)))
}

/// A colour over white, in the fixed point of PIL's `alpha_composite`.
fn on_white(colour: u8, alpha: u8) -> u8 {
    const BITS: u32 = 7;
    let (colour, alpha) = (u32::from(colour), u32::from(alpha) << BITS);
    let sum = colour * alpha + 255 * ((255 << BITS) - alpha) + (0x80 << BITS);
    ((((sum >> 8) + sum) >> 8) >> BITS) as u8
}

fn jpeg(bytes: &[u8], header: Header) -> Decoded {
    let said = |error: zune_jpeg::errors::DecodeErrors| error.to_string();
    let size = (header.width as usize, header.height as usize);
    let options = DecoderOptions::default().set_strict_mode(false);
    let options = options.set_max_width(size.0).set_max_height(size.1);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(said)?;
    let (colours, channels) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (ColorSpace::Luma, 1),
        _ => (ColorSpace::RGB, 3),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(colours));
    let pixels = decoder.decode().map_err(said)?;
    let exif = decoder.exif().map(Vec::as_slice);
    Ok((filled(size, channels, pixels)?, Orientation::of(exif)))
}

/// The pixels, if they are as many as the header says.
fn filled(size: (usize, usize), channels: usize, pixels: Vec<u8>) -> Result<Raster, String> {
    let (found, expected) = (pixels.len(), size.0 * size.1 * channels);
    if found != expected {
        return Err(format!("{found} values instead of {expected}"));
    }
    Ok(Raster::new(size, channels, pixels))
}
