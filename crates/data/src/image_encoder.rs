//! Rows of images to placeholder tokens with pixels.
//!
//! A model of images makes its own sequence: patches, and a few tokens of its own. Its length is always the
//! same, and ids of 0 hold the places, so that batches, packing and plans of memory work as for text.

use crate::images::{Augment, Pixels, Processor};
use crate::tokenise::{EncodeRows, Encoded, Target, TokenSequence};
use crate::{Advice, Body, DataError, Example, Image, Labels, Result};

/// Turns images into what a model reads.
#[derive(Clone, Copy, Debug)]
pub struct ImageEncoder<'a> {
    processor: &'a Processor,
    /// Channels, height and width that the model reads.
    shape: [usize; 3],
    /// Tokens that the model makes of an image.
    tokens: usize,
    augment: Option<Augment>,
}

impl<'a> ImageEncoder<'a> {
    /// An encoder for a model that reads images of a shape (channels, height, width) as so many tokens.
    pub fn new(processor: &'a Processor, shape: [usize; 3], tokens: usize) -> Self {
        Self { processor, shape, tokens, augment: None }
    }

    /// The same, whose images may be changed in training.
    #[must_use]
    pub fn with_augment(self, augment: Option<Augment>) -> Self {
        Self { augment: augment.filter(|augment| !augment.is_nothing()), ..self }
    }

    /// The pixels of an image.
    pub fn pixels(&self, image: &Image) -> Result<Pixels> {
        let refuse =
            |(found, expected): (String, String)| DataError::setting("image", &found, expected);
        let pixels =
            self.processor.prepare(image.raster(self.processor.transparency).map_err(refuse)?);
        if pixels.shape() != self.shape {
            let of = |[channels, height, width]: [usize; 3]| {
                format!("{channels} x {height} x {width} (channels, height, width)")
            };
            let expected = format!("{}, which the model reads", of(self.shape));
            return Err(refuse((of(pixels.shape()), expected)));
        }
        Ok(pixels.with_augment(self.augment))
    }

    /// An image as a sequence.
    pub fn sequence(&self, body: &Body) -> Result<TokenSequence> {
        let Body::Image(image) = body else {
            return Err(DataError::setting("image", &"a text", "an image: the model reads images"));
        };
        let (ids, pixels) = (vec![0; self.tokens], Some(self.pixels(image)?));
        Ok(TokenSequence { ids, types: Vec::new(), dropped: 0, pixels })
    }
}

impl EncodeRows for ImageEncoder<'_> {
    fn encode(&self, example: &Example) -> Result<Vec<Encoded>> {
        let target = match &example.labels {
            Labels::One(label) => Target::One(*label),
            Labels::Many(labels) => Target::Many(labels.clone()),
            Labels::PerWord(_)
            | Labels::Absent
            | Labels::Choice(_)
            | Labels::Text(_)
            | Labels::Preference(_) => {
                let expected = "one label or several for the whole image";
                return Err(DataError::setting("image", &"another task", expected));
            }
        };
        let broken = |error: DataError| error.at(&example.place).advising(Advice::drop_missing());
        let sequence = self.sequence(&example.body).map_err(broken)?;
        let TokenSequence { ids, types, dropped, pixels } = sequence;
        Ok(vec![Encoded { ids, types, target, dropped, pixels }])
    }
}
