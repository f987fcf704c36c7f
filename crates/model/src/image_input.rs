//! The images that a model reads: their size, and the tokens that they become.

/// Images of one size, cut into patches.
///
/// An image is one sequence: the class token, a distillation token where the model has one, registers where it
/// has some, and the patches row by row.
///
/// ```
/// # use fedra_model::ImageInput;
/// let image = ImageInput::new((28, 28), 7, 1);
/// assert_eq!((image.patches(), image.tokens(), image.pixels()), (16, 17, 784));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageInput {
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
    /// Rows of pixels of a patch.
    pub patch_height: usize,
    /// Columns of pixels of a patch.
    pub patch_width: usize,
    /// Numbers of a pixel: 3 for colours, 1 for grey.
    pub channels: usize,
    /// Whether a distillation token stands behind the class token: `DeiT`.
    pub distillation: bool,
    /// Tokens in front of the patches that have no position.
    pub registers: usize,
}

impl ImageInput {
    /// Images of this height and width in square patches, with a class token.
    pub const fn new((height, width): (usize, usize), patch: usize, channels: usize) -> Self {
        let (patch_height, patch_width) = (patch, patch);
        let (distillation, registers) = (false, 0);
        Self { height, width, patch_height, patch_width, channels, distillation, registers }
    }

    /// Rows and columns of patches.
    pub const fn grid(&self) -> (usize, usize) {
        (self.height / self.patch_height, self.width / self.patch_width)
    }

    /// Patches of an image.
    pub const fn patches(&self) -> usize {
        let (rows, columns) = self.grid();
        rows * columns
    }

    /// Tokens of an image.
    pub const fn tokens(&self) -> usize {
        self.positions() + self.registers
    }

    /// Tokens that have a position.
    pub(crate) const fn positions(&self) -> usize {
        self.patches() + self.summaries()
    }

    /// Tokens in front of the patches that have a position.
    pub(crate) const fn summaries(&self) -> usize {
        1 + self.distillation as usize
    }

    /// Numbers of an image.
    pub const fn pixels(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Numbers of a patch.
    pub const fn patch_inputs(&self) -> usize {
        self.channels * self.patch_height * self.patch_width
    }

    /// The patches of images that lie one after the other: a row each, in the order channel, row, column.
    pub(crate) fn patched(&self, pixels: &[f32]) -> Vec<f32> {
        let (rows, columns) = self.grid();
        let mut patches = Vec::with_capacity(pixels.len());
        for image in pixels.chunks_exact(self.pixels()) {
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |at| (row, at))) {
                let (top, left) = (row * self.patch_height, column * self.patch_width);
                for channel in image.chunks_exact(self.height * self.width) {
                    for line in channel.chunks_exact(self.width).skip(top).take(self.patch_height) {
                        patches.extend_from_slice(&line[left..left + self.patch_width]);
                    }
                }
            }
        }
        patches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_lie_row_by_row_and_hold_channel_row_column() {
        let image = ImageInput::new((2, 4), 2, 2);
        let pixels: Vec<f32> = (0..32).map(|at| at as f32).collect();
        let patches = image.patched(&pixels);
        assert_eq!(patches[..8], [0.0, 1.0, 4.0, 5.0, 8.0, 9.0, 12.0, 13.0]);
        assert_eq!(patches[8..16], [2.0, 3.0, 6.0, 7.0, 10.0, 11.0, 14.0, 15.0]);
        assert_eq!(patches[16], 16.0);
        assert_eq!(patches.len(), pixels.len());
    }

    #[test]
    fn tokens_count_what_stands_in_front_of_the_patches() {
        let image = ImageInput { registers: 4, ..ImageInput::new((28, 14), 7, 3) };
        assert_eq!((image.patches(), image.positions(), image.tokens()), (8, 9, 13));
        let image = ImageInput { distillation: true, registers: 0, ..image };
        assert_eq!((image.positions(), image.tokens()), (10, 10));
    }
}
