//! Sums, differences and norms of whole tensors: what clipping, corrections and updates are made of.

use crate::cpu::elementwise;
use crate::cpu::matmul::Stored;
use crate::cpu::row_norms::row_norms;
use crate::cuda::ops;
use crate::device::Device;
use crate::error::ComputeError;
use crate::tensor::Tensor;

impl Tensor {
    /// For each row the column of its highest number, the first of equal ones; `None` where one is not a number.
    pub fn argmax(&self) -> Vec<Option<u32>> {
        match &self.device() {
            Device::Cuda(cuda) => ops::argmax(cuda, self),
            Device::Cpu(_) | Device::Meta(_) => {
                let rows = self.read();
                rows.chunks_exact(self.cols().max(1)).map(elementwise::argmax).collect()
            }
        }
    }

    /// `self += factor * other`.
    pub fn add_scaled(&mut self, factor: f32, other: &Self) -> Result<(), ComputeError> {
        ComputeError::expect("sum", "shape", other.shape(), self.shape())?;
        match &self.device() {
            Device::Cuda(cuda) => ops::add_scaled(cuda, self, factor, other),
            Device::Cpu(_) | Device::Meta(_) => {
                self.change(|sum| elementwise::add_scaled(sum, factor, &other.read()));
            }
        }
        Ok(())
    }

    /// `self += factor * (to - from)`.
    pub fn add_scaled_difference(
        &mut self,
        factor: f32,
        to: &Self,
        from: &Self,
    ) -> Result<(), ComputeError> {
        ComputeError::expect("sum", "shape", to.shape(), self.shape())?;
        ComputeError::expect("difference", "shape", from.shape(), to.shape())?;
        match &self.device() {
            Device::Cuda(cuda) => ops::add_scaled_difference(cuda, self, factor, (to, from)),
            Device::Cpu(_) | Device::Meta(_) => self.change(|sum| {
                elementwise::add_scaled_difference(sum, factor, (&to.read(), &from.read()));
            }),
        }
        Ok(())
    }

    /// `self - other`.
    pub fn minus(&self, other: &Self) -> Result<Self, ComputeError> {
        ComputeError::expect("difference", "shape", other.shape(), self.shape())?;
        let mut difference = Self::scratch(&self.device(), self.rows(), self.cols());
        match &self.device() {
            Device::Cuda(cuda) => ops::subtract(cuda, &mut difference, (self, other)),
            Device::Cpu(_) | Device::Meta(_) => {
                difference
                    .change(|into| elementwise::subtract(into, (&self.read(), &other.read())));
            }
        }
        Ok(difference)
    }

    /// `self *= factor`.
    pub fn scale(&mut self, factor: f32) {
        match &self.device() {
            Device::Cuda(cuda) => ops::scale(cuda, self, factor),
            Device::Cpu(_) | Device::Meta(_) => self.change(|x| elementwise::scale(x, factor)),
        }
    }

    /// `self /= divisor`, element by element: not the same bits as a product with its inverse.
    pub fn divide(&mut self, divisor: f32) {
        match &self.device() {
            Device::Cuda(cuda) => ops::divide(cuda, self, divisor),
            Device::Cpu(_) | Device::Meta(_) => self.change(|x| elementwise::divide(x, divisor)),
        }
    }

    /// The norm of each row.
    pub fn row_norms(&self) -> Vec<f32> {
        let mut norms = vec![0.0; self.rows()];
        row_norms(Stored::f32(self.read().mat(self)), None, &mut norms);
        norms
    }

    /// Sum of squares, in f64 over fixed runs of the tensor, so that it is the same everywhere.
    pub fn sum_of_squares(&self) -> f64 {
        match &self.device() {
            Device::Cpu(_) => elementwise::sum_of_squares(&self.read()),
            Device::Meta(_) => 0.0,
            Device::Cuda(cuda) => ops::sum_of_squares(cuda, self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(numbers: &[f32]) -> Tensor {
        Tensor::from_slice(&Device::cpu(), 1, numbers.len(), numbers).unwrap()
    }

    #[test]
    fn sum_of_squares_is_exact_on_integers() {
        let data: Vec<f32> = (0..10_001).map(|i| (i % 7) as f32).collect();
        let expected: f64 = data.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert_eq!(row(&data).sum_of_squares(), expected);
    }

    #[test]
    fn sums_and_differences_are_those_of_each_element_at_any_length() {
        for len in [1, 15, 16_384, 16_385, 40_001] {
            let x: Vec<f32> = (0..len).map(|i| (i % 1000) as f32 * 0.25).collect();
            let y: Vec<f32> = (0..len).map(|i| (i % 77) as f32 - 9.0).collect();
            let mut sum = row(&x);
            sum.add_scaled(0.5, &row(&y)).unwrap();
            sum.add_scaled_difference(-2.0, &row(&y), &row(&x)).unwrap();
            sum.scale(3.0);
            sum.divide(7.0);
            let difference = sum.minus(&row(&y)).unwrap();
            for (i, found) in difference.to_host().iter().enumerate() {
                let expected = (x[i] + 0.5 * y[i] + -2.0 * (y[i] - x[i])) * 3.0 / 7.0 - y[i];
                assert_eq!(*found, expected, "{i} of {len}");
            }
        }
    }

    #[test]
    fn shapes_that_differ_are_refused() {
        let (mut long, short) = (row(&[1.0, 2.0]), row(&[1.0]));
        let refused = [
            long.add_scaled(1.0, &short),
            long.add_scaled_difference(1.0, &short, &short),
            long.minus(&short).map(drop),
        ];
        for error in refused {
            let message = error.unwrap_err().to_string();
            assert!(message.ends_with("shape is (1, 1), expected (1, 2)"), "{message}");
        }
        let same = long.clone();
        let error = long.add_scaled_difference(1.0, &same, &short).unwrap_err();
        assert_eq!(error.to_string(), "difference: shape is (1, 1), expected (1, 2)");
    }
}
