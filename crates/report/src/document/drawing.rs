//! A chart on its way into a document: the picture, its legend, and its numbers as a table.

use super::canvas::{Canvas, WIDTH};
use super::style;
use crate::table::{Column, Side, Table};
use crate::text::{escaped, put, wrapped};

/// A drawn chart.
pub(super) struct Drawing {
    pub title: String,
    pub caption: String,
    /// Height of the picture.
    pub height: f64,
    /// What is inside the `<svg>`.
    pub canvas: Canvas,
    /// Entries of the legend: what is inside a small `<svg>` of 28 by 14, and the name.
    pub legend: Vec<(String, String)>,
    /// The numbers.
    pub numbers: Table,
}

/// A table for those who cannot see a chart is no use beyond this, and the files have all numbers.
const ROWS: usize = 400;

impl Drawing {
    pub(super) fn write(&self, out: &mut String, number: usize) {
        let (height, Canvas { body, marks }) = (self.height, &self.canvas);
        let (title, caption) = (escaped(&self.title), escaped(&self.caption));
        let named = format!("aria-labelledby=\"t{number} d{number}\"");
        put!(out, "<figure>\n<figcaption><h3>{title}</h3>");
        if !caption.is_empty() {
            put!(out, "<p>{caption}</p>");
        }
        put!(
            out,
            "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" {named} data-marks=\"{marks}\">\n\
                 <title id=\"t{number}\">{title}</title>\n<desc id=\"d{number}\">{caption} The numbers are in the table below.</desc>\n{body}</svg>"
        );
        if !self.legend.is_empty() {
            out.push_str("<ul class=\"legend\">\n");
            for (key, name) in &self.legend {
                let name = escaped(name);
                put!(
                    out,
                    "<li><svg class=\"key\" viewBox=\"0 0 28 14\" aria-hidden=\"true\">{key}</svg>{name}</li>"
                );
            }
            out.push_str("</ul>\n");
        }
        put!(out, "<details><summary>Numbers</summary>{}</details>", self.numbers.html());
        out.push_str("</figure>\n");
    }

    /// The picture as a file of its own, with its title above and its legend and its caption below it.
    pub(super) fn svg(&self) -> String {
        /// Room for the title, and for a line of text.
        const ABOVE: f64 = 26.0;
        const LINE: f64 = 17.0;
        const CHARACTERS: usize = 64;
        let (title, below) = (escaped(&self.title), ABOVE + self.height);
        let caption = wrapped(&self.caption, CHARACTERS);
        let height = below + (self.legend.len() + caption.len()) as f64 * LINE + 8.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
             width=\"{:.0}\" height=\"{:.0}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', 'Helvetica Neue', \
             Arial, sans-serif\">\n<title>{title}</title>\n<desc>{}</desc>\n<style>\n{}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text class=\"title\" x=\"2\" y=\"18\">{title}</text>\n\
             <g transform=\"translate(0 {ABOVE})\">\n{}</g>\n",
            2.0 * WIDTH,
            2.0 * height,
            escaped(&self.caption),
            style::of_pictures(),
            self.canvas.body
        );
        let keys = self.legend.iter().map(|(key, name)| (key.as_str(), 34, name));
        let lines = keys.chain(caption.iter().map(|line| ("", 2, line)));
        for (place, (key, x, text)) in lines.enumerate() {
            let (y, text) = (below + place as f64 * LINE, escaped(text));
            put!(
                out,
                "<g transform=\"translate(0 {y:.1})\">{key}<text x=\"{x}\" y=\"11.5\">{text}</text></g>"
            );
        }
        out + "</svg>\n"
    }
}

/// The numbers of a chart: what its rows are, and a column each for the rest.
pub(super) fn table_of(columns: Vec<String>, mut rows: Vec<Vec<String>>) -> Table {
    let side = |place: usize| if place == 0 { Side::Left } else { Side::Right };
    let column = |(place, name)| Column { name, side: side(place) };
    let caption = match rows.len() {
        few if few <= ROWS => String::new(),
        many => format!("The first {ROWS} of {many} rows."),
    };
    rows.truncate(ROWS);
    Table { caption, columns: columns.into_iter().enumerate().map(column).collect(), rows }
}

/// A number for a table: four digits that matter.
pub(super) fn shown(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let size = number.abs();
    if !(1e-3..1e6).contains(&size) {
        return format!("{number:.2e}");
    }
    let digits = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_what_matters() {
        for (number, text) in [
            (0.0, "0"),
            (0.123_456, "0.1235"),
            (-12.0, "-12"),
            (1234.5, "1234"),
            (2_000_000.0, "2.00e6"),
            (0.000_012, "1.20e-5"),
            (0.5, "0.5"),
        ] {
            assert_eq!(shown(number), text);
        }
    }
}
