//! Which token follows: the likeliest one, or a draw from a filtered distribution.
//!
//! Every draw has a seed of its own, made from the seed and the token's number, so a
//! generation that was interrupted continues as if it had not been.
//!
//! ```text
//! p = softmax(logits / temperature)      over the k likeliest (ties with the last one stay)
//! a token goes if it and all less likely ones together have at most 1 - top_p
//! ```

use crate::{ClientError, Result};
use fedra_compute::Tensor;
use fedra_model::{RandomSampling, first_nan, highest};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sampling {
    /// The likeliest token; of equal ones the one with the lowest number.
    #[default]
    Greedy,
    /// A draw.
    Random(RandomSampling),
}

impl Sampling {
    /// Refuses settings under which nothing could be drawn.
    pub fn check(&self) -> Result<()> {
        let Self::Random(RandomSampling { temperature, top_k, top_p, .. }) = *self else {
            return Ok(());
        };
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(ClientError::generate("temperature", temperature, "a number above 0"));
        }
        if top_k == Some(0) {
            return Err(ClientError::generate("top_k", 0, "at least 1"));
        }
        match top_p {
            Some(top_p) if !(top_p > 0.0 && top_p <= 1.0) => {
                Err(ClientError::generate("top_p", top_p, "above 0 and at most 1"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The token that follows a row of logits, as number `index` of those generated. The likeliest is found where
    /// the logits are.
    pub fn choose_from(&self, logits: &Tensor, index: u64) -> Result<u32> {
        match (self, logits.argmax().first().copied().flatten()) {
            (Self::Greedy, Some(likeliest)) => Ok(likeliest),
            (Self::Greedy | Self::Random(_), _) => self.choose(&logits.to_host(), index),
        }
    }

    /// The token that follows, as number `index` of those generated.
    pub fn choose(&self, logits: &[f32], index: u64) -> Result<u32> {
        if let Some(at) = first_nan(logits) {
            return Err(ClientError::generate("logits", format!("NaN for token {at}"), "numbers"));
        }
        if logits.is_empty() {
            return Err(ClientError::generate("logits", "none", "one for each word"));
        }
        let likeliest = highest(logits);
        match self {
            Self::Greedy => Ok(likeliest),
            Self::Random(random) => {
                let seed = random.seed.of("token").with(index);
                let mut left = seed.generator().uniform();
                for candidate in random.candidates(logits) {
                    left -= candidate.probability;
                    if left < 0.0 {
                        return Ok(candidate.token);
                    }
                }
                // Shares that round to a little less than one leave the rest to the likeliest.
                Ok(likeliest)
            }
        }
    }
}
