//! Bars of layers: what a whole is made of, place by place.

use crate::axis::{Axis, Scale};
use crate::chart::{AT_LEAST_ZERO, ChartError};
use crate::table::Table;

use super::canvas::{Area, BELOW, COLOURS, Canvas, KEY};
use super::drawing::{Drawing, shown, table_of};
use super::style::texture;

const HEIGHT: f64 = 190.0;

/// Bars of layers.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBars {
    /// What is shown, in a few words.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What the bars are, and the name of each.
    pub x: (String, Vec<String>),
    /// What their height is.
    pub y: String,
    /// The layers from the bottom, each with a number for each bar.
    pub layers: Vec<Layer>,
}

/// A layer of all bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its height in each bar; none is below zero.
    pub heights: Vec<f64>,
}

impl StackedBars {
    fn check(&self) -> Result<(), ChartError> {
        if self.x.1.is_empty() || self.layers.is_empty() {
            return Err(ChartError::Empty { chart: self.title.clone() });
        }
        let numbers = self.layers.iter().flat_map(|layer| {
            let heights = layer.heights.iter().copied().enumerate();
            heights.map(|(place, it)| {
                (&*layer.name, place, it, it >= 0.0 && it.is_finite(), AT_LEAST_ZERO)
            })
        });
        ChartError::check(&self.title, numbers)
    }

    pub(super) fn draw(&self) -> Result<Drawing, ChartError> {
        self.check()?;
        let (names, count) = (&self.x.1, self.x.1.len());
        let height = |layer: &Layer, bar: usize| layer.heights.get(bar).copied().unwrap_or(0.0);
        let total = |bar: usize| self.layers.iter().map(|layer| height(layer, bar)).sum::<f64>();
        let highest = (0..count).map(total).fold(0.0, f64::max);
        let axis = Axis::holding(Scale::Linear, [0.0, highest].into_iter());
        let ticks: Vec<f64> = axis.ticks.iter().copied().filter(|tick| *tick >= 0.0).collect();
        let area = Area::beside(&ticks, HEIGHT);
        let Area { left, right, bottom } = area;
        let zero = axis.place(0.0);
        let down = |number: f64| bottom - (axis.place(number) - zero) / (1.0 - zero) * HEIGHT;
        let mut canvas = Canvas::default();
        let rungs: Vec<(f64, f64)> = ticks.iter().map(|tick| (*tick, down(*tick))).collect();
        canvas.rungs(area, &rungs);
        let slot = (right - left) / count as f64;
        let width = (slot * 0.82).min(46.0);
        let middle = |bar: usize| left + slot * (bar as f64 + 0.5);
        for bar in 0..count {
            let mut below = 0.0;
            for (place, layer) in self.layers.iter().enumerate() {
                let own = height(layer, bar);
                if own <= 0.0 {
                    continue;
                }
                let (top, foot) = (down(below + own), down(below));
                let shape = format!(
                    "x=\"{:.1}\" y=\"{top:.2}\" width=\"{width:.1}\" height=\"{:.2}\"",
                    middle(bar) - width / 2.0,
                    foot - top
                );
                canvas.mark(format_args!("<rect class=\"bar c{}\" {shape}/>", place % COLOURS));
                if let Some(texture) = texture(place) {
                    canvas.put(format_args!(
                        "<rect class=\"texture\" fill=\"url(#{texture})\" {shape}/>"
                    ));
                }
                below += own;
            }
        }
        canvas.axes(area, (&self.x.0, &self.y));
        let labels: Vec<(f64, String)> =
            names.iter().enumerate().map(|(bar, name)| (middle(bar), name.clone())).collect();
        canvas.labels(bottom, &labels);
        Ok(Drawing {
            title: self.title.clone(),
            caption: self.caption.clone(),
            height: bottom + BELOW,
            canvas,
            legend: self.legend(),
            numbers: self.numbers(),
        })
    }

    fn legend(&self) -> Vec<(String, String)> {
        let key = |(place, layer): (usize, &Layer)| {
            let over = texture(place)
                .map_or(String::new(), |texture| format!("<rect fill=\"url(#{texture})\" {KEY}/>"));
            let class = place % COLOURS;
            (format!("<rect class=\"bar c{class}\" {KEY}/>{over}"), layer.name.clone())
        };
        self.layers.iter().enumerate().map(key).collect()
    }

    fn numbers(&self) -> Table {
        let mut columns = vec![self.x.0.clone()];
        columns.extend(self.layers.iter().map(|layer| layer.name.clone()));
        let row = |(bar, name): (usize, &String)| {
            let cells = self
                .layers
                .iter()
                .map(|layer| layer.heights.get(bar).map_or(String::new(), |height| shown(*height)));
            [name.clone()].into_iter().chain(cells).collect()
        };
        table_of(columns, self.x.1.iter().enumerate().map(row).collect())
    }
}
