//! What all charts of a document share: the width they are drawn at, and how shapes are written.
//!
//! Colours are classes, never values: the document's style gives them, once for light and once for dark.

use crate::axis::label;
use crate::text::{escaped, put};

/// Every chart is this wide; it is scaled to its column.
pub(super) const WIDTH: f64 = 420.0;
/// Room above a plot, for the name of its vertical axis.
pub(super) const TOP: f64 = 30.0;
/// Room below a plot, for ticks and the name of the horizontal axis.
pub(super) const BELOW: f64 = 42.0;
/// Room at the right.
pub(super) const RIGHT: f64 = 16.0;
/// A character is at most about this wide, in the widest font that people have.
pub(super) const CHARACTER: f64 = 7.9;
/// Colours of the style.
pub(super) const COLOURS: usize = 8;
/// Place and size of a filled key in a legend.
pub(super) const KEY: &str = "x=\"3\" y=\"1\" width=\"22\" height=\"12\"";

/// The inside of an SVG.
#[derive(Default)]
pub(super) struct Canvas {
    pub body: String,
    pub marks: usize,
}

impl Canvas {
    pub fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        put!(self.body, "{shape}");
    }

    /// A shape that shows a number.
    pub fn mark(&mut self, shape: std::fmt::Arguments<'_>) {
        self.marks += 1;
        self.put(format_args!("<g class=\"mark\">{shape}</g>"));
    }

    /// A text that is cut to a width, and whole in its tooltip; its place is its `start`, `middle` or `end`.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: &str, (text, width): (&str, f64)) {
        let short = fitted(text, width);
        let tip =
            if short == text { String::new() } else { format!("<title>{}</title>", escaped(text)) };
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}{tip}</text>",
            escaped(&short)
        ));
    }

    /// A line and a label for each of the numbers of a vertical axis, given with its place.
    pub fn rungs(&mut self, Area { left, right, .. }: Area, ticks: &[(f64, f64)]) {
        for (tick, y) in ticks {
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\"/>"
            ));
            self.text((left - 7.0, y + 4.0), "end", (&label(*tick), left));
        }
    }

    /// Both axes with their names.
    pub fn axes(&mut self, Area { left, right, bottom }: Area, (x_name, y_name): (&str, &str)) {
        self.put(format_args!(
            "<path class=\"axis\" d=\"M{left:.1},{TOP:.1} V{bottom:.1} H{right:.1}\"/>"
        ));
        self.text((2.0, 14.0), "start", (y_name, WIDTH - 4.0));
        let centre = (f64::midpoint(left, right), bottom + 35.0);
        self.text(centre, "middle", (x_name, right - left));
    }

    /// Those labels along the horizontal axis that do not touch, each given with its place.
    pub fn labels(&mut self, bottom: f64, labels: &[(f64, String)]) {
        for (x, text) in spaced(labels) {
            self.text((*x, bottom + 16.0), "middle", (text, 90.0));
        }
    }
}

/// Where a plot lies.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub left: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    /// A plot of this height, with room for the labels of its vertical axis.
    pub fn beside(ticks: &[f64], height: f64) -> Self {
        let widest = ticks.iter().map(|tick| width_of(&label(*tick))).fold(0.0, f64::max);
        Self { left: widest + 12.0, right: WIDTH - RIGHT, bottom: TOP + height }
    }
}

/// How wide a text is at most.
pub(super) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// The text, or its beginning where it is wider than that.
pub(super) fn fitted(text: &str, width: f64) -> String {
    let most = (width / CHARACTER).floor().max(1.0) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", start.trim_end())
}

/// Labels along a horizontal axis that do not touch: each with its place, some left out.
fn spaced(labels: &[(f64, String)]) -> Vec<&(f64, String)> {
    const GAP: f64 = 10.0;
    let touch = |step: usize| {
        let kept = || labels.iter().step_by(step);
        kept().zip(kept().skip(1)).any(|((left, first), (right, second))| {
            (right - left).abs() < f64::midpoint(width_of(first), width_of(second)) + GAP
        })
    };
    let step = (1..labels.len().max(2)).find(|step| !touch(*step)).unwrap_or(labels.len().max(1));
    labels.iter().step_by(step).collect()
}

/// The shapes of marks, of size one: another for each colour, so that nobody needs to see colours.
const SHAPES: [(&str, &str); COLOURS] = [
    ("", CIRCLE),
    ("", SQUARE),
    ("", "M0,-1.2 l1.2,2.1 h-2.4 z"),
    ("", "M0,-1.3 l1.3,1.3 l-1.3,1.3 l-1.3,-1.3 z"),
    (" hollow", CIRCLE),
    (" hollow", SQUARE),
    (" stroke", "M-1,-1 l2,2 m0,-2 l-2,2"),
    (" stroke", "M-1.2,0 h2.4 m-1.2,-1.2 v2.4"),
];
const CIRCLE: &str = "M-1,0 a1,1 0 1,0 2,0 a1,1 0 1,0 -2,0 z";
const SQUARE: &str = "M-0.9,-0.9 h1.8 v1.8 h-1.8 z";

/// A mark of a colour.
pub(super) fn marker(colour: usize, (x, y): (f64, f64), size: f64) -> String {
    let colour = colour % COLOURS;
    let (kind, path) = SHAPES[colour];
    format!(
        "<path class=\"m c{colour}{kind}\" transform=\"translate({x:.1} {y:.1}) scale({size})\" d=\"{path}\"/>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_touch_are_left_out() {
        let at = |step: f64| (0..20).map(|n| (f64::from(n) * step, n.to_string())).collect();
        let wide: Vec<(f64, String)> = at(40.0);
        assert_eq!(spaced(&wide).len(), 20);
        let narrow: Vec<(f64, String)> = at(8.0);
        let kept = spaced(&narrow);
        assert!(kept.len() < 8 && kept[0].1 == "0", "{kept:?}");
        assert!(spaced(&[]).is_empty());
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(fitted("größenordnung", 6.0 * CHARACTER), "größe…");
        assert_eq!(fitted("short", 100.0), "short");
    }
}
