//! A heat map: a value for each row and column, the darker the more.
//!
//! One colour over the paper, by opacity, so that it reads alike in light, in dark and on paper.

use crate::chart::{AT_LEAST_ZERO, ChartError};
use crate::table::Table;

use super::canvas::{Canvas, KEY, RIGHT, TOP, WIDTH, width_of};
use super::drawing::{Drawing, shown, table_of};

/// Rows are no higher than this.
const HIGHEST: f64 = 26.0;
/// Lines of text are about this high.
const LINE: f64 = 13.0;
/// The most room that names of rows take.
const NAMES: f64 = 120.0;
/// Cells that are this wide have room for their number.
const NUMBERED: f64 = 26.0;
/// What the smallest number above zero is drawn with.
const FAINTEST: f64 = 0.08;

/// A heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatMap {
    /// What is shown, in a few words.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What the columns are, and the name of each.
    pub x: (String, Vec<String>),
    /// What the rows are, and the name of each, from the top.
    pub y: (String, Vec<String>),
    /// A row of cells for each row; `None` is left blank.
    pub cells: Vec<Vec<Option<HeatCell>>>,
    /// What a value is, for the legend.
    pub value: String,
    /// What hatching means, where cells have it.
    pub hatching: Option<String>,
    /// What a cell shows.
    pub face: CellFace,
}

/// What a cell shows beside its shade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellFace {
    /// Nothing: its number is in the table.
    #[default]
    Shade,
    /// Its number, where there is room.
    Number,
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeatCell {
    /// How dark it is, beside the largest of all; not below zero.
    pub value: f64,
    /// Whether it is hatched.
    pub hatched: bool,
}

impl HeatMap {
    fn each(&self) -> impl Iterator<Item = (usize, usize, HeatCell)> {
        let columns = self.x.1.len();
        let rows = self.cells.iter().take(self.y.1.len()).enumerate();
        rows.flat_map(move |(row, cells)| {
            let cells = cells.iter().take(columns).enumerate();
            cells.filter_map(move |(column, cell)| Some((row, column, (*cell)?)))
        })
    }

    fn check(&self) -> Result<(), ChartError> {
        if self.each().next().is_none() {
            return Err(ChartError::Empty { chart: self.title.clone() });
        }
        let numbers = self.each().map(|(row, column, HeatCell { value, .. })| {
            (&*self.y.1[row], column, value, value >= 0.0 && value.is_finite(), AT_LEAST_ZERO)
        });
        ChartError::check(&self.title, numbers)
    }

    pub(super) fn draw(&self) -> Result<Drawing, ChartError> {
        self.check()?;
        let (columns, rows) = (self.x.1.len() as f64, self.y.1.len() as f64);
        let named = self.y.1.iter().map(|name| width_of(name)).fold(0.0, f64::max).min(NAMES);
        let left = named + 12.0;
        let wide = (WIDTH - RIGHT - left) / columns;
        // Rows with names are as high as a line of text; those of numbers may be named now and then.
        let all_named =
            self.y.1.iter().any(|name| name.contains(|letter: char| letter.is_alphabetic()));
        let high = (300.0 / rows).clamp(if all_named { LINE } else { 9.0 }, HIGHEST);
        let bottom = TOP + high * rows;
        let most = self.each().map(|(_, _, cell)| cell.value).fold(0.0, f64::max);
        let mut canvas = Canvas::default();
        canvas.text((2.0, 14.0), "start", (&self.y.0, WIDTH - 4.0));
        let names: Vec<(f64, String)> = (0_u16..)
            .zip(&self.y.1)
            .map(|(row, name)| (TOP + high * (f64::from(row) + 0.5), name.clone()))
            .collect();
        let step = (LINE / high).ceil().max(1.0) as usize;
        for (y, name) in names.iter().step_by(step) {
            canvas.text((left - 7.0, y + 4.0), "end", (name, named + 1.0));
        }
        for (row, column, HeatCell { value, hatched }) in self.each() {
            let (x, y) = (left + wide * column as f64, TOP + high * row as f64);
            let shape =
                format!("x=\"{x:.2}\" y=\"{y:.2}\" width=\"{wide:.2}\" height=\"{high:.2}\"");
            let share = if most > 0.0 { value / most } else { 0.0 };
            let opacity = if value > 0.0 { FAINTEST + (1.0 - FAINTEST) * share } else { 0.0 };
            canvas
                .mark(format_args!("<rect class=\"heat\" fill-opacity=\"{opacity:.3}\" {shape}/>"));
            if hatched {
                canvas.put(format_args!("<rect class=\"texture\" fill=\"url(#hatch)\" {shape}/>"));
            }
            if wide > 4.0 {
                canvas.put(format_args!("<rect class=\"cell\" {shape}/>"));
            }
            let text = shown(value);
            let fits = wide >= NUMBERED && high >= 15.0 && width_of(&text) <= wide + 4.0;
            if self.face == CellFace::Number && fits {
                let class = if opacity > 0.5 { "on-dark" } else { "on-faint" };
                canvas.put(format_args!(
                    "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                    x + wide / 2.0,
                    y + high / 2.0 + 4.0
                ));
            }
        }
        let below = self.columns((left, wide), bottom, &mut canvas);
        Ok(Drawing {
            title: self.title.clone(),
            caption: self.caption.clone(),
            height: bottom + below,
            canvas,
            legend: self.legend(most),
            numbers: self.numbers(),
        })
    }

