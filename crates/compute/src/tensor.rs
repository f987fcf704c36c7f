//! A matrix of f32 on a device.
//!
//! Transformers over packed sequences need nothing else: activations are tokens by features, a
//! weight is outputs by inputs, a bias is one row. Clones share their numbers; writing to a shared
//! tensor copies it first, so a thousand simulated clients hold one copy of what is frozen.

use crate::cpu::math;
use crate::cpu::matmul::Mat;
use crate::cpu::simd::vectorised;
use crate::device::Device;
use crate::error::ComputeError;
use crate::pool::Buffer;
use std::borrow::Cow;
use std::sync::Arc;

/// Rows by columns of f32.
///
/// ```
/// # use fedra_compute::{Device, Tensor};
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, 2, 2, &[1.0, 2.0, 3.0, 4.0]).unwrap();
/// assert_eq!(x.to_host()[3], 4.0);
/// ```
#[derive(Clone, Debug)]
pub struct Tensor {
    rows: usize,
    cols: usize,
    storage: Storage,
}

#[derive(Clone, Debug)]
enum Storage {
    Cpu(Arc<Buffer>),
}

impl Tensor {
    /// Copies `data`, row by row, to the device.
    pub fn from_slice(
        device: &Device,
        rows: usize,
        cols: usize,
        data: &[f32],
    ) -> Result<Self, ComputeError> {
        let expected = rows.saturating_mul(cols);
        ComputeError::expect("tensor", "number of values", data.len(), expected)?;
        let mut tensor = Self::scratch(device, rows, cols);
        tensor.data_mut().copy_from_slice(data);
        Ok(tensor)
    }

    /// All zeros.
    pub fn zeros(device: &Device, rows: usize, cols: usize) -> Self {
        let mut tensor = Self::scratch(device, rows, cols);
        tensor.data_mut().fill(0.0);
        tensor
    }

    /// One number.
    pub fn scalar(device: &Device, value: f32) -> Self {
        let mut tensor = Self::scratch(device, 1, 1);
        tensor.data_mut()[0] = value;
        tensor
    }

    /// Arbitrary contents, to be overwritten.
    pub(crate) fn scratch(device: &Device, rows: usize, cols: usize) -> Self {
        match device {
            Device::Cpu(pool) => {
                let storage = Storage::Cpu(Arc::new(pool.take(rows * cols)));
                Self { rows, cols, storage }
            }
        }
    }

    /// Zeros of the same width on the same device.
    pub(crate) fn zeros_like(&self, rows: usize) -> Self {
        match &self.storage {
            Storage::Cpu(buffer) => {
                Self::zeros(&Device::Cpu(buffer.pool().clone()), rows, self.cols)
            }
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.rows * self.cols
    }

    /// The numbers, row by row; borrowed where they are in main memory already.
    pub fn to_host(&self) -> Cow<'_, [f32]> {
        Cow::Borrowed(self.data())
    }

    /// The one number of a one-element tensor (a loss).
    pub fn item(&self) -> f32 {
        assert_eq!(self.shape(), (1, 1), "item() reads tensors of one element");
        self.data()[0]
    }

    /// Whether writing would have to copy first.
    pub fn is_shared(&self) -> bool {
        match &self.storage {
            Storage::Cpu(buffer) => Arc::strong_count(buffer) > 1,
        }
    }

    /// Whether two tensors are the same memory.
    pub fn same_storage(&self, other: &Self) -> bool {
        match (&self.storage, &other.storage) {
            (Storage::Cpu(a), Storage::Cpu(b)) => Arc::ptr_eq(a, b),
        }
    }

    /// Lets `change` rewrite the numbers; a shared tensor is copied first.
    pub fn update(&mut self, change: impl FnOnce(&mut [f32])) {
        change(self.data_mut());
    }

    /// Copies rows `first .. first + count`.
    pub fn row_range(
        &self,
        device: &Device,
        first: usize,
        count: usize,
    ) -> Result<Self, ComputeError> {
        if first + count > self.rows {
            let (found, expected) = (format!("{first}+{count}"), format!("at most {}", self.rows));
            return Err(ComputeError::Shape { operation: "rows", what: "range", found, expected });
        }
        let from = &self.data()[first * self.cols..(first + count) * self.cols];
        Self::from_slice(device, count, self.cols, from)
    }

    /// Stacks tensors of equal width.
    pub fn stack(device: &Device, parts: &[Self]) -> Result<Self, ComputeError> {
        let cols = parts.first().map_or(0, Self::cols);
        let rows = parts.iter().map(Self::rows).sum();
        let mut whole = Self::scratch(device, rows, cols);
        let mut rest = whole.data_mut();
        for part in parts {
            ComputeError::expect("stack", "width", part.cols, cols)?;
            let (now, later) = rest.split_at_mut(part.elements());
            now.copy_from_slice(part.data());
            rest = later;
        }
        Ok(whole)
    }

    /// Sum of squares, in f64 over fixed runs of the tensor, so that it is the same everywhere.
    pub fn sum_of_squares(&self) -> f64 {
        self.data().chunks(4096).map(|run| f64::from(squares(run))).sum()
    }

    pub(crate) fn data(&self) -> &[f32] {
        match &self.storage {
            Storage::Cpu(buffer) => buffer,
        }
    }

    pub(crate) fn data_mut(&mut self) -> &mut [f32] {
        match &mut self.storage {
            Storage::Cpu(buffer) => {
                if Arc::get_mut(buffer).is_none() {
                    let mut copy = buffer.pool().take(buffer.len());
                    copy.copy_from_slice(buffer);
                    *buffer = Arc::new(copy);
                }
                Arc::get_mut(buffer).expect("just made unique")
            }
        }
    }

    pub(crate) fn mat(&self) -> Mat<'_> {
        Mat::new(self.data(), self.rows, self.cols)
    }
}

vectorised! {
    fn squares(x: &[f32]) -> f32 {
        math::dot(x, x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_shared_tensor_leaves_the_other_untouched() {
        let device = Device::cpu();
        let original = Tensor::from_slice(&device, 1, 3, &[1.0, 2.0, 3.0]).unwrap();
        let mut copy = original.clone();
        assert!(copy.same_storage(&original));
        copy.update(|x| x[0] = 9.0);
        assert_eq!(original.to_host()[0], 1.0);
        assert_eq!(copy.to_host()[0], 9.0);
    }

    #[test]
    fn a_wrong_number_of_values_is_refused_with_both_numbers() {
        let error = Tensor::from_slice(&Device::cpu(), 2, 3, &[0.0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "tensor: number of values is 5, expected 6");
    }

    #[test]
    fn sum_of_squares_is_exact_on_integers() {
        let data: Vec<f32> = (0..10_001).map(|i| (i % 7) as f32).collect();
        let tensor = Tensor::from_slice(&Device::cpu(), 1, data.len(), &data).unwrap();
        let expected: f64 = data.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert_eq!(tensor.sum_of_squares(), expected);
    }
}
