//! Who holds which part of a model, drawn from the input to the output.

use crate::chart::ChartError;
use crate::table::Table;

use super::canvas::{COLOURS, Canvas, KEY, WIDTH, width_of};
use super::drawing::{Drawing, table_of};

const BOX: f64 = 44.0;
const ROW: f64 = 96.0;
const NAME: f64 = 18.0;

/// Who holds which part of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct PartsDrawing {
    /// What is shown, in a few words.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// Who may hold a part.
    pub holders: Vec<String>,
    /// A model each: one for each way in which it is cut.
    pub rows: Vec<PartsRow>,
}

/// A model, cut in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct PartsRow {
    /// Whose model it is.
    pub name: String,
    /// Its parts from the input to the output.
    pub parts: Vec<ModelSegment>,
    /// What crosses between neighbours, for each gap; empty where nothing does.
    pub flows: Vec<String>,
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSegment {
    /// Its name.
    pub name: String,
    /// Who holds it, as a place among the holders.
    pub holder: usize,
    /// How wide it is, beside the others.
    pub size: f64,
}

impl PartsDrawing {
    pub(super) fn draw(&self) -> Result<Drawing, ChartError> {
        const GAP: f64 = 18.0;
        if self.rows.iter().all(|row| row.parts.is_empty()) {
            return Err(ChartError::Empty { chart: self.title.clone() });
        }
        let mut canvas = Canvas::default();
        for (place, row) in self.rows.iter().enumerate() {
            let top = ROW * place as f64 + NAME + 4.0;
            canvas.text((2.0, top - 8.0), "start", (&row.name, WIDTH - 4.0));
            let gaps = GAP * row.parts.len().saturating_sub(1) as f64;
            let whole: f64 = row.parts.iter().map(|part| part.size.max(1.0)).sum();
            let unit = (WIDTH - 4.0 - gaps) / whole;
            let mut x = 2.0;
            for (at, part) in row.parts.iter().enumerate() {
                let wide = unit * part.size.max(1.0);
                let shape = format!(
                    "x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{BOX:.1}\" rx=\"5\""
                );
                canvas.mark(format_args!(
                    "<rect class=\"held c{}\" {shape}/>",
                    part.holder % COLOURS
                ));
                // A box that is too narrow for one line has two.
                let (first, second) = match part.name.split_once(' ') {
                    Some((first, second)) if width_of(&part.name) > wide - 6.0 => (first, second),
                    Some(_) | None => (part.name.as_str(), ""),
                };
                let middle = x + wide / 2.0;
                let lines: &[(&str, f64)] = if second.is_empty() {
                    &[(first, 26.0)]
                } else {
                    &[(first, 19.0), (second, 34.0)]
                };
                for (text, down) in lines {
                    canvas.text((middle, top + down), "middle", (text, wide));
                }
                x += wide;
                if at + 1 < row.parts.len() {
                    Self::flow(row, at, (x, top), &mut canvas);
                }
                x += GAP;
            }
        }
        let key = |(place, holder): (usize, &String)| {
            let class = place % COLOURS;
            (format!("<rect class=\"held c{class}\" {KEY}/>"), holder.clone())
        };
        Ok(Drawing {
            title: self.title.clone(),
            caption: self.caption.clone(),
            height: ROW * self.rows.len() as f64,
            canvas,
            legend: self.holders.iter().enumerate().map(key).collect(),
            numbers: self.numbers(),
        })
    }

    /// An arrow both ways in a gap, with what crosses below it.
    fn flow(row: &PartsRow, at: usize, (x, top): (f64, f64), canvas: &mut Canvas) {
        let Some(flow) = row.flows.get(at).filter(|flow| !flow.is_empty()) else { return };
        let y = top + BOX / 2.0;
        canvas.put(format_args!(
            "<path class=\"flow\" d=\"M{:.1},{:.1} h12 l-4,-3 m4,3 l-4,3 M{:.1},{:.1} h-12 l4,-3 m-4,3 l4,3\"/>",
            x + 3.0,
            y - 5.0,
            x + 15.0,
            y + 5.0
        ));
        let half = WIDTH / 2.0 - 4.0;
        let (anchor, from) = if at * 2 < row.parts.len() - 1 {
            ("start", (x - 30.0).max(2.0))
        } else {
            ("end", (x + 50.0).min(WIDTH - 2.0))
        };
        canvas.text((from, top + BOX + 16.0), anchor, (flow, half));
    }

    fn numbers(&self) -> Table {
        let columns = ["model", "part", "held by"].map(str::to_owned).to_vec();
        let held = |part: &ModelSegment| self.holders.get(part.holder).cloned().unwrap_or_default();
        let rows = self.rows.iter().flat_map(|row| {
            row.parts.iter().map(move |part| vec![row.name.clone(), part.name.clone(), held(part)])
        });
        table_of(columns, rows.collect())
    }
}
