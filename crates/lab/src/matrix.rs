//! Small dense matrices in f64, and the few operations that the laboratory needs.
//!
//! No library: the matrices are a dozen numbers wide, and every element is one chain of additions in
//! the order of the depth, so a result has the same bits on every machine and with every number of
//! threads.

use fedra_seed::Generator;

/// Rows of numbers, one after another.
///
/// ```
/// # use fedra_lab::Matrix;
/// let a = Matrix::from_rows(&[&[2.0, 0.0], &[1.0, 3.0]]);
/// let b = Matrix::from_rows(&[&[1.0], &[2.0]]);
/// assert_eq!(a.times(&b), Matrix::from_rows(&[&[2.0], &[7.0]]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// All zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    /// Ones on the diagonal.
    pub fn identity(size: usize) -> Self {
        Self::zeros(size, size).with_ridge(1.0)
    }

    /// Independent normal numbers of a standard deviation.
    pub fn normal(rows: usize, columns: usize, deviation: f64, draw: &mut Generator) -> Self {
        let values = (0..rows * columns).map(|_| deviation * draw.normal()).collect();
        Self { rows, columns, values }
    }

    /// Numbers as written; every row must be as long as the first.
    pub fn from_rows(rows: &[&[f64]]) -> Self {
        let columns = rows.first().map_or(0, |row| row.len());
        assert!(rows.iter().all(|row| row.len() == columns), "rows of one length");
        Self { rows: rows.len(), columns, values: rows.concat() }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All numbers, row after row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// All numbers, to be changed.
    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// A range of rows, as one slice.
    pub fn row_span(&self, from: usize, count: usize) -> &[f64] {
        &self.values[from * self.columns..][..count * self.columns]
    }

    /// The product `self * other`.
    pub fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows, "inner sizes agree");
        product(|row, k| self.values[row * self.columns + k], (self.rows, self.columns), other)
    }

    /// The product `self^T * other`, without a transposed copy.
    pub fn transposed_times(&self, other: &Self) -> Self {
        assert_eq!(self.rows, other.rows, "inner sizes agree");
        product(|row, k| self.values[k * self.columns + row], (self.columns, self.rows), other)
    }

    /// The transpose.
    pub fn transposed(&self) -> Self {
        let mut out = Self::zeros(self.columns, self.rows);
        for i in 0..self.rows {
            for (j, value) in self.row(i).iter().enumerate() {
                out.values[j * self.rows + i] = *value;
            }
        }
        out
    }

    /// Adds `factor * other`.
    pub fn add_scaled(&mut self, factor: f64, other: &Self) {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns), "equal shapes");
        for (mine, theirs) in self.values.iter_mut().zip(&other.values) {
            *mine += factor * theirs;
        }
    }

    /// The difference `self - other`.
    pub fn minus(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.add_scaled(-1.0, other);
        out
    }

    /// Every number times a factor.
    pub fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Every number through a function.
    pub fn map(mut self, f: impl Fn(f64) -> f64) -> Self {
        self.values.iter_mut().for_each(|value| *value = f(*value));
        self
    }

    /// `self + shift * I`.
    pub fn with_ridge(mut self, shift: f64) -> Self {
        for i in 0..self.rows {
            self.values[i * self.columns + i] += shift;
        }
        self
    }

    /// The sum of products of equal places: `tr(self^T other)`.
    pub fn dot(&self, other: &Self) -> f64 {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns), "equal shapes");
        self.values.iter().zip(&other.values).map(|(a, b)| a * b).sum()
    }

    /// The Frobenius norm.
    pub fn norm(&self) -> f64 {
        self.dot(self).sqrt()
    }

    /// Whether every number is one.
    pub fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }

    /// The square matrix times itself `power` times.
    pub fn power(&self, power: u32) -> Self {
        let mut out = Self::identity(self.rows);
        let (mut base, mut left) = (self.clone(), power);
        while left > 0 {
            if left & 1 == 1 {
                out = out.times(&base);
            }
            base = base.times(&base);
            left >>= 1;
        }
        out
    }

    /// The `X` with `self X = right`, by the lower factor `L` with `L L^T = self`; none where `self` is not
    /// positive definite.
    pub fn solve(&self, right: &Self) -> Option<Self> {
        let (size, columns) = (self.rows, right.columns);
        assert_eq!((size, size), (self.columns, right.rows), "a factor needs a square matrix");
        let mut lower = Self::zeros(size, size);
        for i in 0..size {
            for j in 0..=i {
                let known: f64 =
                    lower.row(i)[..j].iter().zip(&lower.row(j)[..j]).map(|(a, b)| a * b).sum();
                let rest = self.row(i)[j] - known;
                lower.values[i * size + j] = if i == j {
                    if rest.is_nan() || rest <= 0.0 {
                        return None;
                    }
                    rest.sqrt()
                } else {
                    rest / lower.row(j)[j]
                };
            }
        }
        let mut x = right.clone();
        for column in 0..columns {
            for i in 0..size {
                let known: f64 =
                    (0..i).map(|j| lower.row(i)[j] * x.values[j * columns + column]).sum();
                let rest = x.values[i * columns + column] - known;
                x.values[i * columns + column] = rest / lower.row(i)[i];
            }
            for i in (0..size).rev() {
                let known: f64 =
                    (i + 1..size).map(|j| lower.row(j)[i] * x.values[j * columns + column]).sum();
                let rest = x.values[i * columns + column] - known;
                x.values[i * columns + column] = rest / lower.row(i)[i];
            }
        }
        Some(x)
    }

    /// The largest absolute eigenvalue of a symmetric matrix, by squaring: `|M^(2^k)|^(1/2^k)`.
    pub fn spectral_radius(&self) -> f64 {
        // |M^p|^(1/p) overstates the radius by at most size^(1/2p): 1e-9 at 2^30.
        const SQUARINGS: u32 = 30;
        let mut power = self.clone();
        let mut log = 0.0;
        for step in 0..SQUARINGS {
            let norm = power.norm();
            if norm == 0.0 || !norm.is_finite() {
                return norm;
            }
            power = power.scaled(1.0 / norm);
            log += norm.ln() / f64::from(1u32 << step);
            power = power.times(&power);
        }
        (log + power.norm().ln() / f64::from(1u32 << SQUARINGS)).exp()
    }
}

