//! Positions of an image's patches for another grid of patches: bicubic, as the library has it.
//!
//! Models with registers smooth what they shrink (`antialias`), with the filter of Keys at -0.5; the others
//! read four neighbours by that at -0.75, whatever the sizes. Neither aligns corners.

use crate::image_input::ImageInput;

/// The rows of a position table for other images: those in front of the patches as they are, and the patches'
/// interpolated.
pub(crate) fn interpolate(table: &[f32], (from, to): (ImageInput, ImageInput)) -> Vec<f32> {
    if from.grid() == to.grid() {
        return table.to_vec();
    }
    let width = table.len() / from.positions();
    let (kept, patches) = table.split_at(from.summaries() * width);
    let ((rows, columns), (new_rows, new_columns)) = (from.grid(), to.grid());
    let is_smooth = from.registers > 0;
    let patches: Vec<f64> = patches.iter().copied().map(f64::from).collect();
    let upright = weighted(&patches, columns * width, &weights((rows, new_rows), is_smooth));
    let across = weights((columns, new_columns), is_smooth);
    let lines = upright.chunks_exact(columns * width);
    let patches = lines.flat_map(|line| weighted(line, width, &across));
    kept.iter().copied().chain(patches.map(|value| value as f32)).collect()
}

/// Sums of rows of `width` numbers, each sum with the weights of the rows that it reads.
fn weighted(rows: &[f64], width: usize, weights: &[Vec<(usize, f64)>]) -> Vec<f64> {
    let mut sums = vec![0.0; weights.len() * width];
    for (sum, weights) in sums.chunks_exact_mut(width).zip(weights) {
        for &(row, weight) in weights {
            let row = &rows[row * width..][..width];
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
        }
    }
    sums
}

/// What each of `to` places reads of `from` places.
fn weights((from, to): (usize, usize), is_smooth: bool) -> Vec<Vec<(usize, f64)>> {
    let scale = from as f64 / to as f64;
    let at = |place: usize| scale * (place as f64 + 0.5);
    let near = |place: usize| {
        let center = at(place) - 0.5;
        let read = [-1.0, 0.0, 1.0, 2.0].map(|step| {
            let other = center.floor() + step;
            let inside = (other.max(0.0) as usize).min(from - 1);
            (inside, cubic(other - center, -0.75))
        });
        read.to_vec()
    };
    let smooth = |place: usize| {
        let (wide, center) = (scale.max(1.0), at(place));
        let first = (center - 2.0 * wide + 0.5).max(0.0) as usize;
        let end = ((center + 2.0 * wide + 0.5) as usize).min(from);
        let weight = |other: usize| cubic((other as f64 - center + 0.5) / wide, -0.5);
        let sum: f64 = (first..end).map(weight).sum();
        (first..end).map(|other| (other, weight(other) / sum)).collect()
    };
    (0..to).map(|place| if is_smooth { smooth(place) } else { near(place) }).collect()
}

/// The cubic filter of Keys (1981).
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}
