//! The three element types that convert to f32 without loss, out of all that a safetensors file may
//! carry. A file with integers in it is no mistake; reading one of them as a weight would be.

use ::safetensors::Dtype;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// An element type that converts to f32 without loss, and that weights can be saved in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// IEEE single.
    #[default]
    F32,
    /// IEEE half: 11 bits of significand, largest value 65504.
    F16,
    /// The upper half of an f32: 8 bits of significand, the full range.
    BF16,
}

impl Precision {
    const ALL: [Self; 3] = [Self::F32, Self::F16, Self::BF16];

    /// How to read elements of a type as f32, or nothing where that would not be exact.
    pub fn of(dtype: Dtype) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.dtype() == dtype)
    }

    /// Bytes per element.
    pub const fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// The element type this is.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::BF16 => Dtype::BF16,
        }
    }

    /// The name `config.json` uses for it.
    pub const fn torch_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
        }
    }

    /// Appends the elements in `bytes` (little-endian, a whole number of them) to `values`.
    pub(crate) fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        match self {
            Self::F32 => {
                values.extend(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
            }
            Self::F16 => {
                let halves: Vec<f16> =
                    bytes.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
                let start = values.len();
                values.resize(start + halves.len(), 0.0);
                // By slices: the conversion instruction is looked up once, not per element.
                halves.convert_to_f32_slice(&mut values[start..]);
            }
            Self::BF16 => values
                .extend(bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32())),
        }
    }

    /// Appends `values` to `bytes`, rounding to nearest even.
    ///
    /// # Errors The first finite value too large for this type: saving it as infinity would ruin
    /// the model silently.
    pub(super) fn encode(self, values: &[f32], bytes: &mut Vec<u8>) -> Result<(), f32> {
        for &value in values {
            let overflows = match self {
                Self::F32 => {
                    bytes.extend(value.to_le_bytes());
                    false
                }
                Self::F16 => {
                    let half = f16::from_f32(value);
                    bytes.extend(half.to_le_bytes());
                    half.is_infinite()
                }
                Self::BF16 => {
                    let half = bf16::from_f32(value);
                    bytes.extend(half.to_le_bytes());
                    half.is_infinite()
                }
            };
            if overflows && value.is_finite() {
                return Err(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(precision: Precision, bits: &[u16]) -> Vec<u32> {
        let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        let mut values = Vec::new();
        precision.decode(&bytes, &mut values);
        values.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn half_subnormals_infinities_and_zeros_decode_exactly() {
        let exact = [0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x8000, 0x3c00];
        let expected = [
            2f32.powi(-24),
            1023.0 * 2f32.powi(-24),
            2f32.powi(-14),
            65504.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
            1.0,
        ];
        assert_eq!(decoded(Precision::F16, &exact), expected.map(f32::to_bits));
        assert!(f32::from_bits(decoded(Precision::F16, &[0x7e01])[0]).is_nan());
    }

    #[test]
    fn bfloat_is_the_upper_half_of_a_float_for_every_bit_pattern() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for (bits, value) in all.iter().zip(decoded(Precision::BF16, &all)) {
            let expected = f32::from_bits(u32::from(*bits) << 16);
            assert!(value == expected.to_bits() || expected.is_nan(), "{bits:#06x}");
        }
    }

    #[test]
    fn every_finite_half_survives_a_round_trip() {
        for precision in [Precision::F16, Precision::BF16] {
            let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let mut values = Vec::new();
            precision.decode(&all, &mut values);
            let mut back = Vec::new();
            precision.encode(&values, &mut back).unwrap();
            for ((value, before), after) in values.iter().zip(all.chunks(2)).zip(back.chunks(2)) {
                assert!(value.is_nan() || before == after);
            }
        }
    }

    #[test]
    fn a_finite_value_never_becomes_infinite_on_the_way_out() {
        let mut bytes = Vec::new();
        assert_eq!(Precision::F16.encode(&[1.0, 65520.0], &mut bytes), Err(65520.0));
        assert_eq!(Precision::BF16.encode(&[f32::MAX], &mut bytes), Err(f32::MAX));
        assert_eq!(Precision::F16.encode(&[f32::INFINITY, 65519.0], &mut bytes), Ok(()));
    }
}
