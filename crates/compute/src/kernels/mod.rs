//! Every computation on tensors, and the one place that asks which device is to do it.
//!
//! The tape, gradients and optimiser know shapes and what follows what; a function here knows who
//! computes. Callers have checked shapes; a wrong one is a panic inside the crate, never an access
//! out of bounds. A second device is a second arm in each `match`.

mod attention;
mod block;
mod elementwise;
mod examples;
mod losses;
mod products;
mod rows;
mod squares;

pub(crate) use self::attention::*;
pub(crate) use self::block::*;
pub(crate) use self::elementwise::*;
pub(crate) use self::examples::*;
pub(crate) use self::losses::*;
pub(crate) use self::products::*;
pub(crate) use self::rows::*;
pub(crate) use self::squares::*;
pub(crate) use crate::cpu::attention::ProbeWeights;
pub(crate) use crate::cpu::losses::{Factors, Smoothing};
pub(crate) use crate::cpu::norm::Kind as NormKind;
pub(crate) use crate::cpu::rows::Occurrences;
pub(crate) use crate::cpu::vocabulary::VocabularyExamples;
pub(crate) use crate::fill::Fill;
pub(crate) use crate::operands::{
    Attended, Change, ColumnFactors, Factor, GradientView, Linear, LinearBackward, Outer, View,
    Vocabulary, WeightGradient,
};
