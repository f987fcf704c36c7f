//! How good predictions are, as counts that add up.
//!
//! Each score is an accumulator of integers: feed it examples, [`merge`](SpanScore::merge) it with
//! the same score of another batch, thread or client, and read a ratio at the end. Integers add in
//! any order to the same sum, so a score never depends on who came first.

mod by_label;
mod calibration;
mod counts;
mod labels;
mod rouge;
mod spans;

pub use by_label::{ByLabel, ConfusionMatrix, OneLabel};
pub use calibration::{Calibration, CalibrationBin, CalibrationScore};
pub use counts::ConfusionCounts;
pub use labels::LabelScore;
pub use rouge::{Rouge, RougeScore};
pub use spans::{Span, SpanScore, spans};
