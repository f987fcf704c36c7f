//! What all charts of a document share: the width they are drawn at, and how shapes are written.
//!
//! Colours are classes, never values: the document's style gives them, once for light and once for dark.

use std::fmt::Write;

use crate::svg::escaped;

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

/// The inside of an SVG.
#[derive(Default)]
pub(super) struct Canvas {
    pub body: String,
    pub marks: usize,
}

/// To which side of its place a text is set.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    pub fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{shape}").expect("a string takes every text");
    }

    /// A shape that shows a number.
    pub fn mark(&mut self, shape: std::fmt::Arguments<'_>) {
        self.marks += 1;
        self.put(format_args!("<g class=\"mark\">{shape}</g>"));
    }

    /// A text that is cut to a width, and whole in its tooltip.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, (text, width): (&str, f64)) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let short = fitted(text, width);
        let tip =
            if short == text { String::new() } else { format!("<title>{}</title>", escaped(text)) };
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}{tip}</text>",
            escaped(&short)
        ));
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
pub(super) fn spaced(labels: &[(f64, String)]) -> Vec<&(f64, String)> {
    const GAP: f64 = 10.0;
    let touch = |step: usize| {
        let kept: Vec<&(f64, String)> = labels.iter().step_by(step).collect();
        kept.windows(2).any(|pair| match pair {
            [(left, first), (right, second)] => {
                (right - left).abs() < f64::midpoint(width_of(first), width_of(second)) + GAP
            }
            _ => false,
        })
    };
    let step = (1..labels.len().max(2)).find(|step| !touch(*step)).unwrap_or(labels.len().max(1));
    labels.iter().step_by(step).collect()
}

/// The shape of a mark: another for each colour, so that nobody needs to see colours.
pub(super) fn marker(colour: usize, (x, y): (f64, f64), size: f64) -> String {
    let class = format!("m c{}", colour % COLOURS);
    let s = size;
    match colour % COLOURS {
        0 => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{s:.1}\"/>"),
        1 => format!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            x - 0.9 * s,
            y - 0.9 * s,
            1.8 * s,
            1.8 * s
        ),
        2 => format!(
            "<path class=\"{class}\" d=\"M{x:.1},{:.1} l{:.1},{:.1} h{:.1} z\"/>",
            y - 1.2 * s,
            1.2 * s,
            2.1 * s,
            -2.4 * s
        ),
        3 => format!(
            "<path class=\"{class}\" d=\"M{x:.1},{:.1} l{:.1},{:.1} l{:.1},{:.1} l{:.1},{:.1} z\"/>",
            y - 1.3 * s,
            1.3 * s,
            1.3 * s,
            -1.3 * s,
            1.3 * s,
            -1.3 * s,
            -1.3 * s
        ),
        4 => format!("<circle class=\"{class} hollow\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{s:.1}\"/>"),
        5 => format!(
            "<rect class=\"{class} hollow\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            x - 0.9 * s,
            y - 0.9 * s,
            1.8 * s,
            1.8 * s
        ),
        6 => format!(
            "<path class=\"{class} stroke\" d=\"M{:.1},{:.1} l{:.1},{:.1} m0,{:.1} l{:.1},{:.1}\"/>",
            x - s,
            y - s,
            2.0 * s,
            2.0 * s,
            -2.0 * s,
            -2.0 * s,
            2.0 * s
        ),
        _ => format!(
            "<path class=\"{class} stroke\" d=\"M{:.1},{y:.1} h{:.1} m{:.1},{:.1} v{:.1}\"/>",
            x - 1.2 * s,
            2.4 * s,
            -1.2 * s,
            -1.2 * s,
            2.4 * s
        ),
    }
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
