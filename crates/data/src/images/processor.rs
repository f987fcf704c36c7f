//! What happens to an image before a model sees it.

use std::sync::Arc;

use super::decode::Transparency;
use super::header::MOST_PIXELS;
use super::pixels::{Normalisation, Pixels};
use super::raster::Raster;
use super::resample::Filter;

/// The steps of a `preprocessor_config.json`: resize, crop, rescale, normalise. Channels are the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// The file, as it stands beside a saved model.
    pub(super) json: String,
    pub(super) channels: usize,
    pub(super) resize: Option<(Size, Filter)>,
    /// Height and width.
    pub(super) crop: Option<(usize, usize)>,
    pub(super) rule: Arc<Normalisation>,
    pub(crate) transparency: Transparency,
}

/// The size that an image is brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Height and width, whatever the image's were.
    Exact(usize, usize),
    /// So many pixels on the shorter side; the other one follows.
    Shortest(usize),
}

impl Processor {
    /// The file that says the same.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Height and width of what it makes, where they do not depend on the image.
    pub fn output(&self) -> Option<(usize, usize)> {
        match (self.crop, self.resize) {
            (Some(crop), _) => Some(crop),
            (None, Some((Size::Exact(height, width), _))) => Some((height, width)),
            (None, Some((Size::Shortest(_), _)) | None) => None,
        }
    }

    /// An image as the model reads it.
    pub(crate) fn prepare(&self, raster: Raster) -> Pixels {
        let mut raster = raster.with_channels(self.channels);
        if let Some((size, filter)) = self.resize {
            raster = match size {
                Size::Exact(height, width) => raster.resized((width, height), filter),
                Size::Shortest(side) => {
                    let size = shortest((raster.width, raster.height), side);
                    raster.resized(size, filter)
                }
            };
        }
        if let Some((height, width)) = self.crop {
            raster = raster.centre_crop(width, height);
        }
        let Raster { width, height, channels, pixels } = raster;
        let planes = (0..channels).flat_map(|channel| pixels[channel..].iter().step_by(channels));
        let planes: Vec<u8> = planes.copied().collect();
        Pixels::new(planes, [channels, height, width], Arc::clone(&self.rule))
    }
}

/// Width and height whose shorter one is `side`, as `transformers` rounds the other.
fn shortest((width, height): (usize, usize), side: usize) -> (usize, usize) {
    let longer = |long: usize, short: usize| {
        // An image that is thousands of times as long as wide would not fit.
        let most = (MOST_PIXELS as usize / side).max(1);
        ((side as f64 * long as f64 / short as f64) as usize).min(most)
    };
    if width <= height { (side, longer(height, width)) } else { (longer(width, height), side) }
}
