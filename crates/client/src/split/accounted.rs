//! Rows that a ledger answers for: scaled down to a norm, with noise from the client's secret key.
//!
//! ```text
//! row   h min(1, C / |h|) + sigma C z        h = 0 where it is no number
//! key   secret, over what was asked, over each answer so far
//! ```
//! A server may ask the same again, and answer otherwise than before. If two different rows ever met the same noise, it
//! could subtract one from the other. So the key of a row's noise is made from everything that the row
//! follows from beside the client's examples: the request, the client's part of the model, and every answer since. The same
//! again gives the same bits again; anything else gives noise that nobody has seen.

use fedra_engine::{Noise, NoiseKind};
use fedra_seed::SecretKey;
use sha2::{Digest, Sha256};

use crate::error::{ClientError, Result};

/// Covers the rows of one exchange with the server.
#[derive(Clone, Debug)]
pub(crate) struct AccountedNoise {
    norm: f64,
    gradient_norm: f64,
    sigma: f64,
    key: SecretKey,
}

impl AccountedNoise {
    /// Before the first message; the key is that of the request.
    pub fn new(noise: Option<Noise>, key: SecretKey) -> Result<Self> {
        let kind = noise.map(|noise| noise.kind);
        let Some((noise, NoiseKind::Clipped { norm, sigma })) = noise.zip(kind) else {
            let found = kind.map_or("none".to_owned(), NoiseKind::describe);
            return Err(ClientError::privacy(format!(
                "rows at the cut are accounted for, and their noise is {found}, expected clipped rows"
            )));
        };
        let gradient_norm = noise.gradient_norm.unwrap_or(norm);
        Ok(Self { norm, gradient_norm, sigma, key })
    }

    /// Covers hidden states that leave in this step; tells by what each row was scaled.
    pub fn hidden(&self, rows: (&mut [f32], usize), step: u32) -> Vec<f32> {
        self.cover(rows, self.norm, &self.key.of("hidden").with(u64::from(step)))
    }

    /// Covers gradients that leave in this step.
    pub fn gradient(&self, rows: (&mut [f32], usize), step: u32) {
        self.cover(rows, self.gradient_norm, &self.key.of("gradient").with(u64::from(step)));
    }

    /// What leaves from here on follows from this answer too.
    pub fn hear(&mut self, answer: &[u8]) {
        self.key = self.key.over(&Sha256::digest(answer).into());
    }

    fn cover(&self, (rows, width): (&mut [f32], usize), norm: f64, key: &SecretKey) -> Vec<f32> {
        let factors = rows.chunks_exact_mut(width.max(1)).map(|row| clip(row, norm)).collect();
        key.add_normal(rows, 0, (self.sigma * norm) as f32);
        factors
    }
}

/// Scales a row down to a norm; one that is no number becomes zero.
fn clip(row: &mut [f32], norm: f64) -> f32 {
    let length = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() {
        row.fill(0.0);
        return 0.0;
    }
    if length <= norm {
        return 1.0;
    }
    // A factor of large values is too small for f32.
    let factor = norm / length;
    for value in row {
        *value = (f64::from(*value) * factor) as f32;
    }
    factor as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_engine::NoiseDraw;
    use fedra_seed::Seed;

    const WIDTH: usize = 500;

    fn noise(sigma: f64, gradient_norm: Option<f64>) -> Noise {
        let kind = NoiseKind::Clipped { norm: 2.0, sigma };
        Noise { kind, draw: NoiseDraw::Fresh, gradients: true, gradient_norm }
    }

    fn accounted(noise: Noise) -> AccountedNoise {
        AccountedNoise::new(Some(noise), SecretKey::simulated(Seed(1))).unwrap()
    }

    #[test]
    fn no_row_leaves_longer_than_its_norm_and_what_is_no_number_leaves_as_noise_alone() {
        let quiet = accounted(noise(1e-9, Some(0.5)));
        let length = |row: &[f32]| row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let worst = [0.001, 1.0, 3e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for (value, expected) in worst.into_iter().zip([0.0223, 2.0, 2.0, 0.0, 0.0, 0.0]) {
            let mut rows = vec![value; WIDTH];
            quiet.hidden((&mut rows, WIDTH), 0);
            assert!((length(&rows) - expected).abs() < 1e-3, "{value}: {}", length(&rows));
            assert!(length(&rows) <= 2.0 * (1.0 + 1e-6));
            quiet.gradient((&mut rows, WIDTH), 0);
            assert!(length(&rows) <= 0.5 * (1.0 + 1e-6));
        }
    }

    #[test]
    fn noise_is_sigma_times_the_norm_of_its_kind_of_row() {
        let loud = accounted(noise(3.0, Some(0.1)));
        let deviation = |rows: &[f32]| {
            (rows.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / rows.len() as f64).sqrt()
        };
        let mut rows = vec![0.0; 40 * WIDTH];
        loud.hidden((&mut rows, WIDTH), 0);
        assert!((deviation(&rows) / 6.0 - 1.0).abs() < 0.02, "{}", deviation(&rows));
        rows.fill(0.0);
        loud.gradient((&mut rows, WIDTH), 0);
        assert!((deviation(&rows) / 0.3 - 1.0).abs() < 0.02, "{}", deviation(&rows));
    }

    #[test]
    fn noise_comes_again_only_where_everything_before_it_does() {
        let of = |noise: &AccountedNoise, step| {
            let mut rows = vec![0.0; WIDTH];
            noise.hidden((&mut rows, WIDTH), step);
            rows
        };
        let first = accounted(noise(1.0, None));
        let heard = |answer: &[u8]| {
            let mut noise = first.clone();
            noise.hear(answer);
            noise
        };
        assert_eq!(of(&first, 0), of(&first, 0));
        assert_eq!(of(&heard(b"same"), 1), of(&heard(b"same"), 1));
        let mut gradient = vec![0.0; WIDTH];
        first.gradient((&mut gradient, WIDTH), 0);
        let all = [
            of(&first, 0),
            of(&first, 1),
            of(&heard(b"same"), 1),
            of(&heard(b"other"), 1),
            gradient,
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[..place].contains(one), "{place}");
        }
    }
}
