//! Results as pictures: a chart in, an SVG out; facts and charts in, one HTML document out.
//!
//! The crate knows nothing of runs or laboratories, prints nothing and writes no file: a [`Chart`] or a
//! [`Document`] is plain data, [`Chart::svg`] and [`Document::html`] are pure functions of it. The SVG is made
//! by hand, because the pictures are few and simple, and a plotting library would be the largest dependency
//! of the house.

#![forbid(unsafe_code)]

mod axis;
mod chart;
mod document;
mod table;
mod text;

pub use axis::Scale;
pub use chart::{Chart, ChartError, Point, Series, Stroke};
pub use document::{
    CellFace, Content, Document, Fact, Freshness, HeatCell, HeatMap, Layer, ModelSegment,
    PartsDrawing, PartsRow, PlotRow, RowPlot, Section, StackedBars,
};
pub use table::{Column, Side, Table};
pub use text::wrapped;