    /// Names of columns, upright where they have room and else turned; says how much room they take.
    fn columns(&self, (left, wide): (f64, f64), bottom: f64, canvas: &mut Canvas) -> f64 {
        let centre = f64::midpoint(left, WIDTH - RIGHT);
        let longest = self.x.1.iter().map(|name| width_of(name)).fold(0.0, f64::max);
        let is_number = |name: &String| name.starts_with(|first: char| first.is_ascii_digit());
        let middle = |column: usize| left + wide * (column as f64 + 0.5);
        if longest <= wide || self.x.1.iter().all(is_number) {
            let labels: Vec<(f64, String)> =
                self.x.1.iter().enumerate().map(|(at, name)| (middle(at), name.clone())).collect();
            canvas.labels(bottom, &labels);
            canvas.text((centre, bottom + 35.0), "middle", (&self.x.0, WIDTH - RIGHT - left));
            return 42.0;
        }
        let room = longest.min(NAMES);
        for (column, name) in self.x.1.iter().enumerate() {
            let (x, y) = (middle(column) + 4.0, bottom + 6.0);
            canvas.put(format_args!("<g transform=\"rotate(-90 {x:.1} {y:.1})\">"));
            canvas.text((x, y), "end", (name, room + 1.0));
            canvas.put(format_args!("</g>"));
        }
        canvas.text((centre, bottom + room + 26.0), "middle", (&self.x.0, WIDTH - RIGHT - left));
        room + 34.0
    }

    fn legend(&self, most: f64) -> Vec<(String, String)> {
        let full = format!("<rect class=\"heat\" {KEY}/>");
        let mut legend = vec![(full, format!("{}: {}", self.value, shown(most)))];
        if let Some(hatching) = &self.hatching {
            let key = format!(
                "<rect class=\"heat\" fill-opacity=\"0.3\" {KEY}/><rect fill=\"url(#hatch)\" {KEY}/>"
            );
            legend.push((key, hatching.clone()));
        }
        legend
    }

    fn numbers(&self) -> Table {
        let mut columns = vec![format!("{} \\ {}", self.y.0, self.x.0)];
        columns.extend(self.x.1.iter().cloned());
        let row = |(name, cells): (&String, &Vec<Option<HeatCell>>)| {
            let told = |cell: &Option<HeatCell>| {
                cell.map_or(String::new(), |cell| {
                    let star = if cell.hatched { "*" } else { "" };
                    format!("{}{star}", shown(cell.value))
                })
            };
            [name.clone()].into_iter().chain(cells.iter().map(told)).collect()
        };
        table_of(columns, self.y.1.iter().zip(&self.cells).map(row).collect())
    }
}
