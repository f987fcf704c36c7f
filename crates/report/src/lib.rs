//! Results as pictures: a chart in, an SVG out.
//!
//! The crate knows nothing of runs or laboratories, prints nothing and writes no file: a [`Chart`] is plain
//! data, [`Chart::svg`] is a pure function of it. The SVG is made by hand, because the pictures are few and
//! simple, and a plotting library would be the largest dependency of the house.

mod axis;
mod chart;
mod page;
mod svg;

pub use axis::Scale;
pub use chart::{Chart, ChartError, Point, Series, Stroke};
pub use page::{Column, Figure, Page, Side, Table};
