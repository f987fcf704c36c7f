//! Noise and dropout: the processor's own draws, on the device.

use crate::cuda::Cuda;
use crate::cuda::arguments::{Argument, Grid, Words, arguments};
use crate::cuda::compiler::Source::Draws;
use crate::tensor::Tensor;
use fedra_seed::{SecretKey, Seed};
use std::ops::Range;

/// Tensors that a kernel puts noise on, at most.
const NOISED: usize = 64;
/// Numbers that a block puts noise on.
const BLOCK: usize = 16 * fedra_seed::NOISE_GROUP;
/// Numbers that have a generator together.
const RUN: usize = crate::cpu::elementwise::RUN;

/// `x += deviation * normal` for each tensor by its key. Keys are arguments of the kernel and nowhere in memory.
pub(crate) fn add_noise(cuda: &Cuda, deviation: f32, tensors: &mut [(&mut Tensor, SecretKey)]) {
    for some in tensors.chunks_mut(NOISED) {
        let (mut words, mut starts, mut blocks) = (Vec::new(), Vec::new(), 0_u32);
        for (tensor, key) in &mut *some {
            let count = tensor.elements();
            tensor.numbers_mut().words(&mut words);
            words.push(count as u64);
            words.extend(key.words().as_chunks::<2>().0.iter().map(|two| pair(two[0], two[1])));
            starts.push(blocks);
            blocks += count.div_ceil(BLOCK) as u32;
        }
        words.resize(7 * NOISED, 0);
        starts.resize(NOISED, blocks);
        words.extend(starts.as_chunks::<2>().0.iter().map(|two| pair(two[0], two[1])));
        let grid = Grid::blocks((blocks, 1), (256, 1));
        if blocks > 0 {
            let given = arguments![Words(words), some.len() as u32, deviation];
            cuda.launch((Draws, "add_noise"), grid, given);
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Makes zeros of a share of some rows and divides the rest by theirs.
pub(crate) fn drop_out(cuda: &Cuda, x: &mut Tensor, rate: f32, rows: &[(Range<usize>, Seed)]) {
    let cols = x.cols();
    let parts: Vec<u64> = rows
        .iter()
        .flat_map(|(rows, Seed(seed))| {
            [(rows.start * cols) as u64, (rows.len() * cols) as u64, *seed]
        })
        .collect();
    let longest = rows.iter().map(|(rows, _)| (rows.len() * cols).div_ceil(RUN)).max().unwrap_or(0);
    let dropped = (f64::from(rate) * 2f64.powi(32)) as u32;
    let factor = 1.0 / (1.0 - rate);
    let jumps = cuda.jumps(jumps);
    let numbers = x.numbers_mut();
    // A grid has at most 65,535 rows of blocks.
    for some in parts.chunks(3 * 0xFFFF) {
        let table = cuda.upload(some);
        let grid = Grid::blocks((longest as u32, (some.len() / 3) as u32), (128, 1));
        if longest > 0 {
            let given = arguments![numbers, &table, &jumps, dropped, factor];
            cuda.launch((Draws, "drop_out"), grid, given);
        }
    }
}

/// 256 bits of a generator.
type State = [u64; 4];

/// A linear map of states: what each bit becomes.
struct Map(Vec<State>);

impl Map {
    fn of(image: impl Fn(State) -> State) -> Self {
        let bit = |number: usize| {
            let mut state = [0; 4];
            state[number / 64] = 1 << (number % 64);
            image(state)
        };
        Self((0..256).map(bit).collect())
    }

    fn apply(&self, state: State) -> State {
        let mut sum = [0; 4];
        for (number, image) in self.0.iter().enumerate() {
            if state[number / 64] >> (number % 64) & 1 == 1 {
                sum.iter_mut().zip(image).for_each(|(sum, word)| *sum ^= word);
            }
        }
        sum
    }

    fn twice(&self) -> Self {
        Self::of(|state| self.apply(self.apply(state)))
    }

    /// Powers from the zeroth on, interleaved: for each bit, what it becomes under each.
    fn powers(&self, count: usize) -> Vec<u64> {
        let mut all = vec![Self::of(|state| state)];
        while let Some(last) = all.last().filter(|_| all.len() < count) {
            all.push(Self::of(|state| self.apply(last.apply(state))));
        }
        (0..256).flat_map(|bit| all.iter().flat_map(move |map| map.0[bit])).collect()
    }
}

/// The tables by which the kernel's threads jump: 64 draws times 0 to 7, then 512 draws times 0 to 15.
fn jumps() -> Vec<u64> {
    let doubled = |map: Map, times: usize| (0..times).fold(map, |map, _| map.twice());
    let short = doubled(Map::of(next), 6);
    let mut tables = short.powers(8);
    tables.extend(doubled(short, 3).powers(16));
    tables
}

/// The state behind one draw of `fedra_seed`'s generator, xoshiro256++.
fn next([a, b, c, d]: State) -> State {
    let (c, d) = (c ^ a, d ^ b);
    [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_as_many_draws() {
        let tables = jumps();
        let jump = |state: State, first: usize, powers: usize, power: usize| {
            let image = |bit: usize| &tables[first + (bit * powers + power) * 4..][..4];
            let mut sum = [0; 4];
            for bit in (0..256).filter(|bit| state[bit / 64] >> (bit % 64) & 1 == 1) {
                sum.iter_mut().zip(image(bit)).for_each(|(sum, word)| *sum ^= word);
            }
            sum
        };
        // A state from which the generator's own draws can be told: splitmix64 of a seed.
        let start = [0x9E37_79B9, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB, u64::MAX / 3];
        let mut state = start;
        for draw in 0..8192 {
            if draw % 64 == 0 {
                let (short, long) = (draw / 64 % 8, draw / 512);
                let found = jump(jump(start, 0, 8, short), 256 * 8 * 4, 16, long);
                assert_eq!(found, state, "{draw}");
            }
            state = next(state);
        }
    }
}
