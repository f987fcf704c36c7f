//! An image as a model reads it: bytes of channels, and how they become numbers.
//!
//! Bytes are shared by clones, and so is the table that turns them into floats. Floats exist only in a
//! batch. Printed, pixels show their size and nothing of the image.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::augment::{Augment, AugmentDraw};

/// Pixels of one image: channels, each row by row.
#[derive(Clone, PartialEq, Eq)]
pub struct Pixels {
    bytes: Arc<[u8]>,
    /// Channels, height, width.
    shape: [usize; 3],
    rule: Arc<Normalisation>,
    digest: [u8; 32],
    /// What may be done to it in training.
    augment: Option<Augment>,
}

impl Pixels {
    /// Bytes of a shape: channels, height, width.
    ///
    /// # Panics
    /// When there are more or fewer bytes than the shape says, or a channel that the rule does not know.
    pub fn new(bytes: impl Into<Arc<[u8]>>, shape: [usize; 3], rule: Arc<Normalisation>) -> Self {
        let bytes = bytes.into();
        assert_eq!(bytes.len(), shape.iter().product::<usize>(), "an image is full");
        assert_eq!(rule.channels.len(), shape[0], "every channel has its rule");
        let mut sum = Sha256::new_with_prefix(rule.digest);
        for length in shape {
            sum.update((length as u64).to_le_bytes());
        }
        let digest = sum.chain_update(&bytes).finalize().into();
        Self { bytes, shape, rule, digest, augment: None }
    }

    /// An image of nothing, where only sizes count.
    pub fn blank(shape: [usize; 3]) -> Self {
        let bytes = vec![0; shape.iter().product()];
        let rule = Normalisation::new(1.0 / 255.0, &vec![0.0; shape[0]], &vec![1.0; shape[0]]);
        Self::new(bytes, shape, Arc::new(rule))
    }

    /// The same, which training may change in this way.
    #[must_use]
    pub fn with_augment(self, augment: Option<Augment>) -> Self {
        Self { augment, ..self }
    }

    /// Channels, height, width.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The bytes: channels, each row by row.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digest of its bytes and of how they become numbers.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// How bytes become numbers.
    pub fn rule(&self) -> &Normalisation {
        &self.rule
    }

    /// What may be done to it in training.
    pub fn augment(&self) -> Option<Augment> {
        self.augment
    }

    /// Adds its numbers to a batch.
    pub fn extend(&self, numbers: &mut Vec<f32>) {
        for (channel, bytes) in self.rule.channels.iter().zip(self.channels()) {
            numbers.extend(bytes.iter().map(|byte| channel.values[usize::from(*byte)]));
        }
    }

    /// The same after a draw: moved, with black where it has moved away, and perhaps mirrored.
    pub fn extend_drawn(&self, draw: AugmentDraw, numbers: &mut Vec<f32>) {
        let [_, height, width] = self.shape;
        let AugmentDraw { flip, down, right } = draw;
        let inside = |at: usize, by: i32, length: usize| {
            let from = at.checked_add_signed(by as isize)?;
            (from < length).then_some(from)
        };
        for (channel, bytes) in self.rule.channels.iter().zip(self.channels()) {
            for row in 0..height {
                for column in 0..width {
                    let column = if flip { width - 1 - column } else { column };
                    let from = inside(row, down, height).zip(inside(column, right, width));
                    let byte = from.map_or(0, |(row, column)| bytes[row * width + column]);
                    numbers.push(channel.values[usize::from(byte)]);
                }
            }
        }
    }

    fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.shape[1] * self.shape[2])
    }
}

impl fmt::Debug for Pixels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [channels, height, width] = self.shape;
        write!(out, "Pixels({channels} x {height} x {width})")
    }
}

/// How bytes become numbers: `(byte * factor - mean) / deviation`, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalisation {
    channels: Vec<Channel>,
    digest: [u8; 32],
}

/// Every finite number equals itself.
impl Eq for Normalisation {}

/// What each byte of a channel becomes.
#[derive(Clone, Debug, PartialEq)]
struct Channel {
    values: Vec<f32>,
}

impl Normalisation {
    /// The rule of as many channels as there are means, in the steps and the precision of `transformers`.
    pub fn new(factor: f64, means: &[f64], deviations: &[f64]) -> Self {
        let channel = |(mean, deviation): (&f64, &f64)| {
            let value = |byte: u8| {
                let scaled = (f64::from(byte) * factor) as f32;
                (scaled - *mean as f32) / *deviation as f32
            };
            Channel { values: (0..=255).map(value).collect() }
        };
        let channels: Vec<Channel> = means.iter().zip(deviations).map(channel).collect();
        let mut sum = Sha256::new();
        for value in channels.iter().flat_map(|channel| &channel.values) {
            sum.update(value.to_le_bytes());
        }
        Self { channels, digest: sum.finalize().into() }
    }

    /// What a byte of a channel becomes.
    pub fn value(&self, channel: usize, byte: u8) -> f32 {
        self.channels[channel].values[usize::from(byte)]
    }
}
