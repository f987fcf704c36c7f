//! Seeds that name what they are for, and the generator they start.
//!
//! There is no global generator: every draw comes from a seed derived from the experiment's seed and
//! the names of whatever the draw is for, so a result does not depend on what was drawn before it.

mod draws;
mod noise;
mod secret;

pub use draws::index_at;
pub use noise::NOISE_GROUP;
pub use secret::SecretKey;

/// The start of a stream of random numbers.
///
/// ```
/// # use fedra_seed::Seed;
/// let experiment = Seed(1);
/// let weights = experiment.of("weights");
/// assert_ne!(weights, experiment.of("sampling"));
/// assert_eq!(weights.with(3), experiment.of("weights").with(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed for a purpose.
    pub fn of(self, purpose: &str) -> Self {
        const NAMED: u64 = 0x6E61_6D65_645F_7365; // keeps names apart from numbers
        let start = Self(self.0 ^ NAMED).with(purpose.len() as u64);
        purpose.bytes().fold(start, |seed, byte| seed.with(u64::from(byte)))
    }

    /// The seed for a numbered thing: a round, a client, a parameter.
    pub fn with(self, number: u64) -> Self {
        Self(mix(mix(self.0).wrapping_add(number)))
    }

    /// Starts drawing.
    pub fn generator(self) -> Generator {
        let mut state = [0; 4];
        let mut word = self.0;
        for part in &mut state {
            word = word.wrapping_add(GOLDEN);
            *part = mix(word);
        }
        Generator { state, spare: None }
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of splitmix64: a bijection that scatters neighbouring numbers.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// xoshiro256++: fast and good, but not for privacy noise, which comes from a [`SecretKey`].
#[derive(Clone, Debug)]
pub struct Generator {
    state: [u64; 4],
    spare: Option<f64>,
}

impl Generator {
    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0 .. limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// Puts items in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Leaves a uniform sample of so many items without replacement, in random order.
    pub fn sample<T>(&mut self, items: &mut Vec<T>, count: usize) {
        let count = count.min(items.len());
        for place in 0..count {
            let drawn = place + self.below(items.len() - place);
            items.swap(place, drawn);
        }
        items.truncate(count);
    }

    /// Standard normal, by the polar method.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (u, v) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                let factor = (-2.0 * s.ln() / s).sqrt();
                self.spare = Some(v * factor);
                return u * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_for_different_purposes_start_different_streams() {
        let seed = Seed(7);
        let mut first: Vec<u64> = ["a", "b", "ab", "ba", ""]
            .iter()
            .map(|purpose| seed.of(purpose).generator().bits())
            .chain((0..100).map(|n| seed.with(n).generator().bits()))
            .collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 105);
    }

    #[test]
    fn normal_draws_have_mean_zero_and_variance_one() {
        let mut generator = Seed(3).generator();
        let draws: Vec<f64> = (0..100_000).map(|_| generator.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn below_reaches_every_value_and_no_other() {
        let mut generator = Seed(5).generator();
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[generator.below(7)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
    }
}
