//! Images cut into patches that do not overlap: a row of numbers each.

use crate::device::Device;
use crate::error::ComputeError;
use crate::kernels;
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

    /// The patches of so many images, row by row, each in the order channel, row, column, which is also that of an
    /// image's numbers. Nothing is read where the device has no numbers.
    pub fn of(
        self,
        device: &Device,
        images: usize,
        pixels: Pixels<'_>,
    ) -> Result<Tensor, ComputeError> {
        let found = match pixels {
            Pixels::Host(numbers) => numbers.len(),
            Pixels::Placed(tensor) => tensor.elements(),
        };
        if device.has_numbers() {
            ComputeError::expect("patches", "number of pixels", found, images * self.pixels())?;
        }
        let (rows, columns) = self.grid();
        let mut patches = Tensor::activation(device, images * rows * columns, self.inputs());
        kernels::patches(device, self, pixels, &mut patches);
        Ok(patches)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_lie_row_by_row_and_hold_channel_row_column() {
        let how = Patches { channels: 2, height: 2, width: 4, patch_height: 2, patch_width: 2 };
        let pixels: Vec<f32> = (0..32).map(|at| at as f32).collect();
        let device = Device::cpu();
        let patches = how.of(&device, 2, Pixels::Host(&pixels)).unwrap();
        let placed = Tensor::from_slice(&device, 2, 16, &pixels).unwrap();
        let again = how.of(&device, 2, Pixels::Placed(&placed)).unwrap();
        assert_eq!(again.to_host(), patches.to_host());
        assert_eq!(patches.shape(), (4, 8));
        let numbers = patches.to_host();
        assert_eq!(numbers[..8], [0.0, 1.0, 4.0, 5.0, 8.0, 9.0, 12.0, 13.0]);
        assert_eq!(numbers[8..16], [2.0, 3.0, 6.0, 7.0, 10.0, 11.0, 14.0, 15.0]);
        assert_eq!(numbers[16], 16.0);
        let error = how.of(&device, 2, Pixels::Host(&pixels[1..])).unwrap_err();
        assert_eq!(error.to_string(), "patches: number of pixels is 31, expected 32");
    }
}