/// `left * right`, whose left factor is read by row and depth; a row of sums at a time.
fn product(
    left: impl Fn(usize, usize) -> f64,
    (rows, depth): (usize, usize),
    right: &Matrix,
) -> Matrix {
    let mut out = Matrix::zeros(rows, right.columns);
    for row in 0..rows {
        let sums = &mut out.values[row * right.columns..][..right.columns];
        for k in 0..depth {
            let a = left(row, k);
            sums.iter_mut().zip(right.row(k)).for_each(|(sum, b)| *sum += a * b);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_seed::Seed;

    fn plain(a: &Matrix, b: &Matrix) -> Matrix {
        let mut out = Matrix::zeros(a.rows, b.columns);
        for i in 0..a.rows {
            for j in 0..b.columns {
                out.values[i * b.columns + j] = (0..a.columns)
                    .fold(0.0, |sum, k| sum + a.values[i * a.columns + k] * b.row(k)[j]);
            }
        }
        out
    }

    #[test]
    fn products_are_sums_in_the_order_of_the_depth_at_every_size() {
        let mut draw = Seed(1).generator();
        for (rows, depth, columns) in [(1, 1, 1), (3, 5, 7), (4, 12, 6), (13, 2, 17), (9, 0, 3)] {
            let a = Matrix::normal(rows, depth, 1.0, &mut draw);
            let b = Matrix::normal(depth, columns, 1.0, &mut draw);
            assert_eq!(a.times(&b), plain(&a, &b), "{rows} {depth} {columns}");
            assert_eq!(a.transposed().transposed_times(&b), plain(&a, &b));
        }
    }

    #[test]
    fn a_cholesky_solution_solves_and_an_indefinite_matrix_has_none() {
        let mut draw = Seed(2).generator();
        let a = Matrix::normal(20, 7, 1.0, &mut draw);
        let gram = a.transposed_times(&a).with_ridge(0.1);
        let right = Matrix::normal(7, 3, 1.0, &mut draw);
        let x = gram.solve(&right).unwrap();
        assert!(gram.times(&x).minus(&right).norm() < 1e-12);
        assert!(gram.with_ridge(-1e3).solve(&right).is_none());
        let nothing = Matrix::from_rows(&[&[f64::NAN]]);
        assert!(nothing.solve(&nothing).is_none());
    }

    #[test]
    fn powers_and_the_spectral_radius_agree_with_a_known_spectrum() {
        // Eigenvalues 3 and -1.
        let m = Matrix::from_rows(&[&[1.0, 2.0], &[2.0, 1.0]]);
        assert_eq!(m.power(0), Matrix::identity(2));
        assert_eq!(m.power(5), m.times(&m).times(&m).times(&m).times(&m));
        assert!((m.spectral_radius() - 3.0).abs() < 1e-8);
        assert!((m.with_ridge(-2.5).spectral_radius() - 3.5).abs() < 1e-8);
    }
}
