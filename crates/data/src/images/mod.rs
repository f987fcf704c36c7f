//! Images as rows: where they lie, how they are decoded, and how they become a model's pixels.
//!
//! ```text
//! file, bytes or plain pixels --decode--> Raster --Processor--> Pixels (u8) --batch--> f32
//! ```
//! What stands in a header is checked before anything is decoded. A processor does what
//! `preprocessor_config.json` says, with the arithmetic of PIL. Prepared pixels stay bytes, a quarter of
//! what floats would take, until a batch is made of them.

mod augment;
mod decode;
mod header;
mod image;
mod orientation;
mod pixels;
mod processor;
mod processor_file;
mod raster;
mod resample;
#[cfg(test)]
mod tests;

pub use augment::{Augment, AugmentDraw};
pub(crate) use decode::Transparency;
pub use image::Image;
pub use pixels::{Normalisation, Pixels};
pub use processor::Processor;
