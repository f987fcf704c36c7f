//! In which precision a GPU computes, and the words for it.

use std::fmt;
use std::str::FromStr;

/// In which precision a GPU computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout.
    #[default]
    F32,
    /// Tensors are f32; products round their factors to TF32 (10 bits of mantissa).
    Tf32,
    /// Activations and the factors of products are bf16; weights that learn, sums, norms and moments f32.
    Bf16,
}

impl Precision {
    /// All of them, the most exact first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];
    /// The words for them, for people.
    pub const WORDS: &'static str = "f32, tf32 or bf16";

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|precision| precision.name() == text);
        known.ok_or_else(|| format!("found {text:?}, expected {}", Self::WORDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_precision_is_read_back_from_its_word() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        let refused = "fp16".parse::<Precision>().unwrap_err();
        assert_eq!(refused, "found \"fp16\", expected f32, tf32 or bf16");
    }
}
