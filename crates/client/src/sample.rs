//! The part of a client's examples that is looked at to measure something.

use fedra_data::Encoded;
use fedra_seed::Seed;

/// At most so many examples, drawn by a seed, in their order.
pub(crate) fn sample(examples: &[Encoded], most: usize, seed: Seed) -> Vec<Encoded> {
    let mut order: Vec<usize> = (0..examples.len()).collect();
    seed.generator().shuffle(&mut order);
    order.truncate(most);
    order.sort_unstable();
    order.into_iter().map(|index| examples[index].clone()).collect()
}
