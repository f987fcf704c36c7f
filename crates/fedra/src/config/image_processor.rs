//! The image processor of a model folder, and the images that the model reads after it.

use std::path::Path;

use fedra_data::Processor;
use fedra_model::ImageInput;
use fedra_model::hf::companions::PROCESSOR;

use crate::error::{Result, refuse};

/// Most bytes of the file.
const MOST_BYTES: u64 = 1 << 20;

/// Reads the processor of a folder whose model reads such images, and says which height and width come out of
/// it; those of the model where the processor keeps an image's own.
pub fn image_processor(folder: &Path, image: ImageInput) -> Result<(Processor, (usize, usize))> {
    let file = folder.join(PROCESSOR);
    let length = std::fs::metadata(&file).map_or(0, |about| about.len());
    let json = match std::fs::read_to_string(&file) {
        Ok(json) if length <= MOST_BYTES => json,
        Ok(_) | Err(_) => refuse!(
            "{}: found no {PROCESSOR}, expected the image processor of the model",
            folder.display()
        ),
    };
    let processor = Processor::from_json(&file, &json, image.channels)?;
    let size = processor.output().unwrap_or((image.height, image.width));
    Ok((processor, size))
}
