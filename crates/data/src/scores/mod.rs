//! How good predictions are, as counts that add up.
//!
//! Each score is an accumulator of integers: feed it examples, [`merge`](SpanScore::merge) it with
//! the same score of another batch, thread or client, and read a ratio at the end. Integers add in
//! any order to the same sum, so a score never depends on who came first. Win rates stand apart: they are made of
//! judgements that are all there.

mod by_label;
mod calibration;
mod counts;
mod labels;
mod rouge;
mod spans;
mod win_rate;

pub use by_label::{ByLabel, ConfusionMatrix, OneLabel};
pub use calibration::{Calibration, CalibrationBin, CalibrationScore};
pub use counts::ConfusionCounts;
pub use labels::LabelScore;
pub use rouge::{Rouge, RougeScore};
pub use spans::{Span, SpanScore, spans};
pub use win_rate::{Judgement, PositionBias, RESAMPLES, Rate, WinRate, Winner};
