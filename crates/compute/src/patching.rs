//! Images cut into patches on a device.

use crate::device::Device;
use crate::error::ComputeError;
use crate::kernels;
use crate::patches::{Patches, Pixels};
use crate::tensor::Tensor;

impl Patches {
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
