//! A line for each name with a few marks on it: first and last, precision and recall, a mean and its interval.

use crate::axis::{Axis, Scale, label};
use crate::chart::ChartError;
use crate::table::Table;

use super::canvas::{Area, BELOW, COLOURS, Canvas, RIGHT, TOP, WIDTH, marker, width_of};
use super::drawing::{Drawing, shown, table_of};

const ROW: f64 = 22.0;
/// The most room that names take.
const NAMES: f64 = 150.0;

/// A line for each name.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPlot {
    /// What is shown, in a few words.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What the horizontal axis is.
    pub x: String,
    /// What the names are.
    pub y: String,
    /// What the marks of a row are, each with the colour of the palette.
    pub marks: Vec<(String, usize)>,
    /// The rows, from the top.
    pub rows: Vec<PlotRow>,
}

/// A name and its marks.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotRow {
    /// The name.
    pub name: String,
    /// A number for each mark; `None` is left out.
    pub values: Vec<Option<f64>>,
    /// From where to where a line is drawn behind the marks, and its colour.
    pub span: Option<(f64, f64, usize)>,
}

impl PlotRow {
    /// Every number that is drawn.
    fn numbers(&self) -> Vec<f64> {
        let ends = self.span.iter().flat_map(|(low, high, _)| [*low, *high]);
        self.values.iter().copied().flatten().chain(ends).collect()
    }
}

impl RowPlot {
    fn check(&self) -> Result<(), ChartError> {
        if self.rows.iter().all(|row| row.values.iter().all(Option::is_none)) {
            return Err(ChartError::Empty { chart: self.title.clone() });
        }
        let numbers = self.rows.iter().flat_map(|row| {
            let all = row.numbers().into_iter().enumerate();
            all.map(|(place, it)| (&*row.name, place, it, it.is_finite(), "a finite number"))
        });
        ChartError::check(&self.title, numbers)
    }

    pub(super) fn draw(&self) -> Result<Drawing, ChartError> {
        self.check()?;
        let named = self.rows.iter().map(|row| width_of(&row.name)).fold(0.0, f64::max).min(NAMES);
        let (left, right) = (named + 14.0, WIDTH - RIGHT);
        let bottom = TOP + ROW * self.rows.len() as f64;
        let numbers: Vec<f64> = self.rows.iter().flat_map(PlotRow::numbers).collect();
        let above = numbers.iter().all(|number| *number == 0.0).then_some(1.0);
        let axis = Axis::holding(Scale::Linear, numbers.into_iter().chain(above));
        let across = |number: f64| left + axis.place(number) * (right - left);
        let mut canvas = Canvas::default();
        let ticks: Vec<(f64, String)> =
            axis.ticks.iter().map(|tick| (across(*tick), label(*tick))).collect();
        for (x, _) in &ticks {
            canvas.put(format_args!(
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>"
            ));
        }
        canvas.labels(bottom, &ticks);
        for (place, row) in self.rows.iter().enumerate() {
            let y = TOP + ROW * (place as f64 + 0.5);
            canvas.text((left - 8.0, y + 4.0), "end", (&row.name, named + 1.0));
            if let Some((low, high, colour)) = row.span {
                canvas.put(format_args!(
                    "<path class=\"l c{}\" d=\"M{:.1},{y:.1} H{:.1}\"/>",
                    colour % COLOURS,
                    across(low),
                    across(high)
                ));
            }
            for (value, (_, colour)) in row.values.iter().zip(&self.marks) {
                if let Some(value) = value {
                    canvas.mark(format_args!("{}", marker(*colour, (across(*value), y), 3.8)));
                }
            }
        }
        canvas.axes(Area { left, right, bottom }, (&self.x, &self.y));
        let key =
            |(name, colour): &(String, usize)| (marker(*colour, (14.0, 7.0), 3.8), name.clone());
        Ok(Drawing {
            title: self.title.clone(),
            caption: self.caption.clone(),
            height: bottom + BELOW,
            canvas,
            legend: self.marks.iter().map(key).collect(),
            numbers: self.numbers(),
        })
    }

    fn numbers(&self) -> Table {
        let mut columns = vec![self.y.clone()];
        columns.extend(self.marks.iter().map(|(name, _)| name.clone()));
        columns
            .extend(self.rows.iter().any(|row| row.span.is_some()).then(|| "from, to".to_owned()));
        let wide = columns.len();
        let row = |row: &PlotRow| {
            let mut cells = vec![row.name.clone()];
            cells.extend(row.values.iter().map(|value| value.map_or(String::new(), shown)));
            if let Some((low, high, _)) = row.span {
                cells.push(format!("{}, {}", shown(low), shown(high)));
            }
            cells.resize(wide, String::new());
            cells
        };
        table_of(columns, self.rows.iter().map(row).collect())
    }
}
