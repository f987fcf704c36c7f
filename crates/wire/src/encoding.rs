//! How values become bytes, from exact to coarse.
//!
//! An encoding is plain data with one spelling in files: `"f32"`, `"bf16"`, `"int8"`,
//! `{ int8 = { feedback = true } }`, `{ top_k = 0.1 }`,
//! `{ top_k = { share = 0.1, feedback = true } }`, `{ pruned = { share = 0.1 } }`,
//! `{ heads = { share = 0.5, of = 12 } }`.

use std::fmt;

use fedra_plan::{Layer, ParamId, Shape};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::WireError;
use crate::heads::HeadSlices;

/// A way to write the values of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case", deny_unknown_fields)]
pub enum Encoding {
    /// Four bytes an element, exact.
    #[default]
    F32,
    /// Two bytes: eleven bits of precision, at most 65504.
    F16,
    /// Two bytes: eight bits of precision, the range of f32.
    Bf16,
    /// One byte an element and one scale a row: the row's largest magnitude is 127.
    Int8 {
        /// Whether what rounding lost is added to the next update.
        feedback: bool,
    },
    /// Only the elements of largest magnitude of each parameter; the others count as zero.
    TopK {
        /// Which share of a parameter's elements is kept; at least one element always is.
        share: f64,
        /// Whether what was left out is added to the next update.
        #[serde(default)]
        feedback: bool,
    },
    /// As [`Encoding::TopK`] inside blocks; embedding and head go whole, in f32.
    Pruned {
        /// Which share of the elements of a block's parameter is kept.
        share: f64,
        /// Whether what was left out is added to the next update.
        #[serde(default)]
        feedback: bool,
    },
    /// Of attention only the [slices](crate::HeadSlices) of some heads, in f32: those of the largest
    /// norm in each parameter, so that whoever chooses heads leaves zeros in all others. Everything
    /// that belongs to no head goes whole.
    Heads {
        /// Which share of the heads is kept; at least one always is.
        share: f64,
        /// How many heads there are.
        of: u16,
    },
}

impl Encoding {
    /// The encoding of one parameter under this one.
    pub(crate) fn at(self, id: ParamId, shape: Shape) -> Self {
        match (self, id.layer) {
            (Self::Pruned { .. }, Layer::Embedding | Layer::Head) => Self::F32,
            (Self::Heads { of, .. }, _) if HeadSlices::of(id, shape, of).is_none() => Self::F32,
            (_, Layer::Embedding | Layer::Block(_) | Layer::Head) => self,
        }
    }

    /// Refuses a share outside (0, 1].
    pub fn check(self) -> Result<(), WireError> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Int8 { .. } => Ok(()),
            Self::TopK { share, .. } | Self::Pruned { share, .. } | Self::Heads { share, .. } => {
                let is_legal = share > 0.0 && share <= 1.0;
                if is_legal { Ok(()) } else { Err(WireError::Share { found: share }) }
            }
        }
    }

    /// Whether the sender keeps what this encoding lost for the next update.
    pub const fn feedback(self) -> bool {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Heads { .. } => false,
            Self::Int8 { feedback }
            | Self::TopK { feedback, .. }
            | Self::Pruned { feedback, .. } => feedback,
        }
    }

    /// The name, without settings.
    pub const fn name(self) -> &'static str {
        self.code_and_name().1
    }

    pub(crate) const fn code(self) -> u8 {
        self.code_and_name().0
    }

    const fn code_and_name(self) -> (u8, &'static str) {
        match self {
            Self::F32 => (0, "f32"),
            Self::F16 => (1, "f16"),
            Self::Bf16 => (2, "bf16"),
            Self::Int8 { .. } => (3, "int8"),
            Self::TopK { .. } => (4, "top_k"),
            Self::Pruned { .. } => (5, "pruned"),
            Self::Heads { .. } => (6, "heads"),
        }
    }

    /// The bytes that a parameter of this shape takes; saturates.
    pub(crate) fn length(self, shape: Shape) -> usize {
        let elements = shape.elements();
        match self {
            Self::F32 => elements.saturating_mul(4),
            Self::F16 | Self::Bf16 => elements.saturating_mul(2),
            Self::Int8 { .. } => rows(shape).saturating_mul(4).saturating_add(elements),
            Self::TopK { share, .. } | Self::Pruned { share, .. } => {
                let kept = kept(share, elements);
                let places = match Places::of(elements, kept) {
                    Places::Indices => kept.saturating_mul(4),
                    Places::Bitmap => elements.div_ceil(8),
                };
                places.saturating_add(kept.saturating_mul(4))
            }
            // A bit a head, then the slices.
            Self::Heads { share, of } => {
                let heads = usize::from(of);
                let values = kept(share, heads).saturating_mul(elements / heads.max(1) * 4);
                heads.div_ceil(8).saturating_add(values)
            }
        }
    }
}

