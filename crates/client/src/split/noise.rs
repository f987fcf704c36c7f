//! What is done to rows before they leave a client.
//!
//! ```text
//! relative   h + gamma rms(h) z                  z: standard normal, one for each element
//! clipped    h min(1, C / |h|) + sigma C z
//! absolute   h + 1.2533 scale z
//! ```
//! The seed is the client's own: a server that knew it could subtract the noise. `Cached` noise
//! depends on the example alone, so that the same text always leaves with the same noise.

use fedra_compute::{add_noise_to_row, square_of_row};
use fedra_engine::{Noise, NoiseDraw, NoiseKind};
use fedra_seed::Seed;

/// Adds noise to rows.
#[derive(Clone, Copy, Debug)]
pub struct Perturbation {
    /// The noise.
    pub noise: Noise,
    seed: Seed,
}

/// Where the rows of a message come from.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    /// Names the message among all that ever leave: round, step.
    pub message: Seed,
    /// The example of each sequence, the same whenever it comes again.
    pub examples: &'a [u64],
    /// The length of each sequence.
    pub lengths: &'a [usize],
}

impl Perturbation {
    /// Noise whose draws start at a seed that only the client knows.
    pub const fn new(noise: Noise, seed: Seed) -> Self {
        Self { noise, seed }
    }

    /// Changes rows of a text that is being written, which leave in this message.
    pub fn rows(&self, (rows, width): (&mut [f32], usize), message: Seed) {
        let lengths = [rows.len() / width.max(1)];
        let occasion = Occasion { message, examples: &[0], lengths: &lengths };
        self.perturb((rows, width), occasion, "written");
    }

    /// Changes rows that are about to leave. Tells by what each was scaled, where rows are clipped.
    pub fn hidden(&self, (rows, width): (&mut [f32], usize), occasion: Occasion<'_>) -> Vec<f32> {
        self.perturb((rows, width), occasion, "hidden")
    }

    /// Changes gradients that are about to leave, where they get noise at all.
    pub(crate) fn gradient(&self, (rows, width): (&mut [f32], usize), occasion: Occasion<'_>) {
        if self.noise.gradients {
            self.for_gradients().perturb((rows, width), occasion, "gradient");
        }
    }

    /// The same with the largest norm of gradients, where they have one of their own.
    const fn for_gradients(&self) -> Self {
        let kind = match (self.noise.kind, self.noise.gradient_norm) {
            (NoiseKind::Clipped { sigma, .. }, Some(norm)) => NoiseKind::Clipped { norm, sigma },
            (kind, _) => kind,
        };
        Self { noise: Noise { kind, ..self.noise }, seed: self.seed }
    }

    fn perturb(
        &self,
        (rows, width): (&mut [f32], usize),
        occasion: Occasion<'_>,
        what: &str,
    ) -> Vec<f32> {
        let mut factors = Vec::with_capacity(occasion.lengths.iter().sum());
        let mut rows = rows.chunks_exact_mut(width.max(1));
        let seed = self.seed.of(what);
        for ((sequence, &example), &length) in
            occasion.examples.iter().enumerate().zip(occasion.lengths)
        {
            let seed = match self.noise.draw {
                NoiseDraw::Cached => seed.of("example").with(example),
                NoiseDraw::Fresh => seed.with(occasion.message.0).with(sequence as u64),
            };
            let mut draws = seed.generator();
            for row in rows.by_ref().take(length) {
                let (factor, deviation) = self.measure(row);
                factors.push(factor);
                add_noise_to_row(row, (factor, deviation), &mut draws);
            }
        }
        factors
    }

    /// By what a row is scaled, and the standard deviation of the noise that it gets.
    pub fn measure(&self, row: &[f32]) -> (f32, f64) {
        let squares = square_of_row(row);
        match self.noise.kind {
            NoiseKind::Relative { gamma } => (1.0, gamma * (squares / row.len() as f64).sqrt()),
            NoiseKind::Absolute { scale } => (1.0, NoiseKind::ABSOLUTE * scale),
            NoiseKind::Clipped { norm, sigma } => {
                let length = squares.sqrt();
                let factor = if length > norm { (norm / length) as f32 } else { 1.0 };
                (factor, sigma * norm)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noised(kind: NoiseKind, draw: NoiseDraw, message: u64) -> Vec<f32> {
        let noise = Noise { kind, draw, gradients: true, gradient_norm: None };
        let mut rows: Vec<f32> = (0..4000).map(|number| f32::from(number < 2000) + 1.0).collect();
        let occasion = Occasion { message: Seed(message), examples: &[5, 9], lengths: &[1, 1] };
        Perturbation::new(noise, Seed(3)).hidden((&mut rows, 2000), occasion);
        rows
    }

    fn deviation(rows: &[f32], mean: f32) -> f64 {
        let squares = rows.iter().map(|value| f64::from(value - mean).powi(2)).sum::<f64>();
        (squares / rows.len() as f64).sqrt()
    }

    #[test]
    fn noise_is_as_large_as_its_kind_says_row_by_row() {
        let rows = noised(NoiseKind::Relative { gamma: 0.5 }, NoiseDraw::Fresh, 1);
        assert!((deviation(&rows[..2000], 2.0) - 1.0).abs() < 0.05);
        assert!((deviation(&rows[2000..], 1.0) - 0.5).abs() < 0.03);
        let rows = noised(NoiseKind::Absolute { scale: 0.1 }, NoiseDraw::Fresh, 1);
        assert!((deviation(&rows[..2000], 2.0) - 0.12533).abs() < 0.01);
        let norm = 10.0;
        let rows = noised(NoiseKind::Clipped { norm, sigma: 0.01 }, NoiseDraw::Fresh, 1);
        let clipped = (norm / 2000_f64.sqrt()) as f32;
        assert!((deviation(&rows[..2000], clipped) - 0.1).abs() < 0.01);
    }

    #[test]
    fn cached_noise_is_the_same_whenever_an_example_comes_and_fresh_noise_is_not() {
        let kind = NoiseKind::Relative { gamma: 0.5 };
        let cached = |message| noised(kind, NoiseDraw::Cached, message);
        let fresh = |message| noised(kind, NoiseDraw::Fresh, message);
        assert_eq!(cached(1), cached(2));
        assert_ne!(fresh(1), fresh(2));
        assert_eq!(fresh(1), fresh(1));
    }
}
