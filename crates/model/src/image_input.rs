//! The images that a model reads: their size, and the tokens that they become.

use fedra_compute::Patches;

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

    /// How they are cut.
    pub(crate) const fn cuts(&self) -> Patches {
        let Self { height, width, patch_height, patch_width, channels, .. } = *self;
        Patches { channels, height, width, patch_height, patch_width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_count_what_stands_in_front_of_the_patches() {
        let image = ImageInput { registers: 4, ..ImageInput::new((28, 14), 7, 3) };
        assert_eq!((image.patches(), image.positions(), image.tokens()), (8, 9, 13));
        let image = ImageInput { distillation: true, registers: 0, ..image };
        assert_eq!((image.positions(), image.tokens()), (10, 10));
    }
}
