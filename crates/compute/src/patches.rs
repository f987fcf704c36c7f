//! Images cut into patches that do not overlap: a row of numbers each.

use crate::tensor::Tensor;

/// How images are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    /// Colours.
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
    /// Rows of pixels of a patch.
    pub patch_height: usize,
    /// Columns of pixels of a patch.
    pub patch_width: usize,
}

/// Where images are.
#[derive(Clone, Copy, Debug)]
pub enum Pixels<'a> {
    /// In main memory, one after the other.
    Host(&'a [f32]),
    /// On the device, a row each.
    Placed(&'a Tensor),
}

impl Patches {
    /// Rows and columns of patches.
    pub const fn grid(self) -> (usize, usize) {
        (self.height / self.patch_height, self.width / self.patch_width)
    }

    /// Numbers of an image.
    pub const fn pixels(self) -> usize {
        self.channels * self.height * self.width
    }

    /// Numbers of a patch.
    pub const fn inputs(self) -> usize {
        self.channels * self.patch_height * self.patch_width
    }

    /// Writes the patches of images that lie one after the other.
    pub(crate) fn cut(self, pixels: &[f32], into: &mut [f32]) {
        let (rows, columns) = self.grid();
        let lines = pixels.chunks_exact(self.pixels()).flat_map(move |image| {
            (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column))).flat_map(
                move |(row, column)| {
                    let (top, left) = (row * self.patch_height, column * self.patch_width);
                    image.chunks_exact(self.height * self.width).flat_map(move |channel| {
                        let lines = channel.chunks_exact(self.width);
                        lines.skip(top).take(self.patch_height).map(move |line| &line[left..])
                    })
                },
            )
        });
        for (into, line) in into.chunks_exact_mut(self.patch_width).zip(lines) {
            into.copy_from_slice(&line[..self.patch_width]);
        }
    }
}
