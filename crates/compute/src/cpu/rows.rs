//! Looking rows up in tables and adding rows back to them.

use super::elementwise::RUN;
use crate::thread_pool;

/// `into[i] = sum over tables of table[index[i]]`, row by row.
pub fn gather(into: &mut [f32], width: usize, tables: &[(&[f32], &[u32])]) {
    let rows = (RUN / width.max(1)).max(1);
    thread_pool::each_chunk(into, rows * width, |task, into| {
        for (i, into) in into.chunks_exact_mut(width).enumerate() {
            for (number, (table, index)) in tables.iter().enumerate() {
                let row = &table[index[task * rows + i] as usize * width..][..width];
                if number == 0 {
                    into.copy_from_slice(row);
                } else {
                    for (into, x) in into.iter_mut().zip(row) {
                        *into += x;
                    }
                }
            }
        }
    });
}

/// `into[index[i]] += from[i]`; indices may repeat.
pub fn scatter_add(into: &mut [f32], width: usize, index: &[u32], from: &[f32]) {
    for (row, from) in index.iter().zip(from.chunks_exact(width)) {
        for (into, x) in into[*row as usize * width..][..width].iter_mut().zip(from) {
            *into += x;
        }
    }
}

/// Which rows occur in an index, ascending, and for each the places where it occurs, in order.
#[derive(Debug)]
pub struct Occurrences {
    /// Rows that occur, ascending.
    pub rows: Vec<u32>,
    places: Vec<u32>,
    starts: Vec<usize>,
}

impl Occurrences {
    /// Sorts an index by row, keeping the order of equal rows.
    pub fn of(index: &[u32]) -> Self {
        // The row in front of the place in one number: no two are equal, and nothing is looked up.
        let pair = |(place, row): (usize, &u32)| u64::from(*row) << 32 | place as u64;
        let mut pairs: Vec<u64> = index.iter().enumerate().map(pair).collect();
        pairs.sort_unstable();
        let places: Vec<u32> = pairs.iter().map(|pair| *pair as u32).collect();
        let (mut rows, mut starts) = (Vec::new(), Vec::new());
        for (i, pair) in pairs.iter().enumerate() {
            let row = (pair >> 32) as u32;
            if rows.last() != Some(&row) {
                rows.push(row);
                starts.push(i);
            }
        }
        starts.push(places.len());
        Self { rows, places, starts }
    }

    /// Where the places of each row begin, and all places.
    pub fn places(&self) -> (&[usize], &[u32]) {
        (&self.starts, &self.places)
    }

    /// `into[k] = sum of from[place]` over the places of row `rows[k]`, added in order of place.
    pub fn sum_rows(&self, into: &mut [f32], width: usize, from: &[f32]) {
        const ROWS: usize = 16;
        let used = &mut into[..self.rows.len() * width];
        thread_pool::each_chunk(used, ROWS * width, |task, sums| {
            for (i, sum) in sums.chunks_exact_mut(width).enumerate() {
                let k = task * ROWS + i;
                sum.fill(0.0);
                for &place in &self.places[self.starts[k]..self.starts[k + 1]] {
                    let row = &from[place as usize * width..][..width];
                    for (sum, x) in sum.iter_mut().zip(row) {
                        *sum += x;
                    }
                }
            }
        });
    }
}
