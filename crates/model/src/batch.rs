//! Token ids of several sequences, one after another, without padding; or images, each of which is a sequence.

use crate::error::ModelError;
use crate::packing::Packing;
use fedra_compute::{Device, Pixels, Tensor};

/// A packed batch: `ids` of all sequences end to end, and how long each one is.
///
/// ```
/// # use fedra_model::Batch;
/// let batch = Batch::new(&[&[101, 7592, 102][..], &[101, 102]])?;
/// assert_eq!(batch.packing().tokens(), 5);
/// assert_eq!(batch.packing().positions(), [0, 1, 2, 0, 1]);
/// # Ok::<(), fedra_model::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    ids: Vec<u32>,
    segments: Vec<u32>,
    pixels: Vec<f32>,
    /// The same on a device.
    placed: Option<Tensor>,
    packing: Packing,
}

impl Batch {
    /// Packs sequences; all tokens are in segment 0.
    pub fn new<S: AsRef<[u32]>>(sequences: &[S]) -> Result<Self, ModelError> {
        let ids: Vec<u32> = sequences.iter().flat_map(S::as_ref).copied().collect();
        let lengths = sequences.iter().map(|ids| ids.as_ref().len()).collect();
        Self::packed(ids, lengths)
    }

    /// Takes ids that are packed already.
    pub fn packed(ids: Vec<u32>, lengths: Vec<usize>) -> Result<Self, ModelError> {
        let packing = Packing::new(lengths)?;
        if packing.tokens() != ids.len() {
            let expected = format!("{}, the sum of the lengths", packing.tokens());
            return Err(ModelError::batch("number of ids", &ids.len(), &expected));
        }
        let segments = vec![0; ids.len()];
        Ok(Self { ids, segments, pixels: Vec::new(), placed: None, packing })
    }

    /// Says which segment each token is in (sentence A or B).
    pub fn with_segments(mut self, segments: Vec<u32>) -> Result<Self, ModelError> {
        if segments.len() != self.ids.len() {
            let (found, expected) = (segments.len(), self.ids.len());
            return Err(ModelError::batch("number of segments", &found, &expected));
        }
        self.segments = segments;
        Ok(self)
    }

    /// Says which image each sequence is: normalised values in the order channel, row, column, image after image.
    ///
    /// The ids of a batch of images are zeros, as many for each as it has tokens.
    pub fn with_pixels(mut self, pixels: Vec<f32>) -> Result<Self, ModelError> {
        let images = self.packing.sequences();
        if pixels.is_empty() || !pixels.len().is_multiple_of(images) {
            let expected = format!("as many for each of {images} images, at least 1");
            return Err(ModelError::batch("number of pixel values", &pixels.len(), &expected));
        }
        if let Some(at) = pixels.iter().position(|value| !value.is_finite()) {
            let image = at / (pixels.len() / images);
            let found = format!("{} (image {image})", pixels[at]);
            return Err(ModelError::batch("pixel value", &found, &"a finite number"));
        }
        self.pixels = pixels;
        self.placed = None;
        Ok(self)
    }

    /// Copies the values of images to a device now, so that the first block that reads them finds them there.
    pub fn placed_on(self, device: &Device) -> Result<Self, ModelError> {
        if self.pixels.is_empty() {
            return Ok(self);
        }
        let placed = Tensor::from_slice(device, 1, self.pixels.len(), &self.pixels)?;
        Ok(Self { placed: Some(placed), ..self })
    }

    /// Says how many tokens came before each sequence's first: they are in its cache.
    pub fn continuing(self, offsets: Vec<usize>) -> Result<Self, ModelError> {
        Ok(Self { packing: self.packing.with_offsets(offsets)?, ..self })
    }

    /// The same batch, of which each two sequences make one example.
    pub fn in_pairs(self) -> Result<Self, ModelError> {
        Ok(Self { packing: self.packing.in_pairs()?, ..self })
    }

    /// How the sequences lie in the rows: all that blocks need to know.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The row of each sequence's last token that is not this one; its first row where all are.
    ///
    /// So do the library's decoders that classify, also where a text itself ends with the padding token.
    pub fn last_rows_without(&self, padding: u32) -> Vec<u32> {
        let last = |(start, &length): (usize, &usize)| {
            let ids = &self.ids[start..start + length];
            (start + ids.iter().rposition(|&id| id != padding).unwrap_or(0)) as u32
        };
        self.packing.starts().zip(self.packing.lengths()).map(last).collect()
    }

    /// All ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The values of all images; none in a batch of text.
    pub fn pixels(&self) -> &[f32] {
        &self.pixels
    }

    /// The same, wherever they are.
    pub(crate) fn placed_pixels(&self) -> Pixels<'_> {
        self.placed.as_ref().map_or(Pixels::Host(&self.pixels), Pixels::Placed)
    }

    /// The values of one image; none in a batch of text.
    pub fn pixels_of(&self, sequence: usize) -> &[f32] {
        let each = self.pixels.len() / self.packing.sequences();
        &self.pixels[sequence * each..(sequence + 1) * each]
    }

    /// The segment of each token.
    pub fn segments(&self) -> &[u32] {
        &self.segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_shared_evenly_by_the_images_and_finite() {
        let batch = || Batch::packed(vec![0; 4], vec![2, 2]).unwrap();
        let with = batch().with_pixels(vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((with.pixels_of(0), with.pixels_of(1)), (&[1.0, 2.0][..], &[3.0, 4.0][..]));
        assert!(batch().pixels_of(1).is_empty());
        for wrong in [vec![], vec![0.0; 3]] {
            let error = batch().with_pixels(wrong).unwrap_err().to_string();
            assert!(error.contains("expected as many for each of 2 images"), "{error}");
        }
        let error = batch().with_pixels(vec![0.0, 0.0, f32::NAN, 0.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "batch: pixel value is NaN (image 1), expected a finite number"
        );
    }

    #[test]
    fn the_last_row_without_padding_is_inside_its_sequence() {
        let batch = Batch::new(&[&[1, 5, 2, 2][..], &[1, 2, 5], &[2, 2], &[7]]).unwrap();
        assert_eq!(batch.last_rows_without(2), [1, 6, 7, 9]);
        assert_eq!(batch.last_rows_without(99), batch.packing().last_rows());
    }

    #[test]
    fn an_empty_batch_and_an_empty_sequence_are_refused() {
        let none: [&[u32]; 0] = [];
        let error = Batch::new(&none).unwrap_err();
        assert_eq!(error.to_string(), "batch: number of sequences is 0, expected at least 1");
        let error = Batch::new(&[&[1][..], &[]]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "batch: length of sequence is 0 (number 1), expected at least 1"
        );
    }
}
