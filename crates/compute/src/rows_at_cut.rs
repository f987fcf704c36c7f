//! What is done to rows that cross a cut, in main memory: noise, and the gradient of clipped rows.

use fedra_seed::Generator;

/// The sum of a row's squares.
pub fn square_of_row(row: &[f32]) -> f64 {
    row.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
}

/// `row = factor row + deviation z`, with z standard normal, drawn for one element after the other.
pub fn add_noise_to_row(row: &mut [f32], (factor, deviation): (f32, f64), draws: &mut Generator) {
    for value in row {
        *value = (f64::from(*value * factor) + deviation * draws.normal()) as f32;
    }
}

/// The gradient of rows before they were scaled down to a norm, from that of the scaled ones. Where
/// a row was scaled by `f = C / |h|`, what pointed along the row is gone: `f (g - u (u . g))`.
pub fn unclip(gradient: &mut [f32], (rows, width): (&[f32], usize), factors: &[f32]) {
    let rows = rows.chunks_exact(width.max(1));
    for ((gradient, row), &factor) in gradient.chunks_exact_mut(width.max(1)).zip(rows).zip(factors)
    {
        if factor >= 1.0 {
            continue;
        }
        if factor <= 0.0 {
            gradient.fill(0.0);
            continue;
        }
        let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
        let along: f64 =
            row.iter().zip(&*gradient).map(|(h, g)| f64::from(*h) * f64::from(*g)).sum();
        for (gradient, value) in gradient.iter_mut().zip(row) {
            let across = f64::from(*gradient) - f64::from(*value) * along / squares;
            *gradient = (f64::from(factor) * across) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_of_a_clipped_row_is_that_of_the_formula() {
        let (row, weights, norm) = ([3.0_f32, -4.0, 1.0], [0.3_f32, 0.7, -0.2], 2.0_f64);
        let value = |row: &[f32]| -> f64 {
            let length = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            row.iter().zip(&weights).map(|(x, w)| f64::from(x * w) * norm / length).sum()
        };
        let length = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let mut gradient = weights;
        unclip(&mut gradient, (&row, 3), &[(norm / length) as f32]);
        for place in 0..3 {
            let shifted = |by: f32| {
                let mut row = row;
                row[place] += by;
                value(&row)
            };
            let slope = (shifted(1e-2) - shifted(-1e-2)) / 2e-2;
            assert!((slope - f64::from(gradient[place])).abs() < 1e-4, "{slope} {gradient:?}");
        }
    }
}