/// How many rows have a scale of their own: a vector is one row.
pub(crate) fn rows(shape: Shape) -> usize {
    match *shape.dims() {
        [rows, _] => rows,
        _ => 1,
    }
}

/// How many of so many elements a share keeps.
pub fn kept(share: f64, elements: usize) -> usize {
    ((share * elements as f64).ceil() as usize).clamp(1, elements.max(1))
}

/// How the places of kept elements are written; the shorter of the two, so it need not be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// Ascending u32 indices.
    Indices,
    /// One bit an element.
    Bitmap,
}

impl Places {
    pub(crate) fn of(elements: usize, kept: usize) -> Self {
        let indices_fit = u32::try_from(elements).is_ok();
        let shorter = kept.saturating_mul(4) < elements.div_ceil(8);
        if indices_fit && shorter { Self::Indices } else { Self::Bitmap }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        if let Self::TopK { share, .. } | Self::Pruned { share, .. } | Self::Heads { share, .. } =
            self
        {
            write!(formatter, " {share}")?;
        }
        if self.feedback() { formatter.write_str(" with feedback") } else { Ok(()) }
    }
}

/// Shorter spellings, which are the ones that are written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Short {
    Int8,
    TopK(f64),
}

/// The spellings in a file.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"f32\", \"f16\", \"bf16\", \"int8\", { int8 = { feedback = true } }, \
                 { top_k = 0.1 }, { top_k = { share = 0.1, feedback = true } } or \
                 { pruned = { share = 0.1 } }"
)]
enum Written {
    Short(Short),
    Full(#[serde(with = "Encoding")] Encoding),
}

impl Serialize for Encoding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Int8 { feedback: false } = self {
            return Short::Int8.serialize(serializer);
        }
        if let Self::TopK { share, feedback: false } = self {
            return Short::TopK(*share).serialize(serializer);
        }
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoding = match Written::deserialize(deserializer)? {
            Written::Short(Short::Int8) => Self::Int8 { feedback: false },
            Written::Short(Short::TopK(share)) => Self::TopK { share, feedback: false },
            Written::Full(encoding) => encoding,
        };
        encoding.check().map_err(serde::de::Error::custom)?;
        Ok(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Encoding) {
        assert_eq!(serde_json::from_str::<Encoding>(text).expect(text), expected);
        assert_eq!(serde_json::to_string(&expected).expect("plain data"), text);
    }

    #[test]
    fn every_encoding_has_one_spelling() {
        check(r#""f32""#, Encoding::F32);
        check(r#""f16""#, Encoding::F16);
        check(r#""bf16""#, Encoding::Bf16);
        check(r#""int8""#, Encoding::Int8 { feedback: false });
        check(r#"{"int8":{"feedback":true}}"#, Encoding::Int8 { feedback: true });
        check(r#"{"top_k":0.1}"#, Encoding::TopK { share: 0.1, feedback: false });
        check(
            r#"{"top_k":{"share":0.1,"feedback":true}}"#,
            Encoding::TopK { share: 0.1, feedback: true },
        );
        check(
            r#"{"pruned":{"share":0.1,"feedback":true}}"#,
            Encoding::Pruned { share: 0.1, feedback: true },
        );
        check(r#"{"heads":{"share":0.5,"of":12}}"#, Encoding::Heads { share: 0.5, of: 12 });
    }

    #[test]
    fn what_is_no_encoding_is_refused_with_the_ones_that_are() {
        for text in [r#""f64""#, r#"{"top_k":0.1,"k":2}"#, r#"{"int8":{"feed":true}}"#] {
            let refused = serde_json::from_str::<Encoding>(text);
            if let Err(refused) = refused {
                assert!(refused.to_string().contains("bf16"), "{refused}");
            } else {
                panic!("{text} was read as {refused:?}");
            }
        }
        for share in ["0.0", "-0.5", "1.5"] {
            let refused = serde_json::from_str::<Encoding>(&format!(r#"{{"top_k":{share}}}"#));
            assert!(refused.expect_err(share).to_string().contains("above 0 and at most 1"));
        }
    }

    #[test]
    fn a_share_keeps_at_least_one_and_at_most_all() {
        assert_eq!(kept(1e-9, 5), 1);
        assert_eq!(kept(0.5, 5), 3);
        assert_eq!(kept(1.0, 5), 5);
    }

    #[test]
    fn places_are_written_the_shorter_way() {
        assert_eq!(Places::of(6400, 10), Places::Indices);
        assert_eq!(Places::of(6400, 640), Places::Bitmap);
    }
}
