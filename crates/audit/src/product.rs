//! The little linear algebra that a closed form needs: products on the device, and the inverse of a
//! positive matrix in f64.

use fedra_compute::{Device, Projection, Tape, Tensor, Weight};
use fedra_plan::{Layer, ParamId, Part, Role};

use crate::error::{AuditError, Result};

/// `x W^T + b`.
pub(crate) fn product(x: Tensor, weight: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let device = x.device();
    let named = |tensor, part| {
        let id = ParamId::new(Layer::Head, Role::Classifier, part);
        Weight { id, tensor, trains: false }
    };
    let bias = bias.map(|bias| named(bias, Part::Bias));
    let projection = Projection { weight: named(weight, Part::Weight), bias, lora: None };
    let mut tape = Tape::new(&device);
    let x = tape.constant(x);
    Ok(tape.linear(&x, &[projection])?.tensor)
}

/// Rows as columns.
pub(crate) fn transposed(device: &Device, rows: &[f32], width: usize) -> Result<Tensor> {
    let height = rows.len() / width;
    let mut columns = vec![0.0; rows.len()];
    for (place, row) in rows.chunks_exact(width).enumerate() {
        for (column, number) in row.iter().enumerate() {
            columns[column * height + place] = *number;
        }
    }
    Ok(Tensor::from_slice(device, width, height, &columns)?)
}

/// The inverse of a symmetric positive matrix, by its Cholesky factor.
pub(crate) fn inverse(matrix: &[f64], size: usize) -> Result<Vec<f64>> {
    let mut lower = matrix.to_vec();
    for row in 0..size {
        for column in 0..=row {
            let (mine, other) = (&lower[row * size..], &lower[column * size..]);
            let sum: f64 = mine[..column].iter().zip(&other[..column]).map(|(a, b)| a * b).sum();
            let rest = lower[row * size + column] - sum;
            lower[row * size + column] = if column < row {
                rest / lower[column * size + column]
            } else if rest > 0.0 {
                rest.sqrt()
            } else {
                let expected = "a positive one: more public text, or text that varies more";
                return Err(AuditError::setting(
                    "covariance of states",
                    "a singular one",
                    expected,
                ));
            };
        }
    }
    // Row by row: the inverse of the factor, whose columns are independent of each other.
    let mut factor = vec![0.0; size * size];
    for row in 0..size {
        let diagonal = lower[row * size + row];
        let (above, rest) = factor.split_at_mut(row * size);
        let own = &mut rest[..size];
        for middle in 0..row {
            let weight = lower[row * size + middle];
            let other = &above[middle * size..][..=middle];
            own.iter_mut().zip(other).for_each(|(own, other)| *own -= weight * other);
        }
        own[row] = 1.0;
        own[..=row].iter_mut().for_each(|own| *own /= diagonal);
    }
    let mut inverse = vec![0.0; size * size];
    for middle in 0..size {
        let own = &factor[middle * size..][..=middle];
        for (row, weight) in own.iter().enumerate() {
            let into = &mut inverse[row * size..][..=middle];
            into.iter_mut().zip(own).for_each(|(into, other)| *into += weight * other);
        }
    }
    Ok(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_times_its_inverse_is_the_identity() {
        let size = 7;
        let number = |row: usize, column: usize| ((row * 31 + column * 17) % 11) as f64 - 5.0;
        let mut matrix = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..size {
                let sum: f64 = (0..size).map(|k| number(row, k) * number(column, k)).sum();
                matrix[row * size + column] = sum + if row == column { 1.0 } else { 0.0 };
            }
        }
        let inverse = inverse(&matrix, size).unwrap();
        for row in 0..size {
            for column in 0..size {
                let cell = |k| matrix[row * size + k] * inverse[k * size + column];
                let sum: f64 = (0..size).map(cell).sum();
                let expected = if row == column { 1.0 } else { 0.0 };
                assert!((sum - expected).abs() < 1e-9, "{row} {column} {sum}");
            }
        }
    }

    #[test]
    fn a_singular_matrix_is_refused() {
        assert!(inverse(&[1.0, 1.0, 1.0, 1.0], 2).is_err());
    }
}
