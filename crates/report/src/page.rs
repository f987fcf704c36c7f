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
    /// A name and a text each, after the figures.
    pub findings: Vec<(String, String)>,
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
             figure {{ margin: 2rem 0 }}\ndt {{ font-weight: 600; margin-top: .8rem }}\n\
             dd {{ margin: 0 }}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        let mut put = |line: std::fmt::Arguments<'_>| {
            writeln!(out, "{line}").expect("a string takes every text");
        };
        for paragraph in &self.introduction {
            put(format_args!("<p>{}</p>", escaped(paragraph)));
        }
        if !self.findings.is_empty() {
            put(format_args!("<h2>What was predicted, and what was seen</h2>\n<dl>"));
            for (name, text) in &self.findings {
                put(format_args!("<dt>{}</dt>\n<dd>{}</dd>", escaped(name), escaped(text)));
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
