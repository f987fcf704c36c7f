//! The formats of quantised matrices: small integers in blocks of 32 along each row.
//!
//! There are two, because these two hold what files have without loss: 8 bits under a scale is `Q8_0` of
//! GGUF, and 4 bits with a scale and a minimum is its `Q4_1`, and `Q4_0` too, whose minimum is -8 scales. Scales
//! are f16 there and here. Integers come first and scales behind them, so that a GPU reads both aligned.
//!
//! ```text
//! int8   x = d q          d f16, q from -128 to 127          34 bytes a block
//! int4   x = d q + m      d, m f16, q from 0 to 15           20 bytes a block; byte i has q[i], q[i + 16]
//! ```
//! `d q` is exact in f32, so a fused multiply-add gives the same bits as the two operations. A row that is no whole
//! number of blocks ends in a block of which only a part counts.

/// Numbers of a block.
pub(crate) const BLOCK: usize = 32;

/// The integers of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantisation {
    /// 8 bits under a scale.
    Int8,
    /// 4 bits with a scale and a minimum.
    Int4,
}

impl Quantisation {
    /// Bytes of a block's integers.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int8 => BLOCK,
            Self::Int4 => BLOCK / 2,
        }
    }

    /// f16 of a block: the scale, and the minimum where there is one.
    pub const fn scales(self) -> usize {
        match self {
            Self::Int8 => 1,
            Self::Int4 => 2,
        }
    }
}

/// What a quantised matrix takes, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub kind: Quantisation,
    pub rows: usize,
    pub cols: usize,
}

impl Shape {
    /// Blocks of a row.
    pub const fn row_blocks(self) -> usize {
        self.cols.div_ceil(BLOCK)
    }

    /// Bytes of all integers.
    pub const fn quant_bytes(self) -> usize {
        self.rows * self.row_blocks() * self.kind.bytes()
    }

    /// f16 of all scales.
    pub const fn scales(self) -> usize {
        self.rows * self.row_blocks() * self.kind.scales()
    }

    /// Floats of memory for both.
    pub const fn floats(self) -> usize {
        (self.quant_bytes() + 2 * self.scales()).div_ceil(size_of::<f32>())
    }
}
