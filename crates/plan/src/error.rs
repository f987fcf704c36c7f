//! Everything that can be wrong with a layout, a scope, a cut, a rule or its evidence.
//!
//! One enum for the crate; each message names what was found and what was expected.

use crate::id::ParamId;
use crate::shape::{Shape, WrongRank};
use crate::text::Unreadable;

/// Why a layout, scope, cut, plan or rule was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A text does not name what it should.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A shape has too few or too many dimensions.
    #[error(transparent)]
    Rank(#[from] WrongRank),

    /// A parameter is listed twice.
    #[error("{id} is listed twice in the layout: expected once")]
    DuplicateParameter {
        /// The repeated parameter.
        id: ParamId,
    },
    /// A parameter has no elements.
    #[error("{id} has shape {shape}: expected every dimension to be at least 1")]
    ZeroDimension {
        /// The empty parameter.
        id: ParamId,
        /// Its shape.
        shape: Shape,
    },
    /// The element count of a layout does not fit the machine word.
    #[error("{id} with shape {shape} brings the layout past {} elements", usize::MAX)]
    TooManyElements {
        /// The parameter at which the count overflowed.
        id: ParamId,
        /// Its shape.
        shape: Shape,
    },
    /// Block numbers of a layout do not run from zero without a gap.
    #[error("the layout has block {found} but no block {missing}: expected blocks 0, 1, 2, ...")]
    BlockGap {
        /// The lowest block number that is absent.
        missing: u16,
        /// The next block number that is present.
        found: u16,
    },
    /// A layout has more blocks than a block count can say.
    #[error("the layout has 65536 blocks: expected at most {}", u16::MAX)]
    TooManyBlocks,

    /// A layout lacks a parameter that the other one has.
    #[error("layouts disagree: {id} is missing, expected with shape {expected}")]
    MissingParameter {
        /// The absent parameter.
        id: ParamId,
        /// The shape it should have.
        expected: Shape,
    },
    /// A layout has a parameter that the other one lacks.
    #[error("layouts disagree: {id} was found with shape {found}, expected no such parameter")]
    ExtraParameter {
        /// The surplus parameter.
        id: ParamId,
        /// The shape it was found with.
        found: Shape,
    },
    /// A parameter has another shape in each of two layouts.
    #[error("layouts disagree: {id} has shape {found}, expected {expected}")]
    ShapeMismatch {
        /// The parameter.
        id: ParamId,
        /// Its shape in the layout under test.
        found: Shape,
        /// Its shape in the layout of reference.
        expected: Shape,
    },

    /// A scope names a parameter that the layout does not hold.
    #[error("{id} is in the scope but not in the layout of {parameters} parameters")]
    OutsideLayout {
        /// The stray parameter.
        id: ParamId,
        /// How many parameters the layout holds.
        parameters: usize,
    },
    /// A bitmap is too short or too long for its layout.
    #[error("a scope bitmap of {found} bytes was found: expected {expected} bytes")]
    BitmapLength {
        /// Number of bytes found.
        found: usize,
        /// Number of bytes the layout calls for.
        expected: usize,
    },
    /// A bitmap sets bits past the last parameter.
    #[error(
        "the last byte {found:#010b} of a scope bitmap sets padding: expected only {used} bits"
    )]
    BitmapPadding {
        /// The last byte as found.
        found: u8,
        /// How many of its low bits stand for a parameter.
        used: usize,
    },

    /// A cut leaves the server without a block.
    #[error("a cut gives the server blocks {start}..{end}: expected at least one block")]
    EmptyCut {
        /// First block of the server.
        start: u16,
        /// First block past those of the server.
        end: u16,
    },
    /// A cut names blocks the model does not have.
    #[error("a cut gives the server blocks {start}..{end}: expected blocks within 0..{blocks}")]
    CutOutOfRange {
        /// First block of the server.
        start: u16,
        /// First block past those of the server.
        end: u16,
        /// Number of blocks in the model.
        blocks: u16,
    },

    /// A rule names a block the model does not have.
    #[error("a rule names block {block}: expected a block within 0..{blocks}")]
    NoSuchBlock {
        /// The block named.
        block: u16,
        /// Number of blocks in the model.
        blocks: u16,
    },
    /// A rule stands on chosen blocks and none were handed over.
    #[error("a rule takes the chosen blocks: expected blocks to be chosen first")]
    NothingChosen,
    /// A score cannot be ranked.
    #[error("the score of block {block} is {found}: expected a finite number")]
    ScoreNotFinite {
        /// Index of the score.
        block: usize,
        /// The score as found.
        found: f64,
    },
}
