//! A chart as SVG text.
//!
//! Everything is placed by arithmetic over a fixed canvas, and the legend has a column of its own, so words
//! can never lie on lines. Text is drawn dark on white in sizes that survive a smaller window; colours are
//! Okabe and Ito's, which people with any kind of colour vision tell apart.

use std::fmt::Write;

use crate::axis::{Axis, label};
use crate::chart::{Chart, ChartError, Series, Stroke};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 58.0;
const PLOT_HEIGHT: f64 = 330.0;
const BOTTOM: f64 = TOP + PLOT_HEIGHT;
const LEGEND_GAP: f64 = 22.0;
const RIGHT: f64 = 14.0;
const LEGEND_LINE: f64 = 23.0;
/// A character of legend text is at most about this wide; the legend's column is as wide as its longest name.
const LEGEND_CHARACTER: f64 = 7.2;
const LEGEND_KEY: f64 = 38.0;
const CAPTION_LINE: f64 = 18.0;
/// Few enough for a wide font.
const CAPTION_CHARACTERS: usize = 104;

const PALETTE: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a6d00", "#56B4E9", "#333333"];

impl Chart {
    /// The chart as a standalone SVG.
    pub fn svg(&self) -> Result<String, ChartError> {
        self.check()?;
        Ok(draw(self))
    }
}

/// The chart, already checked.
fn draw(chart: &Chart) -> String {
    let frame = Frame::of(chart);
    let caption = wrapped(&chart.caption, CAPTION_CHARACTERS);
    let height = BOTTOM + 66.0 + caption.len() as f64 * CAPTION_LINE;
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("a string takes every text");
        out.push('\n');
    };
    line(format_args!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" width="{WIDTH:.0}" height="{height:.0}" role="img" font-family="system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif" font-size="13" fill="#222">"##
    ));
    line(format_args!("<title>{}</title>", escaped(&chart.title)));
    line(format_args!("<desc>{}</desc>", escaped(&chart.caption)));
    line(format_args!(r##"<rect width="100%" height="100%" fill="#ffffff"/>"##));
    line(format_args!(
        r#"<text x="{LEFT:.0}" y="32" font-size="17" font-weight="600">{}</text>"#,
        escaped(&chart.title)
    ));
    for tick in frame.x.ticks() {
        let x = frame.across(*tick);
        line(format_args!(
            r##"<line x1="{x:.1}" y1="{TOP:.1}" x2="{x:.1}" y2="{BOTTOM:.1}" stroke="#e9e9e9"/>"##
        ));
        line(format_args!(
            r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            BOTTOM + 20.0,
            label(*tick)
        ));
    }
    for tick in frame.y.ticks() {
        let y = frame.down(*tick);
        line(format_args!(
            r##"<line x1="{LEFT:.1}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="#e9e9e9"/>"##,
            frame.right
        ));
        line(format_args!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 9.0,
            y + 4.5,
            label(*tick)
        ));
    }
    line(format_args!(
        r##"<path d="M{LEFT:.1},{TOP:.1} V{:.1} H{:.1}" fill="none" stroke="#777"/>"##,
        BOTTOM, frame.right
    ));
    line(format_args!(
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        f64::midpoint(LEFT, frame.right),
        BOTTOM + 43.0,
        escaped(&chart.x.0)
    ));
    let middle = TOP + PLOT_HEIGHT / 2.0;
    line(format_args!(
        r#"<text x="20" y="{middle:.1}" text-anchor="middle" transform="rotate(-90 20 {middle:.1})">{}</text>"#,
        escaped(&chart.y.0)
    ));
    for series in &chart.series {
        line(format_args!("{}", band(series, &frame)));
    }
    for series in &chart.series {
        line(format_args!("{}", strokes(series, &frame)));
    }
    for (place, series) in chart.series.iter().enumerate() {
        line(format_args!("{}", key(series, place, &frame)));
    }
    for (place, text) in caption.iter().enumerate() {
        line(format_args!(
            r##"<text x="{LEFT:.0}" y="{:.1}" fill="#555">{}</text>"##,
            BOTTOM + 70.0 + place as f64 * CAPTION_LINE,
            escaped(text)
        ));
    }
    out.push_str("</svg>\n");
    out
}

/// Where the plot lies, and what its axes hold.
struct Frame {
    x: Axis,
    y: Axis,
    right: f64,
}

