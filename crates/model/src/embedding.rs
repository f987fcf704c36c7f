//! Token ids or images to the hidden states in front of block 0.
//!
//! A convolution over patches that do not overlap is a linear map of each patch.

use crate::batch::Batch;
use crate::config::Positions;
use crate::error::ModelError;
use crate::image_input::ImageInput;
use crate::model::Model;
use fedra_compute::{DropoutPlace, Sequences, Tape, Value, Weights};
use fedra_plan::{Layer, Role};

impl Model {
    /// Token ids, or images, to the hidden states in front of block 0.
    pub fn embed(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
    ) -> Result<Value, ModelError> {
        if let Some(image) = self.config().image {
            return self.embed_images(tape, weights, batch, image);
        }
        self.check_packing(batch.packing())?;
        if !batch.pixels().is_empty() {
            let expected = "none: the model reads text";
            return Err(ModelError::batch("pixel values", &batch.pixels().len(), &expected));
        }
        let (parts, config) = (self.parts(weights, Layer::Embedding), self.config());
        let token = parts.weight(Role::Token)?;
        let mut tables = vec![(&token, batch.ids())];
        let position = match config.positions {
            Positions::Learned { offset } => {
                let mut at = batch.packing().positions();
                for position in &mut at {
                    *position += offset as u32;
                }
                Some((parts.weight(Role::Position)?, at))
            }
            Positions::Rotary(_) => None,
        };
        tables.extend(position.as_ref().map(|(weight, at)| (weight, &at[..])));
        let segment = match config.type_vocab_size {
            0 => None,
            _ => Some(parts.weight(Role::Segment)?),
        };
        if segment.is_some() {
            check_segments(batch, config.type_vocab_size)?;
        }
        tables.extend(segment.as_ref().map(|weight| (weight, batch.segments())));
        let mut hidden = tape.embed(&tables)?;
        if config.embedding_scaled {
            hidden = tape.scaled(hidden, (config.hidden_size as f32).sqrt());
        }
        if config.embedding_norm {
            hidden = self.blocks_of().norm(tape, parts, &hidden, Role::EmbeddingNorm)?;
        }
        if config.embedding_size.is_some() {
            hidden = tape.linear(&hidden, &[parts.projection(Role::EmbeddingProjection)?])?;
        }
        let hidden = hidden.in_sequences(&batch.packing().boundaries())?;
        Ok(tape.dropped(hidden, (Layer::Embedding, DropoutPlace::Embedding))?)
    }

    fn embed_images(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
        image: ImageInput,
    ) -> Result<Value, ModelError> {
        check_images(batch, image, tape.device().has_numbers())?;
        let parts = self.parts(weights, Layer::Embedding);
        let images = batch.packing().sequences();
        let patches = image.cuts().of(tape.device(), images, batch.placed_pixels())?;
        let sequences = Sequences::of_lengths(&vec![image.patches(); images]);
        let patches = tape.constant(patches).in_sequences(&sequences)?;
        let mut hidden = tape.linear(&patches, &[parts.projection(Role::Patch)?])?;
        drop(patches);
        if image.distillation {
            hidden = tape.insert_rows(&hidden, 0, &parts.weight(Role::DistillationToken)?)?;
        }
        hidden = tape.insert_rows(&hidden, 0, &parts.weight(Role::ClassToken)?)?;
        let positions: Vec<u32> = (0..images).flat_map(|_| 0..image.positions() as u32).collect();
        hidden = tape.embed_onto(hidden, (&parts.weight(Role::Position)?, &positions))?;
        if image.registers > 0 {
            let table = parts.weight(Role::RegisterToken)?;
            hidden = tape.insert_rows(&hidden, image.summaries(), &table)?;
        }
        let hidden = hidden.in_sequences(&batch.packing().boundaries())?;
        Ok(tape.dropped(hidden, (Layer::Embedding, DropoutPlace::Embedding))?)
    }
}

/// Refuses a second text for a model that knows one segment only.
fn check_segments(batch: &Batch, known: usize) -> Result<(), ModelError> {
    let Some(found) = batch.segments().iter().find(|segment| **segment as usize >= known) else {
        return Ok(());
    };
    let expected = format!(
        "below {known}, the model's type_vocab_size: its tokenizer marks the second of two texts with a segment \
         that the model does not know; give it one text, or one column"
    );
    Err(ModelError::batch("segment of a token", found, &expected))
}

/// Refuses sequences that are no images of this size; without numbers, pixels may be absent.
fn check_images(batch: &Batch, image: ImageInput, has_numbers: bool) -> Result<(), ModelError> {
    let (tokens, packing) = (image.tokens(), batch.packing());
    if let Some(found) = packing.lengths().iter().find(|length| **length != tokens) {
        let expected = format!("{tokens}, the tokens of an image");
        return Err(ModelError::batch("length of sequence", found, &expected));
    }
    if let Some(offset) = packing.offsets().iter().find(|offset| **offset != 0) {
        return Err(ModelError::batch("tokens before an image", offset, &0));
    }
    let (found, expected) = (batch.pixels().len(), packing.sequences() * image.pixels());
    if found != expected && (has_numbers || found != 0) {
        let ImageInput { channels, height, width, .. } = image;
        let images = packing.sequences();
        let expected =
            format!("{expected}: images of {channels} x {height} x {width}, {images} of them");
        return Err(ModelError::batch("number of pixel values", &found, &expected));
    }
    Ok(())
}
