//! One HTML page around several charts: no script, nothing fetched, readable from a folder.

use std::fmt::Write;

use crate::svg::escaped;

/// A page.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// A paragraph each, before the figures.
    pub introduction: Vec<String>,
    /// The figures, in order.
    pub figures: Vec<Figure>,
    /// Findings that make a table, before those in words.
    pub table: Option<Table>,
    /// A name and a few paragraphs each, before the figures.
    pub findings: Vec<(String, Vec<String>)>,
}

/// Findings of one kind, a row each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// How to read it, above the table.
    pub caption: String,
    /// What each column holds.
    pub columns: Vec<Column>,
    /// As many cells in each as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// To which side its cells are set.
    pub side: Side,
}

/// A side of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

impl Table {
    pub(crate) fn html(&self) -> String {
        let cell = |kind: &str, (column, text): (&Column, &String)| {
            let side = match column.side {
                Side::Left => "",
                Side::Right => " class=\"number\"",
            };
            format!("<{kind}{side}>{}</{kind}>", escaped(text))
        };
        let line = |kind: &str, cells: Vec<&String>| {
            let cells = self.columns.iter().zip(cells).map(|pair| cell(kind, pair));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let head = line("th", self.columns.iter().map(|column| &column.name).collect());
        let rows = self.rows.iter().map(|row| line("td", row.iter().collect()));
        let caption = match self.caption.as_str() {
            "" => String::new(),
            caption => format!("<p>{}</p>\n", escaped(caption)),
        };
        format!(
            "{caption}<div class=\"wide\" tabindex=\"0\"><table>\n<thead>{head}</thead>\n<tbody>\n{}</tbody>\n</table></div>",
            rows.collect::<String>()
        )
    }
}

/// A picture beside the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The file, relative to the page.
    pub file: String,
    /// What it shows, for those who do not see it.
    pub description: String,
}

impl Page {
    /// The page as HTML.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light\">\n<title>{title}</title>\n\
             <style>\nbody {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; \
             padding: 0 1rem; color: #222; background: #fff }}\nimg {{ width: 100%; height: auto }}\n\
             figure {{ margin: 2rem 0 }}\ndt {{ font-weight: 600; margin-top: 1rem }}\n\
             dd {{ margin: .1rem 0 0 }}\n.wide {{ overflow-x: auto }}\ntable {{ border-collapse: collapse; font-size: .9rem }}\n\
             th, td {{ text-align: left; padding: .25rem 1rem .25rem 0; white-space: nowrap; \
             border-bottom: 1px solid #ddd }}\ntd:last-child {{ white-space: normal }}\n\
             .number {{ text-align: right; font-variant-numeric: tabular-nums }}\n\
             </style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        let mut put = |line: std::fmt::Arguments<'_>| {
            writeln!(out, "{line}").expect("a string takes every text");
        };
        for paragraph in &self.introduction {
            put(format_args!("<p>{}</p>", escaped(paragraph)));
        }
        if self.table.is_some() || !self.findings.is_empty() {
            put(format_args!("<h2>What was predicted, and what was seen</h2>"));
        }
        if let Some(table) = &self.table {
            put(format_args!("{}", table.html()));
        }
        if !self.findings.is_empty() {
            put(format_args!("<dl>"));
            for (name, paragraphs) in &self.findings {
                put(format_args!("<dt>{}</dt>", escaped(name)));
                for paragraph in paragraphs {
                    put(format_args!("<dd>{}</dd>", escaped(paragraph)));
                }
            }
            put(format_args!("</dl>"));
        }
        for figure in &self.figures {
            let (file, words) = (escaped(&figure.file), escaped(&figure.description));
            put(format_args!("<figure><img src=\"{file}\" alt=\"{words}\"></figure>"));
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}