impl Frame {
    fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let longest =
            chart.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let legend = LEGEND_GAP + LEGEND_KEY + LEGEND_CHARACTER * longest as f64 + RIGHT;
        Self {
            x: Axis::holding(chart.x.1, points().map(|point| point.x)),
            y: Axis::holding(
                chart.y.1,
                points().flat_map(|point| [point.y, point.band.0, point.band.1]),
            ),
            right: (WIDTH - legend).max(WIDTH / 2.0),
        }
    }

    fn across(&self, number: f64) -> f64 {
        LEFT + self.x.place(number) * (self.right - LEFT)
    }

    fn down(&self, number: f64) -> f64 {
        BOTTOM - self.y.place(number) * PLOT_HEIGHT
    }
}

fn colour(series: &Series) -> &'static str {
    PALETTE[series.colour % PALETTE.len()]
}

fn band(series: &Series, frame: &Frame) -> String {
    if series.points.iter().all(|point| point.band.0 == point.band.1) {
        return String::new();
    }
    let place = |x: f64, y: f64| format!("{:.1},{:.1}", frame.across(x), frame.down(y));
    let edge: Vec<String> = series
        .points
        .iter()
        .map(|point| place(point.x, point.band.1))
        .chain(series.points.iter().rev().map(|point| place(point.x, point.band.0)))
        .collect();
    format!(
        r#"<polygon points="{}" fill="{}" fill-opacity="0.13"/>"#,
        edge.join(" "),
        colour(series)
    )
}

fn strokes(series: &Series, frame: &Frame) -> String {
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|point| (frame.across(point.x), frame.down(point.y))).collect();
    let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let (dash, mark) = dash_and_mark(series.stroke);
    let mut out = match series.stroke {
        Stroke::Rings => String::new(),
        Stroke::Solid | Stroke::Marked | Stroke::Dashed | Stroke::DashedMarked => format!(
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="2" stroke-linejoin="round"{dash}/>"#,
            line.join(" "),
            colour(series)
        ),
    };
    for (x, y) in places {
        out.push_str(&mark_at(mark, x, y, colour(series)));
    }
    out
}

/// A line of the legend.
fn key(series: &Series, place: usize, frame: &Frame) -> String {
    let x = frame.right + LEGEND_GAP;
    let y = TOP + 10.0 + place as f64 * LEGEND_LINE;
    let (dash, mark) = dash_and_mark(series.stroke);
    let line = match series.stroke {
        Stroke::Rings => String::new(),
        Stroke::Solid | Stroke::Marked | Stroke::Dashed | Stroke::DashedMarked => format!(
            r#"<line x1="{x:.1}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="{}" stroke-width="2"{dash}/>"#,
            x + 28.0,
            colour(series)
        ),
    };
    format!(
        r#"{line}{}<text x="{:.1}" y="{:.1}">{}</text>"#,
        mark_at(mark, x + 14.0, y, colour(series)),
        x + LEGEND_KEY,
        y + 4.5,
        escaped(&series.name)
    )
}

#[derive(Clone, Copy)]
enum Mark {
    None,
    Full,
    Hollow,
    Ring,
}

fn dash_and_mark(stroke: Stroke) -> (&'static str, Mark) {
    const DASHED: &str = r#" stroke-dasharray="6 4""#;
    match stroke {
        Stroke::Solid => ("", Mark::None),
        Stroke::Marked => ("", Mark::Full),
        Stroke::Dashed => (DASHED, Mark::None),
        Stroke::DashedMarked => (DASHED, Mark::Hollow),
        Stroke::Rings => ("", Mark::Ring),
    }
}

fn mark_at(mark: Mark, x: f64, y: f64, colour: &str) -> String {
    match mark {
        Mark::None => String::new(),
        Mark::Full => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.4" fill="{colour}"/>"#),
        Mark::Ring => format!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="7.5" fill="none" stroke="{colour}" stroke-width="1.6"/>"#
        ),
        Mark::Hollow => format!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="3.4" fill="#ffffff" stroke="{colour}" stroke-width="1.8"/>"##
        ),
    }
}

/// Lines of at most this many characters, broken at spaces.
fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= characters => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text that XML may hold.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write most control characters.
            control if control.is_control() => out.push(' '),
            // What turns the direction of text is shown by its number: it could make one name look like another.
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "U+{:04X} ", letter as u32);
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_what_turns_text_around_are_shown_and_not_obeyed() {
        assert_eq!(escaped("a\u{202e}<b>\u{7}"), "aU+202E &lt;b&gt; ");
    }
}
