//! Random flips and crops of training images.
//!
//! What happens to an image follows from a seed and from the image itself, never from its place or from the
//! images beside it: without one row, all others are drawn as they were with it.

use fedra_seed::Seed;
use serde::{Deserialize, Serialize};

/// What training may do to an image. It is never done to images that are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augment {
    /// Whether an image is mirrored left to right, with probability 1/2.
    pub flip: bool,
    /// Most pixels by which it is moved up, down and sideways: a random crop after so many pixels of
    /// black were added on each side.
    pub crop: u16,
}

/// What happens to one image in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AugmentDraw {
    /// Whether it is mirrored.
    pub flip: bool,
    /// Rows by which the crop lies below the image.
    pub down: i32,
    /// Columns by which the crop lies to the right of it.
    pub right: i32,
}

impl Augment {
    /// Whether nothing may happen.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// The draw of an image, by its digest, under a seed that names the round and the epoch.
    pub fn draw(self, seed: Seed, digest: &[u8; 32]) -> AugmentDraw {
        let parts = digest
            .chunks_exact(8)
            .map(|part| u64::from_le_bytes(part.try_into().expect("a chunk of eight bytes")));
        let seed = parts.fold(seed.of("augment"), Seed::with);
        let mut dice = seed.generator();
        let flip = dice.below(2) == 1;
        let mut offset = || {
            let drawn = dice.below(2 * usize::from(self.crop) + 1);
            i32::try_from(drawn).expect("below 2^17") - i32::from(self.crop)
        };
        let (down, right) = (offset(), offset());
        AugmentDraw { flip: flip && self.flip, down, right }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_cover_every_offset_and_both_sides_and_repeat() {
        let augment = Augment { flip: true, crop: 2 };
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..=255_u8 {
            for epoch in 0..4 {
                let draw = augment.draw(Seed(1).with(epoch), &[number; 32]);
                assert_eq!(draw, augment.draw(Seed(1).with(epoch), &[number; 32]));
                seen.insert((draw.flip, draw.down, draw.right));
            }
        }
        assert_eq!(seen.len(), 2 * 5 * 5);
        let still = Augment { flip: false, crop: 0 };
        let draw = still.draw(Seed(1), &[7; 32]);
        assert_eq!(draw, AugmentDraw { flip: false, down: 0, right: 0 });
    }
}
