//! The mean of low-rank products, factored again into their rank.
//!
//! ```text
//! P = sum_k w_k B_k A_k = U V,   U = [w_1 B_1 .. w_n B_n],   V = [A_1; ..; A_n]
//! P = sum_i s_i u_i v_i^T        singular values of U V, from the small matrices U^T U and V V^T
//! B' = [sqrt(s_i) u_i],  A' = [sqrt(s_i) v_i^T]   for the r largest
//! ```
//! Where a singular value is zero, the row of A' is the mean of the rows, so that the adapter can go on learning.

/// A singular value below this share of the largest is zero.
const ZERO: f64 = 1e-9;

/// A low-rank adapter's factors `B` and `A`, and how much they count.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// Its share before it is divided by that of all.
    pub weight: f64,
    /// Rank times inputs.
    pub a: Vec<f32>,
    /// Outputs times rank.
    pub b: Vec<f32>,
}

/// The adapter of this rank nearest to the mean product `B A`, and squared norms: of what was lost, of all.
pub fn nearest_mean(factors: &[LowRank], rank: usize) -> (LowRank, f64, f64) {
    let total: f64 = factors.iter().map(|one| one.weight).sum();
    let inputs = factors[0].a.len() / rank;
    let outputs = factors[0].b.len() / rank;
    let stacked = factors.len() * rank;
    // Columns of U and rows of V, one for each client and rank.
    let column = |index: usize, row: usize| {
        let one = &factors[index / rank];
        one.weight / total * f64::from(one.b[row * rank + index % rank])
    };
    let row = |index: usize, column: usize| {
        f64::from(factors[index / rank].a[(index % rank) * inputs + column])
    };
    let gram = |length: usize, at: &dyn Fn(usize, usize) -> f64| {
        let mut gram = Square::of(stacked, |_, _| 0.0);
        for left in 0..stacked {
            for right in left..stacked {
                let dot = (0..length).map(|place| at(left, place) * at(right, place)).sum();
                gram.set(left, right, dot);
                gram.set(right, left, dot);
            }
        }
        gram
    };
    let (of_columns, of_rows) = (gram(outputs, &column), gram(inputs, &row));
    let (root, inverse_root) = of_columns.roots();
    let (values, vectors) = root.times(&of_rows).times(&root).eigen();
    let (of_v, of_u) = (root.times(&vectors), inverse_root.times(&vectors));
    let values: Vec<f64> = values.iter().map(|value| value.max(0.0)).collect();
    let all: f64 = values.iter().sum();
    let kept = rank.min(stacked);
    let lost: f64 = values.iter().skip(kept).sum();
    let floor = values.first().copied().unwrap_or(0.0) * ZERO * ZERO;

    let (mut a, mut b) = (vec![0.0; rank * inputs], vec![0.0; outputs * rank]);
    for index in 0..rank {
        let value = values.get(index).copied().unwrap_or(0.0);
        if index >= kept || value <= floor {
            for place in 0..inputs {
                let mean = factors
                    .iter()
                    .map(|one| one.weight / total * f64::from(one.a[index * inputs + place]));
                a[index * inputs + place] = mean.sum::<f64>() as f32;
            }
            continue;
        }
        let singular = value.sqrt();
        for place in 0..inputs {
            let sum: f64 = (0..stacked).map(|at| of_v.at(at, index) * row(at, place)).sum();
            a[index * inputs + place] = (sum / singular.sqrt()) as f32;
        }
        for place in 0..outputs {
            let sum: f64 = (0..stacked).map(|at| of_u.at(at, index) * column(at, place)).sum();
            b[place * rank + index] = (sum * singular.sqrt()) as f32;
        }
    }
    (LowRank { weight: total, a, b }, lost, all)
}

/// A small square matrix.
#[derive(Clone, Debug)]
struct Square {
    size: usize,
    numbers: Vec<f64>,
}

impl Square {
    fn of(size: usize, number: impl Fn(usize, usize) -> f64) -> Self {
        let numbers = (0..size * size).map(|at| number(at / size, at % size)).collect();
        Self { size, numbers }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.numbers[row * self.size + column]
    }

    fn set(&mut self, row: usize, column: usize, value: f64) {
        self.numbers[row * self.size + column] = value;
    }

    fn times(&self, other: &Self) -> Self {
        Self::of(self.size, |row, column| {
            (0..self.size).map(|at| self.at(row, at) * other.at(at, column)).sum()
        })
    }

    /// The symmetric square root and its pseudo-inverse.
    fn roots(&self) -> (Self, Self) {
        let (values, vectors) = self.eigen();
        let floor = values.first().copied().unwrap_or(0.0).max(0.0) * ZERO * ZERO;
        let of = |power: f64| {
            Self::of(self.size, |row, column| {
                let terms = (0..self.size).filter(|at| values[*at] > floor);
                terms
                    .map(|at| vectors.at(row, at) * values[at].powf(power) * vectors.at(column, at))
                    .sum()
            })
        };
        (of(0.5), of(-0.5))
    }

