//! A line chart in a document. A series of one point is a mark, and its band a vertical bar.

use crate::axis::{Axis, label};
use crate::chart::{Chart, ChartError, Point, Series, Stroke};
use crate::table::Table;

use super::canvas::{Area, BELOW, COLOURS, Canvas, TOP, marker};
use super::drawing::{Drawing, shown, table_of};

const HEIGHT: f64 = 200.0;
/// Marks that can still be told apart along a line.
const MARKS: usize = 32;

impl Chart {
    /// The chart as a standalone SVG.
    pub fn svg(&self) -> Result<String, ChartError> {
        Ok(draw(self)?.svg())
    }
}

/// Draws a chart.
pub(super) fn draw(chart: &Chart) -> Result<Drawing, ChartError> {
    chart.check()?;
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let heights = || points().flat_map(|point| [point.y, point.band.0, point.band.1]);
    // What is zero everywhere may rise, and is not shown in the middle of nothing.
    let above = heights().all(|height| height == 0.0).then_some(1.0);
    let y = Axis::holding(chart.y.1, heights().chain(above));
    let x = Axis::holding(chart.x.1, points().map(|point| point.x));
    let frame = Frame { area: Area::beside(&y.ticks, HEIGHT), x, y };
    let mut canvas = Canvas::default();
    let is_whole = points().all(|point| point.x.fract() == 0.0);
    let first_whole = is_whole.then(|| points().map(|point| point.x).fold(f64::INFINITY, f64::min));
    frame.draw(&mut canvas, (&chart.x.0, &chart.y.0), first_whole);
    for series in &chart.series {
        band(series, &frame, &mut canvas);
    }
    for series in &chart.series {
        strokes(series, &frame, &mut canvas);
    }
    Ok(Drawing {
        title: chart.title.clone(),
        caption: chart.caption.clone(),
        height: TOP + HEIGHT + BELOW,
        canvas,
        legend: chart.series.iter().map(|series| (key(series), series.name.clone())).collect(),
        numbers: numbers(chart),
    })
}

/// Where a plot lies, and what its axes hold.
struct Frame {
    x: Axis,
    y: Axis,
    area: Area,
}

impl Frame {
    fn across(&self, number: f64) -> f64 {
        self.area.left + self.x.place(number) * (self.area.right - self.area.left)
    }

    fn down(&self, number: f64) -> f64 {
        TOP + (1.0 - self.y.place(number)) * HEIGHT
    }

    fn draw(&self, canvas: &mut Canvas, names: (&str, &str), first_whole: Option<f64>) {
        let rungs: Vec<(f64, f64)> =
            self.y.ticks.iter().map(|tick| (*tick, self.down(*tick))).collect();
        canvas.rungs(self.area, &rungs);
        // Between rounds, and before the first, there is nothing to name.
        let is_shown = |tick: &&f64| {
            first_whole.is_none_or(|first| tick.fract().abs() < 1e-9 && **tick >= first)
        };
        let ticks: Vec<(f64, String)> = self
            .x
            .ticks
            .iter()
            .filter(is_shown)
            .map(|tick| (self.across(*tick), label(*tick)))
            .collect();
        canvas.labels(self.area.bottom, &ticks);
        canvas.axes(self.area, names);
    }
}

fn class(series: &Series) -> String {
    format!("c{}", series.colour % COLOURS)
}

fn band(series: &Series, frame: &Frame, canvas: &mut Canvas) {
    if series.points.iter().all(|point| point.band.0 == point.band.1) {
        return;
    }
    let class = class(series);
    if let [Point { x, band: (low, high), .. }] = series.points.as_slice() {
        let (x, low, high) = (frame.across(*x), frame.down(*low), frame.down(*high));
        canvas.put(format_args!(
            "<path class=\"l {class}\" d=\"M{x:.1},{low:.1} V{high:.1} M{:.1},{low:.1} h8 M{:.1},{high:.1} h8\"/>",
            x - 4.0,
            x - 4.0
        ));
        return;
    }
    let place = |x: f64, y: f64| format!("{:.1},{:.1}", frame.across(x), frame.down(y));
    let there = series.points.iter().map(|point| place(point.x, point.band.1));
    let back = series.points.iter().rev().map(|point| place(point.x, point.band.0));
    let edge: Vec<String> = there.chain(back).collect();
    canvas.put(format_args!("<polygon class=\"band {class}\" points=\"{}\"/>", edge.join(" ")));
}

/// The dashes of a line without marks: another for each colour.
fn dashes(stroke: Stroke, colour: usize) -> &'static str {
    match stroke {
        Stroke::Solid => [
            "",
            " stroke-dasharray=\"8 3\"",
            " stroke-dasharray=\"3 3\"",
            " stroke-dasharray=\"9 3 2 3\"",
        ][colour % 4],
        Stroke::Marked | Stroke::Rings => "",
        Stroke::Dashed | Stroke::DashedMarked => " stroke-dasharray=\"6 4\"",
    }
}

fn strokes(series: &Series, frame: &Frame, canvas: &mut Canvas) {
    let class = class(series);
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|point| (frame.across(point.x), frame.down(point.y))).collect();
    let (lined, marked) = match series.stroke {
        Stroke::Solid | Stroke::Dashed => (true, places.len() == 1),
        Stroke::Marked | Stroke::DashedMarked => (true, true),
        Stroke::Rings => (false, false),
    };
    if lined && places.len() > 1 {
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let thin = if series.stroke == Stroke::Solid { " thin" } else { "" };
        canvas.mark(format_args!(
            "<polyline class=\"l{thin} {class}\" points=\"{}\"{}/>",
            line.join(" "),
            dashes(series.stroke, series.colour)
        ));
    }
    let step = places.len().div_ceil(MARKS).max(1);
    for (x, y) in places.iter().rev().step_by(step).filter(|_| marked) {
        canvas.mark(format_args!("{}", marker(series.colour, (*x, *y), 3.2)));
    }
    for (x, y) in places.iter().filter(|_| series.stroke == Stroke::Rings) {
        canvas.mark(format_args!(
            "<circle class=\"ring {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>"
        ));
    }
}

fn key(series: &Series) -> String {
    let class = class(series);
    if series.stroke == Stroke::Rings {
        return format!("<circle class=\"ring {class}\" cx=\"14\" cy=\"7\" r=\"5.5\"/>");
    }
    let mark = marker(series.colour, (14.0, 7.0), 3.2);
    // One point has a mark and no line.
    if series.points.len() == 1 {
        return mark;
    }
    let is_marked = matches!(series.stroke, Stroke::Marked | Stroke::DashedMarked);
    format!(
        "<path class=\"l {class}\" d=\"M1,7 H27\"{}/>{}",
        dashes(series.stroke, series.colour),
        if is_marked { &mark } else { "" }
    )
}

/// A row for each place along the horizontal axis, a column for each series.
fn numbers(chart: &Chart) -> Table {
    let mut places: Vec<f64> =
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut columns = vec![chart.x.0.clone()];
    columns.extend(chart.series.iter().map(|series| series.name.clone()));
    let cell = |series: &Series, x: f64| {
        let point = series.points.iter().find(|point| point.x == x);
        point.map_or(String::new(), |point| {
            if point.band.0 == point.band.1 {
                return shown(point.y);
            }
            format!("{} ({} to {})", shown(point.y), shown(point.band.0), shown(point.band.1))
        })
    };
    let row = |x: &f64| {
        let cells = chart.series.iter().map(|series| cell(series, *x));
        [shown(*x)].into_iter().chain(cells).collect()
    };
    table_of(columns, places.iter().map(row).collect())
}
