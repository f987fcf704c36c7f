//! One self-contained HTML document: facts, charts, tables and folded text, in sections.
//!
//! Everything is inside the file. A content policy in its head forbids the browser to fetch anything,
//! so a document can be mailed, archived or opened without a network. There is no script; a document
//! that is served during its run may name one ([`Freshness::Live`]).
//!
//! A chart is an SVG of a fixed width that is scaled to its column, with its legend and its numbers as
//! HTML below it. So text stays readable on a phone, and whoever cannot see a chart can read its table.

mod bars;
mod canvas;
mod drawing;
mod heat;
mod lines;
mod parts;
mod row_plot;
mod style;

pub use bars::{Layer, StackedBars};
pub use heat::{CellFace, HeatCell, HeatMap};
pub use parts::{ModelSegment, PartsDrawing, PartsRow};
pub use row_plot::{PlotRow, RowPlot};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::chart::Chart;
use crate::table::Table;
use crate::text::{escaped, lines_escaped, put};
use drawing::Drawing;

/// A document.
///
/// ```
/// # use fedra_report::{Content, Document, Fact, Freshness, Section};
/// let fact = Fact { name: "rounds".to_owned(), value: "20".to_owned(), note: None };
/// let document = Document {
///     title: "A run".to_owned(),
///     lead: vec!["Three clients.".to_owned()],
///     sections: vec![Section::new("Result", vec![Content::Facts(vec![fact])])],
///     freshness: Freshness::Fixed,
/// };
/// assert!(document.html().contains("<dd>20</dd>"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its heading.
    pub title: String,
    /// A paragraph each, below the heading.
    pub lead: Vec<String>,
    /// The sections, most important first.
    pub sections: Vec<Section>,
    /// Whether it will change.
    pub freshness: Freshness,
}

/// Whether a document will change while somebody looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is a file.
    Fixed,
    /// It is served, and the script at this path of the same server replaces its contents.
    Live(String),
}

/// Contents under one heading.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What stands below it, in order.
    pub contents: Vec<Content>,
}

impl Section {
    /// A section.
    pub fn new(title: &str, contents: Vec<Content>) -> Self {
        Self { title: title.to_owned(), contents }
    }
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Facts side by side.
    Facts(Vec<Fact>),
    /// A paragraph.
    Words(String),
    /// A line chart; one point of a series is a mark, and its band a bar.
    Lines(Chart),
    /// Bars of layers.
    Bars(StackedBars),
    /// Rows by columns.
    Heat(HeatMap),
    /// Marks on a line for each name.
    Rows(RowPlot),
    /// Who holds what.
    Parts(PartsDrawing),
    /// Names, each with a few paragraphs.
    Findings(Vec<(String, Vec<String>)>),
    /// A table.
    Table(Table),
    /// A text in full, folded away: what it is, and the text as it is.
    Folded(String, String),
    /// A command to copy.
    Command(String),
    /// Other files, each with its name and its address relative to this one.
    Links(Vec<(String, String)>),
}

/// A fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// What it is about.
    pub name: String,
    /// What is so.
    pub value: String,
    /// What it has to be read with.
    pub note: Option<String>,
}

impl Document {
    /// The document as HTML. A chart that cannot be drawn honestly is replaced by the reason.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let (policy, script) = match &self.freshness {
            Freshness::Fixed => ("", String::new()),
            Freshness::Live(path) => (
                "; script-src 'self'; connect-src 'self'",
                format!("<script src=\"{}\" defer></script>\n", escaped(path)),
            ),
        };
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
             'unsafe-inline'; img-src data:{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
             <style>\n{}</style>\n{script}</head>\n<body>\n{}<main>\n<h1>{title}</h1>\n",
            style::of_documents(),
            style::PATTERNS,
        );
        for paragraph in &self.lead {
            put!(out, "<p class=\"lead\">{}</p>", escaped(paragraph));
        }
        let mut charts = 0;
        for section in self.sections.iter().filter(|section| !section.contents.is_empty()) {
            put!(out, "<section>\n<h2>{}</h2>", escaped(&section.title));
            for run in section.contents.chunk_by(|a, b| a.is_chart() == b.is_chart()) {
                let is_chart = run.first().is_some_and(Content::is_chart);
                if is_chart {
                    out.push_str("<div class=\"charts\">\n");
                }
                for content in run {
                    charts += usize::from(is_chart);
                    content.write(&mut out, charts);
                }
                if is_chart {
                    out.push_str("</div>\n");
                }
            }
            out.push_str("</section>\n");
        }
        out.push_str("</main>\n</body>\n</html>\n");
        out
    }
}

impl Content {
    /// Whether it stands in the grid of charts.
    fn is_chart(&self) -> bool {
        matches!(
            self,
            Self::Lines(_) | Self::Bars(_) | Self::Heat(_) | Self::Rows(_) | Self::Parts(_)
        )
    }

    fn write(&self, out: &mut String, number: usize) {
        match self {
            Self::Facts(facts) => {
                out.push_str("<dl class=\"facts\">\n");
                for Fact { name, value, note } in facts {
                    let note = note.as_ref().map_or(String::new(), |note| {
                        format!("<dd class=\"note\">{}</dd>", escaped(note))
                    });
                    put!(
                        out,
                        "<div><dt>{}</dt><dd>{}</dd>{note}</div>",
                        escaped(name),
                        escaped(value),
                    );
                }
                out.push_str("</dl>\n");
            }
            Self::Words(words) => put!(out, "<p>{}</p>", escaped(words)),
            Self::Findings(findings) => {
                out.push_str("<dl class=\"findings\">\n");
                for (name, paragraphs) in findings {
                    put!(out, "<dt>{}</dt>", escaped(name));
                    for paragraph in paragraphs {
                        put!(out, "<dd>{}</dd>", escaped(paragraph));
                    }
                }
                out.push_str("</dl>\n");
            }
            Self::Lines(chart) => draw(out, number, lines::draw(chart)),
            Self::Bars(bars) => draw(out, number, bars.draw()),
            Self::Heat(heat) => draw(out, number, heat.draw()),
            Self::Rows(rows) => draw(out, number, rows.draw()),
            Self::Parts(parts) => draw(out, number, parts.draw()),
            Self::Table(table) => put!(out, "{}", table.html()),
            Self::Folded(name, text) => put!(
                out,
                "<details class=\"folded\"><summary>{}</summary>\n<pre tabindex=\"0\">{}</pre></details>",
                escaped(name),
                lines_escaped(text),
            ),
            Self::Command(command) => {
                put!(out, "<pre class=\"command\" tabindex=\"0\">{}</pre>", lines_escaped(command),);
            }
            Self::Links(links) => {
                out.push_str("<ul class=\"links\">\n");
                for (name, address) in links {
                    let (name, address) = (escaped(name), escaped(&local(address)));
                    put!(out, "<li><a href=\"{address}\">{name}</a></li>");
                }
                out.push_str("</ul>\n");
            }
        }
    }
}

fn draw(out: &mut String, number: usize, drawing: Result<Drawing, crate::chart::ChartError>) {
    match drawing {
        Ok(drawing) => drawing.write(out, number),
        Err(error) => {
            put!(out, "<p class=\"note\">Not drawn: {}</p>", escaped(&error.to_string()),);
        }
    }
}

/// An address that can only be a file below the document: no scheme, every odd byte spelt out.
fn local(address: &str) -> String {
    const ODD: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'/')
        .remove(b'=')
        .remove(b'+');
    format!("./{}", utf8_percent_encode(address, &ODD))
}

#[cfg(test)]
mod tests;