    /// Eigenvalues of a symmetric matrix, the largest first, and their vectors as columns, by Jacobi's rotations.
    fn eigen(&self) -> (Vec<f64>, Self) {
        let size = self.size;
        let mut matrix = self.clone();
        let mut vectors = Self::of(size, |row, column| f64::from(u8::from(row == column)));
        let scale: f64 = self.numbers.iter().map(|value| value * value).sum();
        for _sweep in 0..60 {
            let apart = |at: &usize| at / size != at % size;
            let off: f64 =
                (0..size * size).filter(apart).map(|at| matrix.numbers[at].powi(2)).sum();
            if off <= scale * 1e-30 {
                break;
            }
            for p in 0..size {
                for q in p + 1..size {
                    matrix.rotate(&mut vectors, p, q);
                }
            }
        }
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|left, right| matrix.at(*right, *right).total_cmp(&matrix.at(*left, *left)));
        let values = order.iter().map(|at| matrix.at(*at, *at)).collect();
        (values, Self::of(size, |row, column| vectors.at(row, order[column])))
    }

    /// Turns rows and columns `p` and `q` so that the element between them is zero.
    fn rotate(&mut self, vectors: &mut Self, p: usize, q: usize) {
        let between = self.at(p, q);
        if between == 0.0 {
            return;
        }
        let theta = (self.at(q, q) - self.at(p, p)) / (2.0 * between);
        let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
        let t = if theta == 0.0 { 1.0 } else { t };
        let c = 1.0 / (t * t + 1.0).sqrt();
        let s = t * c;
        for matrix in [&mut *self, vectors] {
            for at in 0..matrix.size {
                let (left, right) = (matrix.at(at, p), matrix.at(at, q));
                matrix.set(at, p, c * left - s * right);
                matrix.set(at, q, s * left + c * right);
            }
        }
        for at in 0..self.size {
            let (left, right) = (self.at(p, at), self.at(q, at));
            self.set(p, at, c * left - s * right);
            self.set(q, at, s * left + c * right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_seed::Seed;

    const INPUTS: usize = 7;
    const OUTPUTS: usize = 5;
    const RANK: usize = 2;

    fn drawn(seed: u64, numbers: usize) -> Vec<f32> {
        let mut draws = Seed(seed).generator();
        (0..numbers).map(|_| draws.normal() as f32).collect()
    }

    fn product(a: &[f32], b: &[f32]) -> Vec<f64> {
        let at = |row: usize, column: usize| -> f64 {
            (0..RANK)
                .map(|k| f64::from(b[row * RANK + k]) * f64::from(a[k * INPUTS + column]))
                .sum()
        };
        (0..OUTPUTS)
            .flat_map(|row| (0..INPUTS).map(move |column| (row, column)))
            .map(|(r, c)| at(r, c))
            .collect()
    }

    fn mean_product(factors: &[LowRank]) -> Vec<f64> {
        let total: f64 = factors.iter().map(|one| one.weight).sum();
        let mut mean = vec![0.0; OUTPUTS * INPUTS];
        for one in factors {
            for (sum, value) in mean.iter_mut().zip(product(&one.a, &one.b)) {
                *sum += one.weight / total * value;
            }
        }
        mean
    }

    fn distance(left: &[f64], right: &[f64]) -> f64 {
        left.iter().zip(right).map(|(l, r)| (l - r).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn a_mean_that_the_rank_can_hold_is_held_exactly_and_the_mean_of_factors_is_not_it() {
        // All clients share A, so the mean of their products has its rank.
        let a = drawn(1, RANK * INPUTS);
        let client =
            |seed, weight| LowRank { weight, a: a.clone(), b: drawn(seed, OUTPUTS * RANK) };
        let factors = [client(2, 1.0), client(3, 3.0), client(4, 2.0)];
        let (found, lost, all) = nearest_mean(&factors, RANK);
        let expected = mean_product(&factors);
        assert!(distance(&product(&found.a, &found.b), &expected) < 1e-5);
        assert!(lost <= 1e-12 * all);

        let own = |seed| LowRank {
            weight: 1.0,
            a: drawn(seed, RANK * INPUTS),
            b: drawn(seed + 9, OUTPUTS * RANK),
        };
        let factors = [own(5), own(6)];
        let mean = |pick: &dyn Fn(&LowRank) -> &Vec<f32>| -> Vec<f32> {
            pick(&factors[0]).iter().zip(pick(&factors[1])).map(|(l, r)| (l + r) / 2.0).collect()
        };
        let separate = product(&mean(&|one| &one.a), &mean(&|one| &one.b));
        let (found, lost, _) = nearest_mean(&factors, RANK);
        let expected = mean_product(&factors);
        let (near, far) =
            (distance(&product(&found.a, &found.b), &expected), distance(&separate, &expected));
        assert!((near - lost.sqrt()).abs() < 1e-4, "{near} and {}", lost.sqrt());
        assert!(near < far, "the nearest product of that rank: {near}, the mean of factors: {far}");
    }

    #[test]
    fn an_adapter_that_corrects_nothing_yet_stays_able_to_learn() {
        let client = |seed| LowRank {
            weight: 1.0,
            a: drawn(seed, RANK * INPUTS),
            b: vec![0.0; OUTPUTS * RANK],
        };
        let (found, ..) = nearest_mean(&[client(1), client(2)], RANK);
        assert!(found.b.iter().all(|value| *value == 0.0));
        assert!(found.a.iter().all(|value| *value != 0.0));
    }
}
